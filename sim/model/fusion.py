"""Fused kernels of a software stack, and its accumulation of gradients."""

from typing import Literal

from sim.config.dataclass import dataclass
from sim.model.kernels import Precision

Context = Literal["ring", "gathered-ring", "all-gather", "ulysses"]
# How tokens reach experts: a copy for each expert straight to its rank ("flat"), or one copy for
# each node, which is passed on inside the node, by DeepEP's kernels ("deepep") or others.
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

    Keys of this first group stand for one kernel if true, for the framework's own kernels if false:
    `bias_gelu`, `masked_softmax` (scale, mask, softmax), `bias_dropout_add` (bias, dropout and
    residual sum), `norm` (LayerNorm or RMSNorm), `sum_relu` (a residual sum and the ReLU after it),
    `rotary`, `swiglu`, `cross_entropy`, `router` (scores, top-k and balance of experts), `permute`
    (sorts tokens by experts), `clamp` (a gated activation and its limits), `grouped` (one product
    for a rank's experts). `compiled` is torch.compile. It fuses all of this group except `grouped`,
    and the residual sum with the norm after it, in layers and, with `compiled_ends`, in embedding,
    head and loss. With `epilogues` experts' products on blocks of eight-bit numbers also apply the
    gated activation between them, forward and backward, and cast their results. `expert_bias` says
    which products of experts add their bias; the others need kernels for each expert, after the
    second product in fp32. With `host_counts` the host reads how many tokens each expert gets
    before they are sent. With `router_fp32` gradients of the router's product are computed in fp32.
    `fp32_norms` runs norms in fp32 beside half-precision products. With "copy" a separate kernel
    casts the input of each norm to fp32, and another casts its gradient back (InternEvo). With
    "stream" the residual stream, its sums and its norms are fp32, and each reduction of a norm is a
    separate kernel. This is TensorFlow's automatic mixed precision, whose deny list holds Mean and
    all that follows it up to the next product
    (core/grappler/optimizers/auto_mixed_precision_lists.h); XLA starts a kernel at each reduction.
    `norms` names the library of the fused norms. Norms of TransformerEngine, cuDNN and apex read
    their inputs once, forward and backward, and may cast their result for a linear layer after
    them; torch's own norms reach less of the bandwidth (`sim.model.kernels.TORCH_NORM`).
    `channels_last` names the precisions in which images are NHWC (`sim.model.convolution_kernels`).
    `serial_gains`: LayerNorm sums its gains' gradients in one CTA for every 32 columns, whose 32
    rows of threads go through all rows (torch 1.11 to 2.7,
    aten/src/ATen/native/cuda/layer_norm_kernel.cu, GammaBetaBackwardCUDAKernel; pytorch, pull
    request 148605). `complex_rotary`: rotary embeddings are products of complex numbers, which
    nothing fuses. `composed_gelu`: families whose GELU is a tanh of single operations.
    `packed_projections`: Q, K, V (and gate, up) are one GEMM. `query_copies`: queries that share a
    key with others are copied out of that GEMM's result, and keys are copied in front of a norm.
    `bias_in_gemm`: the GEMM's epilogue adds the bias. `logits_fp32`: the loss is computed on an
    fp32 copy of the logits. `vocab_parallel`: Megatron's cross-entropy, which normalises in place,
    also with tp = 1. `shifted_logits`: logits are copied to shift them against their labels, and
    their gradient is copied into zeros (transformers' causal models, `lm_logits[..., :-1,
    :].contiguous()`). `added_mask`: a padding mask is added to unfused scores, and torch.where
    applies the causal mask (transformers, modeling_gpt2.py, `_attn`). `metrics` are computed on the
    logits of every micro-step (`sim.model.blocks.head`). `overlap_tensor`: backward's
    tensor-parallel collectives run beside the weight gradients. `wide_joins`: torch.cat loads
    several 16-bit elements at once and computes no address for each (torch 2.8 on: pytorch, pull
    request 150233; for 32 bits since 2.1). `redistributes`: sequence parallelism is DTensor's
    (`model.tensor_parallel`). `split_gather`: the product after an all-gather is two products, of
    the rank's own rows beside the gather and of the other rows after it. `user_buffers`: products
    run piece by piece beside the gather in front of them or the scatter after them, which copy
    engines or a few SMs move (TransformerEngine, with sequence parallelism). `layout_copies`: Q, K
    and V are copied into the order that fused attention wants, and sequence lengths are counted
    from a mask. `repeated_keys`: keys and values are copied to as many heads as queries have before
    attention. `reserved_sms` SMs are set aside for the communication of experts, which then slows
    the kernels beside it no further. `gradients` says how weight gradients accumulate over
    micro-steps. "grad" is torch's `.grad`, zeroed between steps. With "fresh" `.grad` is dropped
    between steps (`zero_grad(set_to_none=True)`) and becomes the first micro-step's gradients.
    "buffer" has the weights' precision and "fp32-buffer" is fp32; a kernel per parameter adds to
    both. "clipped" gradients are clipped in each micro-step and added in fp32. With "fused" the
    GEMM itself adds into an fp32 buffer, with "fused-buffer" into a buffer of the weights'
    precision.
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
