"""The work of a device: kernels, and the collectives that stand between them.

This module only describes kernels. `sim.hardware` says how long a kernel takes on a device, and
`sim.collectives` what a collective asks of the network.
"""

from typing import ClassVar, Literal

from sim.config.dataclass import dataclass
from sim.program.operations import Collective

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
OperatorClass = Literal["product", "low_product", "attention", "other"]
"""Classes of kernels for which the host takes different times; operands of low products have eight
or four bits."""

BYTES: dict[str, float] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp4": 0.5}


def weight_width(precision: Precision) -> int:
    """Return the bytes of a working weight; products in eight or four bits have bf16 weights."""
    return int(max(2, BYTES[precision]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """`batch` products of an (m, k) by a (k, n) matrix, launched as one kernel or as several
    `kernels` that run side by side. `accumulate` marks a weight gradient that is added into a
    buffer of `accumulator` bytes per element. `rate` is the share of its precision's usual rate
    that the kernel reaches. A kernel that `pads` aligns its operands to tensor cores itself. At
    most `splits` CTAs share the sum over k."""

    family: ClassVar[str] = "gemm"
    pads: ClassVar[bool] = False
    splits: ClassVar[int] = 8

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    precision: Precision = "bf16"
    accumulate: bool = False
    accumulator: int = 4
    kernels: int = 1
    rate: float = 1.0

    @property
    def operator(self) -> OperatorClass:
        """The class by which the host's seconds for this kernel differ."""
        return "product" if BYTES[self.precision] >= 2 else "low_product"

    @property
    def copied(self) -> float:
        """Bytes that copies of operands and result into other layouts move."""
        return 0.0

    @property
    def gathered(self) -> float:
        """The share of the FLOPs whose operands do not lie along k in memory."""
        return 0.0

    @property
    def parts(self) -> "tuple[tuple[Kernel, int], ...]":
        """The kernels that it consists of, in order, and how often each runs; empty for a single
        product."""
        return ()

    @property
    def speed(self) -> float:
        """The product's `rate`; above 1 for an algorithm with fewer multiplications."""
        return self.rate

    @property
    def launches(self) -> int:
        return self.kernels

    @property
    def flops(self) -> float:
        """2 m n k FLOPs for each product: a multiplication and an addition."""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Bytes of each operand and of the result, moved once."""
        operands = self.batch * (self.m * self.k + self.k * self.n)
        return float(operands * BYTES[self.precision] + self.result_bytes)

    @property
    def result_bytes(self) -> float:
        """Bytes of the result. It has at least two bytes per element, even if operands have fewer;
        an accumulating product reads and writes its buffer."""
        width = 2 * self.accumulator if self.accumulate else max(2, BYTES[self.precision])
        return float(self.batch * self.m * self.n * width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """A fused (flash) attention kernel: softmax(Q K') V without storing the scores.

    `head` is the width of a head of Q and K, `value_head` the width for V and the output (0:
    `head`). With a `window` a query sees at most that many keys, its own included (0: all keys). A
    causal window ends at the query's own key; otherwise the query's own key is in its middle.
    `flops` counts the products of queries with the keys that they see: forward S = Q K' and P V
    with P = softmax(S), backward Q K' again, dP = dO V', dV = P' dO, dQ = dS K, dK = dS' Q (Dao
    2023, section 2.3). If all heads are equally wide, backward has 2.5 times the forward FLOPs.
    """

    family: ClassVar[str] = "attention"
    operator: ClassVar[OperatorClass] = "attention"

    name: str
    batch: int
    heads: int
    kv_heads: int
    q: int
    kv: int
    head: int
    causal: bool
    value_head: int = 0
    window: int = 0
    backward: bool = False
    precision: Precision = "bf16"

    @property
    def launches(self) -> int:
        """The backward pass has three kernels: row sums of dO O, the products, the cast of dQ.

        Source: flash-attention, csrc/flash_attn/src/flash_bwd_launch_template.h.
        """
        return 3 if self.backward else 1

    @property
    def values(self) -> int:
        """Width of a head of V."""
        return self.value_head or self.head

    @property
    def span(self) -> int:
        """Keys that a query sees at most."""
        return min(self.window or self.kv, self.kv)

    @property
    def width(self) -> int:
        """FLOPs for each pair of a query and a key that the query sees."""
        if self.backward:
            return 6 * self.head + 4 * self.values
        return 2 * self.head + 2 * self.values

    def keys(self, span: int) -> float:
        """Return the number of keys that a query sees on average if it sees `span` at most. Under a
        causal mask the seen keys are a triangle over the first `span` keys and a band after them.
        Without a window they are half of all keys. A window on both sides loses half a triangle at
        either end."""
        if self.causal:
            return span - span * span / (2 * self.kv)
        ends = span * span / (4 * self.kv) if self.q == self.kv > span else 0.0
        return span - ends

    @property
    def flops(self) -> float:
        return self.queries * self.keys(self.span) * self.width

    @property
    def full_flops(self) -> float:
        """FLOPs as publications count them: a causal mask is ignored, and a window counts only its
        own keys."""
        return float(self.queries * self.span * self.width)

    @property
    def queries(self) -> int:
        """Number of queries, in all heads and sequences together."""
        return self.batch * self.heads * self.q

    @property
    def bytes(self) -> float:
        """Bytes of Q, K, V and the output, moved once forward and twice backward."""
        elements = (self.head + self.values) * (self.heads * self.q + self.kv_heads * self.kv)
        return float(self.batch * elements * BYTES[self.precision] * (2 if self.backward else 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBound:
    """A memory-bound kernel (normalisation, activation, dropout, softmax, optimizer ...).

    `bytes` are the bytes that it reads and writes, `launches` the number of its kernels. `randoms`
    is the number of pseudo-random numbers that it draws. `strided` is the number of elements whose
    addresses it computes one by one. Torch's element-wise kernels do so for views with gaps and for
    broadcast operands (ATen, native/cuda/CUDALoops.cuh, gpu_kernel_impl_nocast: elementwise_kernel
    with an offset calculator, nothing vectorised). `turns` is how often a thread waits for memory,
    if the threads are too few to hide the wait. The kernel runs on at most `ctas` SMs (0: all).
    With `one_wave` its grid has a CTA for each SM. `rate` is the share of element-wise kernels'
    bandwidth that it reaches.
    """

    family: ClassVar[str] = "stream"
    operator: ClassVar[OperatorClass] = "other"

    name: str
    bytes: float
    launches: int = 1
    flops: float = 0.0
    randoms: float = 0.0
    strided: float = 0.0
    turns: float = 0.0
    ctas: int = 0
    one_wave: bool = False
    rate: float = 1.0


# Cost of the address that torch.cat computes for each 16-bit element that it writes, relative to an
# address in element-wise kernels: 57 operations where all inputs are contiguous, 71 and 75 where
# not (H100, traces/tracelens).
JOINED = 1.4

# Share of element-wise kernels' bandwidth for torch's own LayerNorm and RMSNorm, forward and back.
# Forward: 0.65 on A100 (kernels/estimate_train_time, layernorm, fp16), 0.67 on V100, 0.68 to 0.74
# on A100 in fp32 (neusight_test_ln), 0.5 on H100 with rows of 768 (traces/tracelens, TimeSformer).
# Back: on the same A100, if a kernel moves ten bytes for each 16-bit element.
TORCH_NORM = (0.62, 0.52)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(MemoryBound):
    """Kernels that were timed together on the device that runs them, launches included. Their
    `seconds` are measured, so no model of the device times them."""

    family: ClassVar[str] = "timed"

    bytes: float = 0.0
    launches: int = 0
    seconds: float


Kernel = Gemm | Attention | MemoryBound

ONE_WAVE = "one wave"  # the class of memory-bound kernels of one wave (`loss_class`)


def loss_class(kernel: Kernel) -> str:
    """Return a kernel's class; collectives slow down all kernels of a class by the same share."""
    alone = isinstance(kernel, MemoryBound) and kernel.one_wave
    return ONE_WAVE if alone else kernel.family


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A collective that is issued just before `kernels` and runs beside them. The next item begins
    when both have ended. In this way Megatron-LM's linear layers hide the communication of the
    backward pass (Korthikanti et al. 2022, section 4.2.2), and ring attention hides the exchange of
    keys and values."""

    collective: Collective
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The wait for the fullest rank of a group. It lasts as long as the `fullest` rank's kernels
    take beyond this rank's `own` kernels. The row of items also holds the `own` kernels."""

    own: tuple[Kernel, ...]
    fullest: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark between kernels. At a "read" the host waits for a result of the device before it
    launches more. Between "graph" and "graph end" all kernels and collectives are one CUDA graph
    and are launched together."""

    what: Literal["read", "graph", "graph end"]


READ, GRAPH, GRAPH_END = Mark("read"), Mark("graph"), Mark("graph end")

Item = Kernel | Collective | Overlap | Lag | Mark
