"""The head of a model, with its loss."""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import nn

from sim.analysis.calibration.training.modules.batch import Batch
from sim.analysis.calibration.training.modules.norm import norm
from sim.model.fusion import Fusion
from sim.model.transformer import Transformer


class Head(nn.Module):
    """Final normalisation, logits of every token (BERT: of masked tokens), cross-entropy."""

    def __init__(self, model: Transformer, fusion: Fusion, words: nn.Embedding) -> None:
        super().__init__()
        self.fp32 = fusion.logits_fp32
        self.norm = None if model.post_norm else norm(model, fusion)
        self.masked = MaskedTransform(model, fusion) if model.predictions else None
        self.pooler = Pooler(model) if model.pooler else None
        self.logits = nn.Linear(model.hidden, model.vocab, bias=bool(model.predictions))
        if model.tied_embeddings:
            self.logits.weight = words.weight

    def forward(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        hidden = x
        if self.norm is not None:
            x = self.norm(x)
        if self.masked is not None:
            x = self.masked(x, batch.masked)
        logits = self.logits(x).flatten(0, -2)
        wide = logits.float() if self.fp32 else logits
        loss = F.cross_entropy(wide, batch.targets.flatten())
        return loss if self.pooler is None else loss + self.pooler(hidden, batch)


class MaskedTransform(nn.Module):
    """BERT's transform of masked tokens: a dense layer, GELU and a normalisation."""

    def __init__(self, model: Transformer, fusion: Fusion) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden, model.hidden)
        self.norm = norm(model, fusion)

    def forward(self, x: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
        """(b, s, hidden) -> (b x predictions, hidden); `masked` indexes the flat tokens."""
        selected = x.flatten(0, 1).index_select(0, masked.flatten())
        transformed: torch.Tensor = self.norm(F.gelu(self.dense(selected), approximate="tanh"))
        return transformed


class Pooler(nn.Module):
    """Next-sentence loss of each sequence's first token."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden, model.hidden)
        self.classifier = nn.Linear(model.hidden, 2)

    def forward(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        answer = self.classifier(torch.tanh(self.dense(x[:, 0])))
        return F.cross_entropy(answer.float(), batch.follows)
