"""The embedding of a batch's tokens."""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import nn

from sim.analysis.calibration.training.modules.attention import DROPOUT
from sim.analysis.calibration.training.modules.batch import Batch
from sim.analysis.calibration.training.modules.norm import norm
from sim.model.fusion import Fusion
from sim.model.transformer import Transformer


class Embedding(nn.Module):
    """Words, learned positions and token types, summed; BERT's normalisation; dropout."""

    def __init__(self, model: Transformer, fusion: Fusion) -> None:
        super().__init__()
        learned = model.positions == "learned"
        self.words = nn.Embedding(model.vocab, model.hidden)
        self.positions = nn.Embedding(model.seq, model.hidden) if learned else None
        self.types = nn.Embedding(model.token_types, model.hidden) if model.token_types else None
        self.norm = norm(model, fusion) if model.post_norm else None
        self.dropout = model.dropout

    def forward(self, batch: Batch) -> torch.Tensor:
        x: torch.Tensor = self.words(batch.tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(x.shape[1], device=x.device))
        if self.types is not None:
            x = x + self.types(batch.types)
        if self.norm is not None:
            x = self.norm(x)
        return F.dropout(x, DROPOUT, self.training) if self.dropout else x
