"""A model as a torch module: embedding, layers, head; batch in, loss out."""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import nn
from torch.utils.checkpoint import checkpoint

from sim.analysis.calibration.training.modules.attention import DROPOUT, SelfAttention
from sim.analysis.calibration.training.modules.batch import Batch
from sim.analysis.calibration.training.modules.embedding import Embedding
from sim.analysis.calibration.training.modules.feed_forward import FeedForward
from sim.analysis.calibration.training.modules.head import Head
from sim.analysis.calibration.training.modules.norm import norm
from sim.model.checkpointing import Names
from sim.model.fusion import Fusion
from sim.model.transformer import Transformer


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each with its residual sum; normalised before or after."""

    def __init__(self, model: Transformer, fusion: Fusion, recompute: Names) -> None:
        super().__init__()
        self.post_norm, self.dropout = model.post_norm, model.dropout
        self.attention = SelfAttention(model, fusion, recomputed=recompute == "selective")
        self.attention_norm = norm(model, fusion)
        self.ffn = FeedForward(model, fusion)
        self.ffn_norm = norm(model, fusion)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.post_norm:
            x = self.attention_norm(x + self._dropped(self.attention(x)))
            normalised: torch.Tensor = self.ffn_norm(x + self._dropped(self.ffn(x)))
            return normalised
        x = x + self._dropped(self.attention(self.attention_norm(x)))
        return x + self._dropped(self.ffn(self.ffn_norm(x)))

    def _dropped(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, DROPOUT, self.training) if self.dropout else x


class TransformerModel(nn.Module):
    """The whole model; calling it on a batch gives the loss."""

    def __init__(self, model: Transformer, fusion: Fusion, recompute: Names = "none") -> None:
        super().__init__()
        self.recomputed = recompute == "full"
        self.embedding = Embedding(model, fusion)
        self.layers = nn.ModuleList(
            TransformerLayer(model, fusion, recompute) for _ in range(model.layers)
        )
        self.head = Head(model, fusion, self.embedding.words)
        self.apply(_initialise)

    def forward(self, batch: Batch) -> torch.Tensor:
        x = self.embedding(batch)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recomputed else layer(x)
        loss: torch.Tensor = self.head(x, batch)
        return loss

    @property
    def parameter_count(self) -> int:
        """A tied matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


def _initialise(module: nn.Module) -> None:
    """Normal with deviation 0.02, biases zero (GPT-2, BERT)."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
