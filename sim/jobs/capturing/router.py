"""To which experts do tokens go? Nothing is computed, so a law decides, as in `sim run`."""

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.config import reads
from sim.config.errors import InputError
from sim.config.schema import validate
from sim.model.experts.routing import Routing, shares

_LAWS = {"zipf": "exponent", "dirichlet": "alpha"}  # laws with the parameter that a text may set
_MOST = 4096  # the most experts; a top-k over more scores does not choose experts


def routing_of(text: str) -> Routing:
    """The law that a text names: "balanced", "zipf=1.2", "dirichlet=0.5", or a CSV file. A row of
    the file has the number of tokens of each expert of a layer. Raises `InputError`.

    >>> routing_of("zipf=1.2").exponent
    1.2
    """
    law, _, number = text.partition("=")
    where = f"--routing {text}"
    if law == "balanced" and not number:
        return Routing()
    if law in _LAWS:
        value = {_LAWS[law]: _number(number, where)} if number else {}
        return validate({"law": law, **value}, Routing, where)
    if law.endswith(".csv"):
        return Routing(law="file", file=text)
    remedy = "name balanced, zipf=EXPONENT, dirichlet=ALPHA or a CSV file of counts"
    raise InputError(where, "is no known law of routing", remedy)


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(where, f"{text} is no number", "write a number such as 1.2") from None


class Router:
    """Chooses experts. Layers are told apart by their modules: a layer that runs again chooses the
    same experts."""

    def __init__(self, torch: Any, routing: Routing) -> None:
        self.torch, self.routing = torch, routing
        self._layers: dict[int, int] = {}

    def chosen(self, shape: tuple[int, ...], dim: int, k: int) -> Any:
        """Return the indices of `k` chosen experts along dimension `dim` of scores of this shape;
        None if these are not the scores of a router."""
        shape, dim = tuple(map(int, shape)), dim % max(len(shape), 1)
        if not shape or not k < shape[dim] <= _MOST:
            return None
        others = (*shape[:dim], *shape[dim + 1 :])
        picks = _picks(self.routing, shape[dim], k, int(np.prod(others)), self._layer())
        return self.torch.from_numpy(picks).reshape(*others, k).movedim(-1, dim)

    def _layer(self) -> int:
        """The number of the module that asks; modules are numbered in the order of their first
        request."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            module = frame.f_locals.get("self")
            if isinstance(module, self.torch.nn.Module):
                return self._layers.setdefault(id(module), len(self._layers))
            frame = frame.f_back
        return 0


@lru_cache(maxsize=256)
def _picks(routing: Routing, experts: int, k: int, tokens: int, layer: int) -> NDArray[np.int64]:
    """Return `k` different experts for each token. The number of tokens that choose an expert
    differs from its expected value by less than one.

    Systematic sampling (Madow 1949): the line from 0 to k is cut into a stretch for each expert, as
    long as the expert's chances (at most 1). Token t takes the experts at the k points
    (t + 1/2) / tokens + i, for i = 0, ..., k - 1.
    """
    ends = np.cumsum(_chances(_shares(routing, experts, layer), k))
    points = (np.arange(tokens)[:, None] + 0.5) / max(tokens, 1) + np.arange(k)
    return np.minimum(np.searchsorted(ends, points, side="right"), experts - 1)


def _shares(routing: Routing, experts: int, layer: int) -> NDArray[np.float64]:
    if routing.law != "file":
        return shares(routing, experts, layer, 1)
    where = f"routing file {routing.file}"
    text = reads.text(Path(routing.file), where=where)
    rows = sum(1 for line in text.splitlines() if line.partition("#")[0].strip())
    if layer >= rows:
        fault = f"has {rows} rows, but the model has more layers with experts"
        raise InputError(where, fault, "write a row for each layer")
    return shares(routing, experts, layer, rows, text)


def _chances(share: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """The expected number of a token's k choices that fall on each expert, at most 1. An excess
    goes to the other experts in proportion to their shares.

    >>> _chances(np.array([0.8, 0.1, 0.1]), 2).round(2).tolist()
    [1.0, 0.5, 0.5]
    """
    full = np.zeros(len(share), bool)
    while True:
        left = share[~full].sum()
        rest = k - full.sum()
        chances = np.where(full, 1.0, share / left * rest if left else rest / max((~full).sum(), 1))
        over = (chances > 1.0 + 1e-12) & ~full
        if not over.any():
            return chances
        full |= over
