"""The two ends of a model: the embedding, and the head with its loss."""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import nn

from sim.calibration.training.modules.attention import DROPOUT
from sim.calibration.training.modules.batch import Batch
from sim.calibration.training.modules.norm import norm
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


class Head(nn.Module):
    """Final normalisation, logits of every token (or of BERT's masked ones), cross-entropy."""

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
        whole = x
        if self.norm is not None:
            x = self.norm(x)
        if self.masked is not None:
            x = self.masked(x, batch.masked)
        logits = self.logits(x).flatten(0, -2)
        wide = logits.float() if self.fp32 else logits
        loss = F.cross_entropy(wide, batch.targets.flatten())
        return loss if self.pooler is None else loss + self.pooler(whole, batch)


class MaskedTransform(nn.Module):
    """BERT's masked tokens through a dense layer, GELU and a normalisation."""

    def __init__(self, model: Transformer, fusion: Fusion) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden, model.hidden)
        self.norm = norm(model, fusion)

    def forward(self, x: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
        """(b, s, hidden) -> (b x predictions, hidden); `masked` indexes the flat tokens."""
        picked = x.flatten(0, 1).index_select(0, masked.flatten())
        transformed: torch.Tensor = self.norm(F.gelu(self.dense(picked), approximate="tanh"))
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
