"""Fused kernels of a software stack, and its accumulation of gradients."""

from typing import Literal

from sim.config.dataclass import dataclass
from sim.model.kernels import Precision

Context = Literal["ring", "gathered-ring", "all-gather", "ulysses"]
# How tokens reach experts: a copy for each straight to its rank, or one for each node, passed on
# there, as by DeepEP's kernels.
Dispatcher = Literal["flat", "hierarchical", "deepep"]
Layout = Literal["nchw", "nhwc"]  # of images
Metric = Literal["cross-entropy", "accuracy", "loss"]
Norms = Literal["transformer-engine", "cudnn", "apex-fast", "torch", "other"]
Gradients = Literal[
    "grad", "fresh", "clipped", "buffer", "fp32-buffer", "fused", "fused-buffer"
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """The kernels that a software stack fuses, and the kernels that it runs beside others.

    Each of the first group is one kernel where true and the framework's own sequence where false:
    `bias_gelu`, `masked_softmax` (scale, mask, softmax), `bias_dropout_add` (bias, dropout and
    residual sum), `norm` (LayerNorm or RMSNorm), `sum_relu` (a residual sum and the ReLU
    behind it), `rotary`, `swiglu`, `cross_entropy`, `router`
    (scores, top-k and balance of experts), `permute` (tokens into the order of experts), `clamp`
    (the limits of a gated activation, with it), `grouped` (a product of all experts of a rank);
    `compiled` is torch.compile: all of them but that product,
    and the sum with the norm behind it, in layers and, where `compiled_ends`, in embedding, head
    and loss.
    With `epilogues` products of experts in blocks of eight bits apply the gated activation between
    them, back and forth, and cast what they make. `expert_bias`: which of them add their bias;
    those of others have kernels for each expert, behind the second in fp32. With `host_counts` the
    host reads how many tokens each expert gets before they are sent; with `router_fp32` gradients
    of the router's product are computed in fp32.
    `fp32_norms` beside half-precision products: each norm reads a "copy" of its input in fp32, cast
    by a kernel of its own as the gradient is back (InternEvo), or the residual "stream" and all
    sums and norms on it are fp32, and each reduction of a norm is a kernel of its own (TensorFlow's
    automatic mixed precision, whose deny list has Mean and what follows up to the next product:
    core/grappler/optimizers/auto_mixed_precision_lists.h; XLA starts a kernel at each reduction).
    `norms` are whose kernels fused norms are: those named go through what they read once, back and
    forth, and in front of linear layers may cast what they make; torch's own reach less of the
    bandwidth than others (`sim.model.kernels.TORCH_NORM`).
    `channels_last` names the precisions in which images are NHWC (`sim.model.convolution_kernels`).
    `serial_gains`: LayerNorm's gains are summed by one CTA for every 32 columns, whose 32 rows of
    threads go through all rows (torch 1.11 to 2.7, aten/src/ATen/native/cuda/layer_norm_kernel.cu,
    GammaBetaBackwardCUDAKernel; pytorch, pull request 148605).
    `complex_rotary`: rotary embeddings are products of complex numbers, fused with nothing.
    `composed_gelu`: the families whose GELU is its tanh form in single operations.
    `packed_projections`: Q, K, V (and gate, up) are one GEMM; with `query_copies` queries of which
    several share a key are copied out of what it makes, and keys in front of their norm.
    `bias_in_gemm`: the GEMM's epilogue adds the bias. `logits_fp32`: the loss is computed on an
    fp32 copy of the logits.
    `vocab_parallel`: Megatron's cross-entropy, which normalises in place, also with tp = 1.
    `shifted_logits`: logits are copied to be shifted against their labels, and their gradient into
    zeros (transformers' causal models, `lm_logits[..., :-1, :].contiguous()`). `added_mask`: a
    padding mask is added to unfused scores, and torch.where chooses the causal ones (transformers,
    modeling_gpt2.py, `_attn`). `metrics` are computed on the logits of every micro-step
    (`sim.model.blocks.head`).
    `overlap_tensor`: backward's tensor-parallel collectives run beside the weight gradients.
    `wide_joins`: torch.cat loads several elements of 16 bits at once (torch 2.8 on: pytorch, pull
    request 150233; of 32 bits since 2.1), and computes no place of each.
    `redistributes`: sequence parallelism is DTensor's (`model.tensor_parallel`). `split_gather`:
    the product behind an all-gather is issued in two, the rank's own rows beside the gather, the
    others' behind it. `user_buffers`: products run piece by piece beside the gather in front of
    them or the scatter behind, which copy engines or a few SMs move (TransformerEngine, with
    sequence parallelism). `layout_copies`: Q, K and V are copied into the order that the fused
    attention kernel wants, and sequence lengths counted from a mask. `repeated_keys`: keys and
    values are copied to as many heads as queries have before attention. `reserved_sms` are set
    aside for the communication of experts, which then costs the kernels beside it nothing more.
    `gradients` says how weight gradients accumulate over micro-steps: in torch's own `.grad`, which
    is zeroed between steps or left out (`fresh`: `zero_grad(set_to_none=True)`, so that the first
    micro-step's gradients become it), in a `buffer` of the weights' precision, in an `fp32-buffer`
    (both by a kernel per parameter), in fp32 once they are `clipped` micro-step by micro-step, or
    `fused` into the GEMM, which adds into an fp32 buffer, or into one of the weights' precision
    (`fused-buffer`).
    """

    bias_gelu: bool = False
    masked_softmax: bool = False
    bias_dropout_add: bool = False
    norm: bool = False
    sum_relu: bool = False
    channels_last: tuple[Precision, ...] = ("fp16", "bf16")
    norms: Norms = "other"
    rotary: bool = False
    complex_rotary: bool = False
    swiglu: bool = False
    cross_entropy: bool = False
    router: bool = False
    permute: bool = False
    clamp: bool = False
    grouped: bool = False
    epilogues: bool = False
    expert_bias: Literal["both", "first", "none"] = "both"
    host_counts: bool = False
    router_fp32: bool = False
    compiled: bool = False
    compiled_ends: bool = True
    composed_gelu: tuple[str, ...] = ()
    fp32_norms: Literal["", "copy", "stream"] = ""
    serial_gains: bool = False
    packed_projections: bool = True
    query_copies: bool = False
    bias_in_gemm: bool = False
    logits_fp32: bool = True
    logits_cast: bool = False
    vocab_parallel: bool = True
    shifted_logits: bool = False
    added_mask: bool = False
    metrics: tuple[Metric, ...] = ()
    overlap_tensor: bool = False
    wide_joins: bool = False
    redistributes: bool = False
    split_gather: bool = False
    user_buffers: bool = False
    layout_copies: bool = False
    repeated_keys: bool = False
    reserved_sms: int = 0
    gradients: Gradients = "grad"

    @property
    def adds_in_gemm(self) -> bool:
        """Whether the products of weight gradients add to the sum of earlier micro-steps."""
        return self.gradients.startswith("fused")
