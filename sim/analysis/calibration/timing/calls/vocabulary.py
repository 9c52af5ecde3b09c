"""Kernels over the vocabulary: embedding and cross-entropy, forward and backward."""

from typing import Any

from sim.analysis.calibration.timing.calls.tensors import Random
from sim.analysis.calibration.timing.clock import Call

CLASSES = 8192  # of the cross-entropy


def embedding(rows: int, width: int, random: Random) -> Call:
    """As many tokens as the table has rows."""
    from torch.nn.functional import embedding

    table = random(rows, width)
    tokens = _random_indices(rows, rows, table.device)
    return lambda: embedding(tokens, table)


def embedding_gradient(rows: int, width: int, random: Random) -> Call:
    """The dense gradient of a table of `rows`, to which an eighth as many tokens are added: one
    pass over the table and three over the tokens' gradients."""
    import torch

    tokens = max(1, rows // 8)
    gradient = random(tokens, width)
    indices = _random_indices(tokens, rows, gradient.device)
    return lambda: torch.ops.aten.embedding_dense_backward(gradient, indices, rows, -1, False)


def cross_entropy(rows: int, width: int, random: Random) -> Call:
    from torch.nn.functional import cross_entropy

    logits = _logits(rows, width, random)
    targets = _random_indices(len(logits), CLASSES, logits.device)
    return lambda: cross_entropy(logits, targets)


def cross_entropy_gradient(rows: int, width: int, random: Random) -> Call:
    import torch
    from torch.nn.functional import cross_entropy

    logits = _logits(rows, width, random).requires_grad_()
    loss = cross_entropy(logits, _random_indices(len(logits), CLASSES, logits.device))
    return lambda: torch.autograd.grad(loss, logits, retain_graph=True)


def _logits(rows: int, width: int, random: Random) -> Any:
    return random(max(1, rows * width // CLASSES), CLASSES)


def _random_indices(count: int, below: int, device: Any) -> Any:
    import torch

    return torch.randint(below, (count,), device=device)
