"""The work of a device: kernels, and the collectives that stand between them.

Pure descriptions: `sim.hardware` says how long a kernel takes on a device, `sim.collectives`
what a collective asks of the network.
"""

from typing import ClassVar, Literal

from sim.config.dataclass import dataclass
from sim.program.operations import Collective

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
OperatorClass = Literal["product", "low_product", "attention", "other"]
"""What the host's seconds depend on; operands of low products have eight or four bits."""

BYTES: dict[str, float] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp4": 0.5}


def weight_width(precision: Precision) -> int:
    """Bytes of a working weight; products of narrower operands have bf16 weights."""
    return int(max(2, BYTES[precision]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """`batch` products of an (m, k) by a (k, n) matrix, launched as one or as several `kernels`,
    which then run side by side.

    `accumulate` marks a weight gradient that is added into a buffer, whose elements have as many
    bytes as `accumulator` says. `rate` is the share of the usual rate of its precision that its
    kernel reaches. One that `pads` brings its operands to the alignment of tensor cores itself. At
    most `splits` CTAs share its k.
    """

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
        """Its class for the host."""
        return "product" if BYTES[self.precision] >= 2 else "low_product"

    @property
    def copied(self) -> float:
        """Bytes that move around it to bring operands and result into other layouts."""
        return 0.0

    @property
    def gathered(self) -> float:
        """The share of its FLOPs whose operands do not lie in memory along k."""
        return 0.0

    @property
    def parts(self) -> "tuple[tuple[Kernel, int], ...]":
        """The kernels that it is, one after the other, and how often each runs; empty where it is
        one product."""
        return ()

    @property
    def speed(self) -> float:
        """Its `rate`, and that of an algorithm that multiplies less."""
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
        """Each operand and the result once."""
        operands = self.batch * (self.m * self.k + self.k * self.n)
        return float(operands * BYTES[self.precision] + self.result_bytes)

    @property
    def result_bytes(self) -> float:
        """The result written, in half precision also where operands are smaller; an accumulating
        product reads and writes its buffer."""
        width = 2 * self.accumulator if self.accumulate else max(2, BYTES[self.precision])
        return float(self.batch * self.m * self.n * width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """A fused (flash) attention kernel: softmax(Q K') V without storing the scores.

    `head` is the width of a head of Q and K, `value_head` that of V and of the output (0: as wide);
    with a `window` a query sees that many keys at most, itself included (0: all): those up to it,
    or half of the others on either side where it is not `causal`. `flops` counts
    the products of queries with the keys that they see: forward Q K' and P V, backward Q K' again,
    dP = dO V', dV = P' dO, dQ = dS K, dK = dS' Q (Dao 2023, section 2.3), thus 2.5 times as many
    where all heads are equally wide.
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
        """Backward is three kernels: row sums of dO O, the products, the conversion of dQ.

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
        """Multiplications and additions for each query and key that it sees."""
        if self.backward:
            return 6 * self.head + 4 * self.values
        return 2 * self.head + 2 * self.values

    def keys(self, span: int) -> float:
        """Keys that a query sees on average when it sees `span` at most.

        Causal: the triangle in front of the first `span` keys and the band behind it, which is half
        of the keys without a window. A window on both sides loses half as much at either end.
        """
        if self.causal:
            return span - span * span / (2 * self.kv)
        ends = span * span / (4 * self.kv) if self.q == self.kv > span else 0.0
        return span - ends

    @property
    def flops(self) -> float:
        return self.queries * self.keys(self.span) * self.width

    @property
    def full_flops(self) -> float:
        """FLOPs as publications count them: a causal mask halves nothing; of a window, its keys
        count."""
        return float(self.queries * self.span * self.width)

    @property
    def queries(self) -> int:
        """Queries, of all heads and sequences."""
        return self.batch * self.heads * self.q

    @property
    def bytes(self) -> float:
        """Q, K, V and the output once; twice that again in the backward pass."""
        elements = (self.head + self.values) * (self.heads * self.q + self.kv_heads * self.kv)
        return float(self.batch * elements * BYTES[self.precision] * (2 if self.backward else 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBound:
    """A memory-bound kernel (normalisation, activation, dropout, softmax, optimizer ...).

    `bytes` is what it reads plus what it writes; `launches` how many kernels do it when the
    software stack does not fuse them. `randoms` are the pseudo-random numbers that it draws,
    `strided` the elements whose places it computes one by one, as torch's element-wise kernels do
    for views with gaps and for what is broadcast (ATen, native/cuda/CUDALoops.cuh,
    gpu_kernel_impl_nocast: elementwise_kernel with an offset calculator, nothing vectorised),
    `turns` how often a thread waits for memory, where there are too few threads to hide that,
    `ctas` on how many SMs it can run at most (0: all), `one_wave` whether its grid has a CTA for
    each SM. `rate` is the share of the bandwidth of element-wise kernels that it reaches.
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


# Places that torch.cat computes for each element that it writes in 16 bits, in those of
# element-wise kernels: 57 operations where all inputs are contiguous, 71 and 75 where not (H100,
# traces/tracelens).
JOINED = 1.4

# What torch's own LayerNorm and RMSNorm reach of element-wise kernels' bandwidth, forward and back.
# Forward: 0.65 on A100 (kernels/estimate_train_time, layernorm, fp16), 0.67 on V100, 0.68 to 0.74
# on A100 in fp32 (neusight_test_ln), 0.5 on H100 with rows of 768 (traces/tracelens, TimeSformer).
# Back: the same A100, ten bytes an element in 16 bits.
TORCH_NORM = (0.62, 0.52)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(MemoryBound):
    """Kernels that were timed together on the device that runs them, launches included: nothing of
    them is left to a model."""

    family: ClassVar[str] = "timed"

    bytes: float = 0.0
    launches: int = 0
    seconds: float


Kernel = Gemm | Attention | MemoryBound

ONE_WAVE = "one wave"  # memory-bound kernels of one wave, among classes of kernels that lose alike


def loss_class(kernel: Kernel) -> str:
    """The class of kernels that lose as much of their pace to what runs beside them."""
    alone = isinstance(kernel, MemoryBound) and kernel.one_wave
    return ONE_WAVE if alone else kernel.family


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A collective issued just before `kernels`, running beside them; both end before what follows.

    Megatron-LM's linear layers hide backward's communication so (Korthikanti et al. 2022,
    section 4.2.2), ring attention its keys and values.
    """

    collective: Collective
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Waiting for the rank of a group that has most to do: as long as its kernels take longer than
    this rank's `own`, which stand beside it."""

    own: tuple[Kernel, ...]
    fullest: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """What stands between kernels and is none: where the host reads what the device has computed
    and launches nothing before it knows; where a CUDA graph begins, and where it ends, whose
    kernels and collectives are launched together."""

    what: Literal["read", "graph", "graph end"]


READ, GRAPH, GRAPH_END = Mark("read"), Mark("graph"), Mark("graph end")

Item = Kernel | Collective | Overlap | Lag | Mark
