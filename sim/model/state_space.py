"""Mixers with a state in place of attention, on one rank: their kernels and tensors in a layer.

A head of width P has a state S of N x P numbers. Token t, with input x_t and output y_t, decays it:
S_t = a_t S_(t-1) + B_t' x_t, y_t = C_t S_t. There are four rules:

- "mamba": each channel is a head, and the states are scanned token by token (Gu and Dao 2023, arXiv
  2312.00752).
- "mamba2": chunks of Q tokens are matrix products, and states are carried from chunk to chunk (Dao
  and Gu 2024, arXiv 2405.21060, section 6).
- "delta": a key's value in the state is replaced by a new value; chunks are products, too (Yang et
  al. 2024, arXiv 2412.06464).
- "lightning": linear attention whose heads decay at fixed rates (Qin et al. 2024, arXiv
  2401.04658). It is "mamba2" without a step size, with keys and queries in place of B and C.

Under context parallelism each rank has all tokens of a share of the heads. All-to-alls in front of
the convolution and after the states exchange tokens for heads. Groups of heads that are fewer than
the ranks go to several ranks (Megatron-Core, megatron/core/ssm/mamba_context_parallel.py).

The products of chunks have not been measured; they are assumed to be as fast as other batched
products. The convolution over time in front of them, or the activation in its place, reads and
writes its channels once.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Ge, Gt
from sim.model.execution import Execution
from sim.model.kernels import Gemm, Item, MemoryBound
from sim.model.operators import Operator
from sim.model.tensor_parallel import column_linear, row_linear
from sim.program.causes import CONTEXT
from sim.program.operations import Collective

Rule = Literal["mamba", "mamba2", "delta", "lightning"]
# Numbers per token that the projection makes for each head: a step size, or a decay and a strength.
_MADE = {"mamba": 0, "mamba2": 1, "delta": 2, "lightning": 0}
# Parameters of each head of the scan: decay, bias of the step size, weight from input to output.
_TRAINED = {"mamba": 0, "mamba2": 3, "delta": 2, "lightning": 0}

_EXCHANGED = ("mamba2", "delta")  # rules under which ranks can exchange heads for tokens (cp)
_SCAN_FLOPS = 9  # FLOPs per token, channel and number of state (state-spaces/mamba, issue 110)
_FP32 = 4
# Bandwidth of TensorRT-LLM's convolution relative to element-wise kernels: 0.85 on H100, 0.73 on
# H200, 0.68 on B200, 0.67 on GB200, 0.68 on B300, 0.9 on L40S, medians of at least 16,384 tokens in
# sequences of at least 1,024 (ai-dynamo/aiconfigurator @095f58a, mamba2, context).
_CONVOLUTION = 0.71


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpace:
    """Keys of a layer with a state.

    There are `heads` heads of width `head`, with `state` numbers of state for each column. The
    heads in each of `groups` groups share B and C ("delta": keys and queries). A convolution of
    `taps` taps over time (0: none) comes first, with a bias if `convolution_bias`; the projections
    in and out have biases if `bias`. "mamba" makes the step size of each channel from `rank`
    numbers; with `norms` it normalises these numbers, B and C. The other rules compute `chunk`
    tokens at once; with `gated_norm` they normalise the output in front of the gate.
    """

    rule: Rule = "mamba2"
    heads: Annotated[int, Gt(0)]
    head: Annotated[int, Gt(0)] = 1
    state: Annotated[int, Gt(0)]
    groups: Annotated[int, Gt(0)] = 1
    taps: Annotated[int, Ge(0)] = 4
    chunk: Annotated[int, Gt(0)] = 256
    rank: Annotated[int, Ge(0)] = 0
    norms: bool = False
    gated_norm: bool = True
    convolution_bias: bool = True
    bias: bool = False

    def __post_init__(self) -> None:
        if self.heads % self.groups:
            raise ValueError(f"groups = {self.groups} does not divide heads = {self.heads}")
        if (self.rule == "mamba") != (self.rank > 0):
            raise ValueError(f"rank = {self.rank} with rule = {self.rule!r}; only mamba has a rank")

    @property
    def held(self) -> int:
        """Numbers that a layer holds for a sequence of any length: the states of all heads, and the
        channels of earlier tokens that the convolution reads."""
        mixed = self.heads * self.head
        mixed += 0 if self.rule == "mamba" else 2 * self.groups * self.state
        return self.heads * self.head * self.state + max(self.taps - 1, 0) * mixed


def operators(run: Execution, ssm: StateSpace) -> tuple[Operator, ...]:
    """Return the operators of a mixer. Raises `InputError` if the plan cannot divide its heads."""
    mixer = _Mixer(run, ssm)
    return (
        mixer.project_in(), mixer.convolve(), *mixer.steps(), mixer.scan(), mixer.gate(),
        mixer.project_out(),
    )  # fmt: skip


class _Mixer:
    """The operators of a mixer on a rank that holds its share of the heads."""

    def __init__(self, run: Execution, ssm: StateSpace) -> None:
        self.run, self.own = run, ssm
        if ssm.heads % run.tp or (ssm.rule != "mamba" and ssm.groups % run.tp):
            heads = f"heads = {ssm.heads} of a state in {ssm.groups} groups"
            raise InputError("plan", f"tp = {run.tp} does not divide {heads}", "lower tp")
        self.heads, self.groups = ssm.heads // run.tp, max(ssm.groups // run.tp, 1)
        self.inner, self.cp = self.heads * ssm.head, run.sharding.cp
        shared = 0 if ssm.rule == "mamba" else 2 * self.groups * ssm.state
        self.mixed = self.inner + shared  # channels of the convolution
        # Under cp a rank has the whole sequence of fewer heads and groups. `channels` is the width
        # of the same data if it were spread over the rank's own share of the tokens.
        self.own_heads, self.own_groups = self.heads // self.cp, max(self.groups // self.cp, 1)
        self.channels = self.inner + shared * self.own_groups * self.cp // self.groups
        if self.cp > 1 and (ssm.rule not in _EXCHANGED or self.heads % self.cp):
            fault = f"cp = {self.cp} does not divide the {self.heads} heads of {ssm.rule} on a rank"
            if ssm.rule not in _EXCHANGED:
                fault = f"cp = {self.cp}: how ranks divide the states of {ssm.rule} is not known"
            raise InputError("plan", fault, "lower cp")
        if max(self.groups, self.cp) % min(self.groups, self.cp):
            fault = f"cp = {self.cp} and {self.groups} groups of a state: neither divides the other"
            raise InputError("plan", fault, "take another cp")

    def _exchange(self, name: str, width: int) -> tuple[Item, ...]:
        """Return the all-to-all of `width` columns of a rank's tokens under context parallelism."""
        if self.cp == 1:
            return ()
        sharding, size = self.run.sharding, self._bytes(width)
        axes = (*sharding.context, *sharding.exchanged)
        return (Collective(kind="all_to_all", axes=axes, bytes=size, name=name, cause=CONTEXT),)

    def project_in(self) -> Operator:
        """Return the projection to the convolution's channels, a gate, and numbers of each head:
        the step size, or decay and strength."""
        each = _MADE[self.own.rule] * self.heads
        widths: tuple[int, ...] = (self.mixed + self.inner + each,)
        if self.own.rule == "delta":
            widths = (self.mixed + self.inner, each)
        elif self.own.rule == "lightning":
            widths = (self.mixed, self.inner)
        normed = self.run.shape.pre_norm
        return column_linear(self.run, "mixer in", widths, bias=self.own.bias, normed=normed)

    def convolve(self) -> Operator:
        """Return the convolution of each channel over time with SiLU, one kernel that reads x and
        writes y. Backward it reads x and dy, writes dx, and reads x again for the taps' gradient.
        Without taps it is SiLU alone. Under cp the gate and the heads' numbers are exchanged, too.
        """
        size = self._bytes(self.channels)
        ssm = self.own
        name = "convolution" if ssm.taps else "mixer silu"
        sent = self.channels + self.inner + _MADE[ssm.rule] * self.heads
        back = self._convolved(f"{name} grad", (3 + (ssm.taps > 0)) * size)
        return Operator(
            name=name,
            forward=(*self._exchange("mixer inputs", sent), self._convolved(name, 2 * size)),
            input_gradient=(back, *self._exchange("gradients of mixer inputs", sent)),
            inputs=size,
            saved=size,
            transient=2 * size,
            parameters=float(self.mixed * (ssm.taps + (ssm.taps > 0) * ssm.convolution_bias)),
        )

    def steps(self) -> Iterator[Operator]:
        """Yield the operators that make Mamba's step size, B and C of each token from the channels:
        a product to few columns, norms if any, and a product from the step size's columns to all
        channels. Raises `InputError` under tensor parallelism."""
        ssm, run = self.own, self.run
        if ssm.rule != "mamba":
            return
        if run.tp > 1:
            raise InputError("plan", f"tp = {run.tp}: how ranks divide Mamba's steps is not known",
                             "set tp = 1")  # fmt: skip
        few = ssm.rank + 2 * ssm.state
        yield column_linear(run, "mixer steps", (few,), inputs=self.inner)
        if ssm.norms:
            size = self._bytes(few)
            norms = MemoryBound(name="steps norm", bytes=2 * size, launches=3)
            back = MemoryBound(name="steps norm grad", bytes=5 * size, launches=6)
            yield Operator(name="steps norm", forward=(norms,), input_gradient=(back,),
                           inputs=size, saved=size, parameters=float(few))  # fmt: skip
        yield column_linear(run, "mixer step out", (self.inner,), inputs=ssm.rank, bias=True)

    def scan(self) -> Operator:
        """Return the operator that computes all tokens' states and outputs. It keeps only its
        output: mamba-ssm's backward kernels compute the convolution and the states again."""
        made = self._bytes(self.inner)
        forward = self._forward()
        if self.own.rule == "mamba":
            back: tuple[Item, ...] = tuple(
                replace(one, name=f"{one.name} grad", bytes=2.5 * one.bytes, flops=2.5 * one.flops)
                for one in forward
                if isinstance(one, MemoryBound)
            )
        else:
            back = (*self._again(forward), *(grad for item in forward for grad in _gradients(item)))
        each = _TRAINED[self.own.rule]
        channels = self.inner * (self.own.state + 1) if self.own.rule == "mamba" else 0
        return Operator(
            name="scan",
            forward=forward,
            input_gradient=back,
            inputs=self._bytes(self.channels),
            saved=made,
            made=made,
            transient=2 * made,
            parameters=float(each * self.heads + channels),
        )

    def _again(self, forward: tuple[Item, ...]) -> tuple[Item, ...]:
        """Return the convolution and the first two products of chunks, which run again backward."""
        convolved = self._convolved("convolution again", 2 * self._bytes(self.channels))
        return (convolved, *forward[:2])

    def _convolved(self, name: str, moved: float) -> MemoryBound:
        return MemoryBound(name=name, bytes=moved, rate=_CONVOLUTION if self.own.taps else 1.0)

    def _forward(self) -> tuple[Item, ...]:
        run, ssm = self.run, self.own
        if ssm.rule == "mamba":
            moved = self._bytes(4 * self.inner + 2 * ssm.state)  # x, step, gate, y; B and C
            flops = float(_SCAN_FLOPS * run.rows * self.inner * ssm.state)
            return (MemoryBound(name="scan", bytes=moved, flops=flops),)
        long = min(ssm.chunk, run.seq * self.cp)
        chunks = run.microbatch * -(-run.seq * self.cp // long)
        carried = 2.0 * _FP32 * chunks * self.own_heads * ssm.head * ssm.state
        sizes = self._delta(long) if ssm.rule == "delta" else self._mamba2(long)
        products = (
            Gemm(name=name, m=long, n=n, k=k, batch=chunks * often, precision=run.precision)
            for name, n, k, often in sizes
        )
        first, *rest = products
        return (first, *rest, MemoryBound(name="states carried", bytes=carried))

    def _mamba2(self, long: int) -> tuple[tuple[str, int, int, int], ...]:
        """Return the products of a chunk: C B' of each group; B' X, written here with a row for
        each token, which has equal FLOPs; the outputs from the chunk's own tokens; and the outputs
        from the state before the chunk."""
        head, state = self.own.head, self.own.state
        return (
            ("chunk C B", long, state, self.own_groups),
            ("chunk states", head, state, self.own_heads),
            ("chunk outputs", head, long, self.own_heads),
            ("state outputs", head, state, self.own_heads),
        )

    def _delta(self, long: int) -> tuple[tuple[str, int, int, int], ...]:
        """Return the products of a chunk: K K', its inverse times keys and values, the changes of
        values that the state makes, the new states, Q K', its product with the changes, and the
        outputs from the state before the chunk."""
        head, state = self.own.head, self.own.state
        return (
            ("chunk keys", long, state, self.own_heads),
            ("chunk solved", head + state, long, self.own_heads),
            ("chunk changes", head, state, self.own_heads),
            ("chunk states", head, state, self.own_heads),
            ("chunk scores", long, state, self.own_heads),
            ("chunk outputs", head, long, self.own_heads),
            ("state outputs", head, state, self.own_heads),
        )

    def gate(self) -> Operator:
        """Return the output times SiLU of the gate, with a norm if `gated_norm`. The kernel reads
        two tensors and writes one; backward it reads three and writes two. Mamba's scan applies the
        gate itself."""
        size, ssm = self._bytes(self.inner), self.own
        if ssm.rule == "mamba":
            return Operator(name="gate", saved=size, inputs=size)
        gains = (ssm.head if ssm.rule == "delta" else self.inner) * ssm.gated_norm
        sent = self.inner * (1 + ssm.gated_norm)  # A norm needs all heads, so the gate goes, too.
        name = "gated norm" if ssm.gated_norm else "gate"
        back = MemoryBound(name=f"{name} grad", bytes=5 * size, launches=1 + ssm.gated_norm)
        return Operator(
            name=name,
            forward=(
                *self._exchange("mixer outputs", sent),
                MemoryBound(name=name, bytes=3 * size),
            ),
            input_gradient=(back, *self._exchange("gradients of mixer outputs", sent)),
            inputs=2 * size,
            saved=size,
            transient=2 * size,
            parameters=float(gains),
        )

    def project_out(self) -> Operator:
        return row_linear(self.run, "mixer out", self.inner, bias=self.own.bias)

    def _bytes(self, columns: int) -> float:
        """Return the bytes of `columns` columns of a rank's tokens."""
        return float(self.run.rows * columns * self.run.width)


def _gradients(item: Item) -> Iterator[Item]:
    """Yield the gradients of both factors of a product. A memory-bound kernel has a backward kernel
    of equal bytes."""
    if isinstance(item, Gemm):
        yield replace(item, name=f"{item.name} grad", n=item.k, k=item.n)
        yield replace(item, name=f"{item.name} grad", m=item.k, k=item.m)
    elif isinstance(item, MemoryBound):
        yield replace(item, name=f"{item.name} grad")
