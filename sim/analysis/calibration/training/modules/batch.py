"""A microbatch of random tokens, with everything that the loss of a model family needs."""

from dataclasses import dataclass

import torch

from sim.model.transformer import Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Tokens and targets (b, s); for BERT also token types, the positions of masked tokens and
    their targets (b, predictions, as indices of the flat tokens), and whether the second sentence
    follows (b).
    """

    tokens: torch.Tensor
    targets: torch.Tensor
    types: torch.Tensor
    masked: torch.Tensor
    follows: torch.Tensor


def draw(model: Transformer, size: int, seed: int, device: str) -> Batch:
    """`size` sequences, the same for the same seed on every device."""
    generator = torch.Generator().manual_seed(seed)

    def integers(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape, generator=generator)

    counted = model.predictions or model.seq
    tokens = integers(model.vocab, size, model.seq)
    targets = integers(model.vocab, size, counted)
    masked = integers(model.seq, size, counted).sort(dim=1).values
    masked += model.seq * torch.arange(size)[:, None]
    return Batch(
        tokens=tokens.to(device),
        targets=targets.to(device),
        types=integers(max(1, model.token_types), size, model.seq).to(device),
        masked=masked.to(device),
        follows=integers(2, size).to(device),
    )
