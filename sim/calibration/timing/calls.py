"""The torch call of each kernel that a calibration times.

A call takes one of several sets of random inputs, so that operands come from memory as they do in
training, and leaves its results to the allocator. torch is imported by whoever builds a call.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from sim.calibration.timing import composed
from sim.config.errors import InputError
from sim.hardware.kernels.measurements import variant
from sim.model.kernels import BYTES, Attention, Gemm, Kernel, MemoryBound

Call = Callable[[], Any]
Make = Callable[[Callable[..., Any]], Call]

WIDTH = 1024  # columns of the tensors that memory-bound kernels work on
CLASSES = 8192  # of the cross-entropy
_DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def call(kernel: Kernel, device: str) -> Call:
    """One execution of a kernel on inputs of its own. Raises `InputError` for one unknown."""
    if isinstance(kernel, Gemm):
        return _gemm(kernel, device)
    if isinstance(kernel, Attention):
        return _attention(kernel, device)
    return _stream(kernel, device)


def _random(device: str, precision: str) -> Callable[..., Any]:
    """Tensors of normal numbers; zeros would draw less power than training does."""
    import torch

    dtype = getattr(torch, _DTYPES[precision])
    return lambda *shape: torch.randn(*shape, device=device, dtype=dtype)


def _gemm(gemm: Gemm, device: str) -> Call:
    """y = x W' with W (n, k) as `nn.Linear` keeps it, or one of the products of its backward."""
    import torch

    if gemm.precision == "fp8":
        return _scaled(gemm, device)
    random, (m, n, k, batch) = _random(device, gemm.precision), (gemm.m, gemm.n, gemm.k, gemm.batch)
    if batch > 1:
        a, b = random(batch, m, k), random(batch, n, k).transpose(1, 2)
        return lambda: torch.bmm(a, b)
    match variant(gemm):
        case "dgrad":
            left, right = random(m, k), random(k, n)
        case "wgrad":  # (inputs, outputs) of the description; torch computes its transpose
            left, right = random(k, n).t(), random(k, m)
        case _:
            left, right = random(m, k), random(n, k).t()
    return lambda: torch.mm(left, right)


def _scaled(gemm: Gemm, device: str) -> Call:
    import torch

    kind: Any = torch.float8_e4m3fn
    left = torch.randn(gemm.m, gemm.k, device=device).to(kind)
    right = torch.randn(gemm.n, gemm.k, device=device).to(kind).t()
    one = torch.ones((), device=device)
    return lambda: torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def _attention(kernel: Attention, device: str) -> Call:
    """torch's scaled_dot_product_attention by the backend that the kernel's name stands for;
    backward alone where the kernel says so."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    random, grouped = _random(device, kernel.precision), kernel.kv_heads < kernel.heads
    q = random(kernel.batch, kernel.heads, kernel.q, kernel.head)
    k = random(kernel.batch, kernel.kv_heads, kernel.kv, kernel.head)
    v = random(kernel.batch, kernel.kv_heads, kernel.kv, kernel.head)
    for one in (q, k, v):
        one.requires_grad_(kernel.backward)
    options: Any = {"is_causal": kernel.causal, "enable_gqa": grouped}
    backend = _backend(kernel.name)

    def forward() -> Any:
        with backend():
            return attend(q, k, v, **options)

    if not kernel.backward:
        return forward
    out = forward()
    grad = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)


# torch's backends by the generations of fused attention that devices and stacks name.
BACKENDS = {
    "flash2": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "memory-efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}


def _backend(generation: str) -> Callable[[], Any]:
    """What makes torch take that backend and no other; nothing for one that is no backend."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    name = BACKENDS.get(generation)
    return nullcontext if name is None else lambda: sdpa_kernel(getattr(SDPBackend, name))


def _stream(kernel: MemoryBound, device: str) -> Call:
    if kernel.name not in STREAMS:
        raise InputError("calibration", f"no torch call for {kernel.name!r}", "leave it out")
    kind = STREAMS[kernel.name]
    rows = round(kernel.bytes / kind.row(device))
    return kind.make(rows, _random(device, kind.precision(device)))


def stream(name: str, size: float, device: str) -> MemoryBound:
    """The memory-bound kernel of a kind that moves about so many bytes."""
    row = STREAMS[name].row(device)
    return MemoryBound(name=name, bytes=max(1, round(size / row)) * row)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of memory-bound kernel: passes over its tensor of rows x `WIDTH`, as `sim.model`
    counts them, and how torch executes it. `state` is in fp32 also where activations are not."""

    passes: float
    make: Callable[[int, Callable[..., Any]], Call]
    state: bool = False

    def precision(self, device: str) -> str:
        return "bf16" if device == "cuda" and not self.state else "fp32"

    def row(self, device: str) -> float:
        """Bytes that a row of the tensor counts for."""
        return self.passes * WIDTH * BYTES[self.precision(device)]


def _of_width(
    made: Callable[[int, int, Callable[..., Any]], Call],
) -> Callable[[int, Callable[..., Any]], Call]:
    """A call of `sim.calibration.timing.composed` on tensors of `WIDTH` columns."""
    return lambda rows, random: made(rows, WIDTH, random)


def _forward(function: str, **options: Any) -> Callable[[int, Callable[..., Any]], Call]:
    """A function of torch.nn.functional of one tensor."""

    def make(rows: int, random: Callable[..., Any]) -> Call:
        import torch.nn.functional as functional

        x, work = random(rows, WIDTH), getattr(functional, function)
        return lambda: work(x, **options)

    return make


def _backward(function: Callable[[Any], Any]) -> Callable[[int, Callable[..., Any]], Call]:
    """The backward pass of a function of one tensor."""

    def make(rows: int, random: Callable[..., Any]) -> Call:
        import torch

        x = random(rows, WIDTH).requires_grad_()
        out = function(x)
        grad = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, x, grad, retain_graph=True)

    return make


def _gelu(x: Any) -> Any:
    from torch.nn.functional import gelu

    return gelu(x, approximate="tanh")


def _add(rows: int, random: Callable[..., Any]) -> Call:
    x, y = random(rows, WIDTH), random(rows, WIDTH)
    return lambda: x + y


def _accumulate(rows: int, random: Callable[..., Any]) -> Call:
    x, y = random(rows, WIDTH), random(rows, WIDTH)
    return lambda: x.add_(y)


def _bias(rows: int, random: Callable[..., Any]) -> Call:
    out, bias = random(rows, WIDTH), random(WIDTH)
    return lambda: out.add_(bias)


def _bias_gradient(rows: int, random: Callable[..., Any]) -> Call:
    grad = random(rows, WIDTH)
    return lambda: grad.sum(0)


def _norm(gains: Callable[[Any, Any, Any], Any], *, back: bool) -> Callable[..., Call]:
    def make(rows: int, random: Callable[..., Any]) -> Call:
        import torch

        x, weight, bias = random(rows, WIDTH), random(WIDTH), random(WIDTH)
        if not back:
            return lambda: gains(x, weight, bias)
        leaves = [one.requires_grad_() for one in (x, weight, bias)]
        out = gains(*leaves)
        grad = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True, allow_unused=True)

    return make


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    from torch.nn.functional import layer_norm

    return layer_norm(x, (WIDTH,), weight, bias)


def _rms_norm(x: Any, weight: Any, _: Any) -> Any:
    from torch.nn.functional import rms_norm

    return rms_norm(x, (WIDTH,), weight)


def _choices(count: int, classes: int, beside: Any) -> Any:
    import torch

    return torch.randint(classes, (count,), device=beside.device)


def _embedding(rows: int, random: Callable[..., Any]) -> Call:
    """As many tokens as the table has rows."""
    from torch.nn.functional import embedding

    table = random(rows, WIDTH)
    tokens = _choices(rows, rows, table)
    return lambda: embedding(tokens, table)


def _cross_entropy(rows: int, random: Callable[..., Any]) -> Call:
    from torch.nn.functional import cross_entropy

    logits = random(max(1, rows * WIDTH // CLASSES), CLASSES)
    targets = _choices(len(logits), CLASSES, logits)
    return lambda: cross_entropy(logits, targets)


def _cross_entropy_gradient(rows: int, random: Callable[..., Any]) -> Call:
    import torch
    from torch.nn.functional import cross_entropy

    logits = random(max(1, rows * WIDTH // CLASSES), CLASSES).requires_grad_()
    loss = cross_entropy(logits, _choices(len(logits), CLASSES, logits))
    return lambda: torch.autograd.grad(loss, logits, retain_graph=True)


def _parameters(rows: int, random: Callable[..., Any]) -> list[Any]:
    """Parameters of `WIDTH` x `WIDTH` at most, with gradients."""
    import torch

    found = []
    for first in range(0, rows, WIDTH):
        one = torch.nn.Parameter(random(min(WIDTH, rows - first), WIDTH))
        one.grad = torch.randn_like(one)
        found.append(one)
    return found


def _adam(rows: int, random: Callable[..., Any]) -> Call:
    import torch

    optimizer = torch.optim.AdamW(_parameters(rows, random), fused=True)
    return lambda: optimizer.step()


def _adam_for_each(rows: int, random: Callable[..., Any]) -> Call:
    import torch

    optimizer = torch.optim.AdamW(_parameters(rows, random), foreach=True)
    return lambda: optimizer.step()


def _gradient_norm(rows: int, random: Callable[..., Any]) -> Call:
    import torch

    grads = [one.grad for one in _parameters(rows, random)]
    return lambda: torch.nn.utils.get_total_norm(grads)


def _clip(rows: int, random: Callable[..., Any]) -> Call:
    import torch

    parameters = _parameters(rows, random)
    norm = torch.tensor(1.0, device=parameters[0].device)
    return lambda: torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, norm)


def _cast(rows: int, random: Callable[..., Any]) -> Call:
    import torch

    x = random(rows, WIDTH)
    return lambda: x.to(torch.bfloat16)


def _copy(rows: int, random: Callable[..., Any]) -> Call:
    x, y = random(rows, WIDTH), random(rows, WIDTH)
    return lambda: y.copy_(x)


# Kinds by the names that `sim.model` gives its kernels (the last words of them), with the passes
# that it counts; "stream" stands for every other.
STREAMS: dict[str, Kind] = {
    "stream": Kind(3, _add),
    "copy": Kind(2, _copy),
    "cast": Kind(1.5, _cast, state=True),
    "norm": Kind(2, _norm(_layer_norm, back=False)),
    "norm grad": Kind(5, _norm(_layer_norm, back=True)),
    "rms norm": Kind(2, _norm(_rms_norm, back=False)),
    "rms norm grad": Kind(5, _norm(_rms_norm, back=True)),
    "bias": Kind(2, _bias),
    "bias grad": Kind(1, _bias_gradient),
    "accumulate": Kind(3, _accumulate),
    "softmax": Kind(6, _of_width(composed.softmax)),
    "softmax grad": Kind(7, _of_width(composed.softmax_gradient)),
    "gelu": Kind(2, _forward("gelu", approximate="tanh")),
    "gelu grad": Kind(3, _backward(_gelu)),
    "swiglu": Kind(5, _of_width(composed.swiglu)),
    "swiglu grad": Kind(13, _of_width(composed.swiglu_gradient)),
    "rotary": Kind(11, _of_width(composed.rotary)),
    "merge heads": Kind(2, _of_width(composed.merge_heads)),
    "merge heads grad": Kind(2, _of_width(composed.merge_heads)),
    "dropout": Kind(2.25, _forward("dropout", p=composed.DROPOUT)),
    "dropout grad": Kind(2.25, _of_width(composed.dropout_gradient)),
    "dropout residual": Kind(7.25, _of_width(composed.residual)),
    "residual grad": Kind(2.25, _of_width(composed.dropout_gradient)),
    "norm residual grad": Kind(3, _add),
    "embedding": Kind(2, _embedding),
    "embedding grad": Kind(1.375, _of_width(composed.embedding_gradient)),
    "cross-entropy": Kind(2, _cross_entropy),
    "cross-entropy grad": Kind(4, _cross_entropy_gradient),
    "gradient norm": Kind(1, _gradient_norm, state=True),
    "clip gradients": Kind(2, _clip, state=True),
    "adam": Kind(7, _adam, state=True),
    "adam for-each": Kind(20, _adam_for_each, state=True),
}
