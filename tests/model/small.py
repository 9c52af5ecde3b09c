"""A model that is quick to work out, for tests that do not mind its sizes."""

from typing import Any

from sim.model.transformer import Transformer


def small(**changes: Any) -> Transformer:
    """One layer of four heads on 64 columns, with these keys instead."""
    usual: dict[str, Any] = dict(
        layers=1, hidden=64, heads=4, ffn=256, vocab=100, seq=32, tied_embeddings=True
    )
    return Transformer(**(usual | changes))
