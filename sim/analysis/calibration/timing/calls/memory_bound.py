"""The kinds of memory-bound kernels: how many bytes each moves, and its torch call."""

from collections.abc import Callable
from dataclasses import dataclass

from sim.analysis.calibration.timing.calls import (
    elementwise,
    normalisation,
    optimizer,
    vocabulary,
)
from sim.analysis.calibration.timing.calls.tensors import Random, random_tensors
from sim.analysis.calibration.timing.clock import Call
from sim.config.errors import InputError
from sim.model.kernels import BYTES, MemoryBound

WIDTH = 1024  # columns of the tensors that memory-bound kernels work on


@dataclass(frozen=True, slots=True)
class MemoryBoundKind:
    """Passes over a tensor of rows x `WIDTH`, as `sim.model` counts them, and the torch call of
    (rows, width, random tensors). `fp32` where a GPU keeps fp32 although activations are bf16;
    one call of an `optimizer` works on all of a rank's parameters."""

    passes: float
    call: Callable[[int, int, Random], Call]
    fp32: bool = False
    optimizer: bool = False

    def precision(self, device: str) -> str:
        return "bf16" if device == "cuda" and not self.fp32 else "fp32"

    def row(self, device: str) -> float:
        """Bytes that a row of the tensor counts for."""
        return self.passes * WIDTH * BYTES[self.precision(device)]


_STEP = {"fp32": True, "optimizer": True}

# Kinds by the names that `sim.model` gives its kernels (the last words of them), with the passes
# that it counts; "stream" stands for every other kernel.
KINDS: dict[str, MemoryBoundKind] = {
    "stream": MemoryBoundKind(3, elementwise.add),
    "copy": MemoryBoundKind(2, elementwise.copy),
    "cast": MemoryBoundKind(1.5, elementwise.cast, fp32=True),
    "norm": MemoryBoundKind(2, normalisation.layer_norm),
    "norm grad": MemoryBoundKind(5, normalisation.layer_norm_gradient),
    "rms norm": MemoryBoundKind(2, normalisation.rms_norm),
    "rms norm grad": MemoryBoundKind(5, normalisation.rms_norm_gradient),
    "bias": MemoryBoundKind(2, elementwise.bias),
    "bias grad": MemoryBoundKind(1, elementwise.bias_gradient),
    "accumulate": MemoryBoundKind(3, elementwise.accumulate),
    "softmax": MemoryBoundKind(6, elementwise.softmax),
    "softmax grad": MemoryBoundKind(7, elementwise.softmax_gradient),
    "gelu": MemoryBoundKind(2, elementwise.gelu),
    "gelu grad": MemoryBoundKind(3, elementwise.gelu_gradient),
    "swiglu": MemoryBoundKind(5, elementwise.swiglu),
    "swiglu grad": MemoryBoundKind(13, elementwise.swiglu_gradient),
    "rotary": MemoryBoundKind(11, elementwise.rotary),
    "merge heads": MemoryBoundKind(2, elementwise.merge_heads),
    "merge heads grad": MemoryBoundKind(2, elementwise.merge_heads),
    "dropout": MemoryBoundKind(2.25, elementwise.dropout),
    "dropout grad": MemoryBoundKind(2.25, elementwise.dropout_gradient),
    "dropout residual": MemoryBoundKind(7.25, elementwise.dropout_residual),
    "residual grad": MemoryBoundKind(2.25, elementwise.dropout_gradient),
    "norm residual grad": MemoryBoundKind(3, elementwise.add),
    "embedding": MemoryBoundKind(2, vocabulary.embedding),
    "embedding grad": MemoryBoundKind(1.375, vocabulary.embedding_gradient),
    "cross-entropy": MemoryBoundKind(2, vocabulary.cross_entropy),
    "cross-entropy grad": MemoryBoundKind(4, vocabulary.cross_entropy_gradient),
    "gradient norm": MemoryBoundKind(1, optimizer.gradient_norm, **_STEP),
    "clip gradients": MemoryBoundKind(2, optimizer.clip_gradients, **_STEP),
    "adam": MemoryBoundKind(7, optimizer.adam, **_STEP),
    "adam for-each": MemoryBoundKind(20, optimizer.adam_for_each, **_STEP),
}


def kernel(name: str, size: float, device: str) -> MemoryBound:
    """The memory-bound kernel of a kind that moves about `size` bytes."""
    row = KINDS[name].row(device)
    return MemoryBound(name=name, bytes=max(1, round(size / row)) * row)


def call(kernel: MemoryBound, device: str) -> Call:
    """One execution of a kernel. Raises `InputError` for one of an unknown kind."""
    if kernel.name not in KINDS:
        raise InputError("calibration", f"no torch call for {kernel.name!r}", "leave it out")
    kind = KINDS[kernel.name]
    rows = round(kernel.bytes / kind.row(device))
    return kind.call(rows, WIDTH, random_tensors(device, kind.precision(device)))
