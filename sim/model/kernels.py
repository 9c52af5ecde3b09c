"""What a device is asked to execute: kernels, and the collectives that stand between them.

Pure descriptions: `sim.hardware` says how long a kernel takes on a device, `sim.collectives`
what a collective asks of the network.
"""

from dataclasses import dataclass
from typing import Literal

from sim.config.units import Bytes, Seconds
from sim.program import Collective

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]

BYTES: dict[str, int] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """`batch` products of an (m, k) by a (k, n) matrix.

    `accumulate` marks a weight gradient that is added into an fp32 buffer.
    """

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    precision: Precision = "bf16"
    accumulate: bool = False

    @property
    def launches(self) -> int:
        return 1

    @property
    def flops(self) -> float:
        """2 m n k FLOPs for each product: a multiplication and an addition."""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Each operand read once, the result written once (read too, when accumulating)."""
        width = BYTES[self.precision]
        result = self.m * self.n * (8 if self.accumulate else width)
        return float(self.batch * ((self.m * self.k + self.k * self.n) * width + result))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """A fused (flash) attention kernel: softmax(Q K') V without storing the scores.

    `flops` counts the multiplications that the kernel performs: half of them when causal.
    Backward performs 2.5 times the forward's (Dao 2023, section 4.1).
    """

    name: str
    batch: int
    heads: int
    kv_heads: int
    q: int
    kv: int
    head: int
    causal: bool
    backward: bool = False
    precision: Precision = "bf16"

    @property
    def launches(self) -> int:
        """Backward is three kernels: row sums of dO O, the products, the conversion of dQ.

        Source: flash-attention, csrc/flash_attn/src/flash_bwd_launch_template.h.
        """
        return 3 if self.backward else 1

    @property
    def flops(self) -> float:
        full = 4.0 * self.batch * self.heads * self.q * self.kv * self.head
        return full * (0.5 if self.causal else 1.0) * (2.5 if self.backward else 1.0)

    @property
    def bytes(self) -> float:
        """Q, K, V and the output once; twice that again in the backward pass."""
        rows = self.batch * self.head * (2 * self.heads * self.q + 2 * self.kv_heads * self.kv)
        return float(rows * BYTES[self.precision] * (2 if self.backward else 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBound:
    """A memory-bound kernel (normalisation, activation, dropout, softmax, optimizer ...).

    `bytes` is what it reads plus what it writes; `launches` how many kernels do it when the
    software stack does not fuse them. `randoms` are the pseudo-random numbers that it draws.
    """

    name: str
    bytes: float
    launches: int = 1
    flops: float = 0.0
    randoms: float = 0.0


Kernel = Gemm | Attention | MemoryBound


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A collective issued just before `kernels`, running beside them; both end before what follows.

    Megatron-LM's linear layers hide backward's communication so (Korthikanti et al. 2022,
    section 4.2.2), ring attention its keys and values.
    """

    collective: Collective
    kernels: tuple[Kernel, ...]


Item = Kernel | Collective | Overlap


Gradients = Literal["grad", "fresh", "buffer", "fp32-buffer", "fused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """What a software stack executes as one kernel, and what it leaves to run beside others.

    Each of the first group is one kernel where true and the framework's own sequence where false:
    `bias_gelu`, `masked_softmax` (scale, mask, softmax), `bias_dropout_add` (bias, dropout and
    residual sum), `norm` (LayerNorm or RMSNorm), `rotary`, `swiglu`, `cross_entropy`;
    `compiled` is torch.compile: all of them, and the sum with the norm behind it.
    `packed_projections`: Q, K, V (and gate, up) are one GEMM. `bias_in_gemm`: the GEMM's epilogue
    adds the bias. `logits_fp32`: the loss is computed on an fp32 copy of the logits.
    `vocab_parallel`: Megatron's cross-entropy, which normalises in place, also with tp = 1.
    `overlap_tensor`: backward's tensor-parallel collectives run beside the weight gradients.
    `split_gather`: the product behind an all-gather is issued in two, the rank's own rows beside
    the gather, the others' behind it. `layout_copies`: Q, K and V are copied into the order that
    the fused attention kernel wants, and sequence lengths counted from a mask.
    `gradients` says how weight gradients accumulate over micro-steps: in torch's own `.grad`, which
    is zeroed between steps or left out (`fresh`: `zero_grad(set_to_none=True)`, so that the first
    micro-step's gradients become it), in a `buffer` of the weights' precision, in an `fp32-buffer`
    (both by a kernel per parameter), or `fused` into the GEMM, which adds into an fp32 buffer.
    """

    bias_gelu: bool = False
    masked_softmax: bool = False
    bias_dropout_add: bool = False
    norm: bool = False
    rotary: bool = False
    swiglu: bool = False
    cross_entropy: bool = False
    compiled: bool = False
    packed_projections: bool = True
    bias_in_gemm: bool = False
    logits_fp32: bool = True
    vocab_parallel: bool = True
    overlap_tensor: bool = False
    split_gather: bool = False
    layout_copies: bool = False
    gradients: Gradients = "grad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """What a software stack allocates beside the tensors that autograd keeps.

    `half_gradients`: gradients of the weights' precision stay beside their fp32 buffer, for good
    under data parallelism (torch DDP's buckets), else until the backward pass has ended.
    `gather_buffers`: persistent buffers of one layer input each, into which tensor-parallel ranks
    gather. `gather_copies`: ZeRO-1 gathers the updated weights through flat copies.
    `keeps_outputs`: a stage's output lives until its backward pass.
    `run_ahead`: kernel launches that the host can be ahead of the device (CUDA's queue holds
    1024); tensors that a communication stream reads are freed when the device is there (torch
    `record_stream`), so those of all collectives in the queue are alive at once; 0 where
    communication does not record streams. `lazy_state`: the optimizer's moments are created in
    its first step, in blocks that activations left, which must be reserved anew in the second.
    `workspace`: bytes of cuBLAS, for the thread of each direction (torch: 32 MiB on Hopper).
    `retry`: seconds that each micro-step loses to freeing cached blocks and asking the driver
    again, where tensors take more than a share of `pressure` of the memory that they can have.
    """

    half_gradients: bool = False
    gather_buffers: int = 0
    gather_copies: bool = False
    keeps_outputs: bool = False
    run_ahead: int = 0
    lazy_state: bool = True
    workspace: Bytes = 2 * 32 * 2.0**20
    retry: Seconds = 0.0
    pressure: float = 0.93


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWork:
    """What one layer (or the embedding, or the head) does on one rank for one microbatch.

    `recompute` runs before `backward`, on the same rank. `saved` are the bytes kept from forward
    to backward; `transient` the largest extra bytes alive while the layer runs forward or
    backward; `parameters` what this rank holds of the layer's weights (a count).
    """

    forward: tuple[Item, ...] = ()
    backward: tuple[Item, ...] = ()
    recompute: tuple[Item, ...] = ()
    saved: float = 0.0
    transient: float = 0.0
    parameters: float = 0.0
