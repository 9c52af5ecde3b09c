"""Routing: each expert's share of the tokens, and the load of the fullest expert and rank.

A router picks `top_k` experts for every token. If it favours some experts, all ranks of a group
wait for the rank that holds them (Lepikhin et al. 2020, section 2.2; Fedus et al. 2021).
"""

import warnings
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from sim.config import reads
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Ge, Gt, Le

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How tokens are spread over the experts of a layer.

    `balanced`: all experts get equally many tokens. `round-robin`: each token takes the next
    experts after the previous token's, without a router, as gates of benchmarks do (NVIDIA NeMo
    AutoModel, FakeBalancedGate in nemo_automodel/components/moe/layers.py). `zipf`: the i-th most
    favoured expert gets a share proportional to i^-`exponent`. `dirichlet`: shares are drawn with
    concentration `alpha`; a smaller `alpha` makes them less equal. `seed` draws which experts are
    favoured, anew for each layer if layers are numbered. `file`: a CSV of token counts, with a row
    for each layer of the model and a column for each expert; layers have to be numbered.
    """

    law: Literal["balanced", "round-robin", "zipf", "dirichlet", "file"] = "balanced"
    exponent: Annotated[float, Ge(0), Le(10)] = 1.0
    alpha: Annotated[float, Gt(0), Le(1e6)] = 1.0
    seed: int = 0
    file: str = ""

    def __post_init__(self) -> None:
        for key, law in (("exponent", "zipf"), ("alpha", "dirichlet")):
            if getattr(self, key) != 1.0 and self.law != law:
                fault = f'{key} = {getattr(self, key)} with law = "{self.law}"'
                raise ValueError(f'{fault}; set law = "{law}" or leave {key} out')
        if self.seed and self.law not in ("zipf", "dirichlet"):
            fault = f'seed = {self.seed}, but law = "{self.law}" draws nothing'
            raise ValueError(f"{fault}; leave it out")
        if (self.law == "file") != bool(self.file):
            raise ValueError(f'law = "{self.law}" and file = "{self.file}" do not go together')


@dataclass(frozen=True, slots=True)
class Load:
    """Work of a layer's experts on the tokens that are sent to them, as shares of an even load.
    `mean` is the work of the average rank, `fullest` the work of the fullest rank. `dropped` is the
    share of the tokens for which their experts have no room."""

    mean: float = 1.0
    fullest: float = 1.0
    dropped: float = 0.0


def load_of(
    routing: Routing,
    *,
    experts: int,
    ranks: int,
    capacity: float = 0.0,
    layer: int | None = None,
    layers: int = 1,
) -> Load:
    """Return the load of the ranks that share a layer's experts.

    With a `capacity` factor c every expert has c times an even load of slots. It computes all
    slots, and drops tokens beyond them (Lepikhin et al. 2020, section 2.2). Without a capacity no
    token is dropped. Raises `InputError` for a file that does not fit the model.

    >>> load_of(Routing(law="zipf"), experts=8, ranks=8).fullest > 2
    True
    >>> load_of(Routing(law="zipf"), experts=8, ranks=8, capacity=1.25).mean
    1.25
    """
    if routing.law in ("balanced", "round-robin") and not capacity:
        return Load()
    counts = (
        reads.text(Path(routing.file), where=f"routing file {routing.file}")
        if routing.law == "file"
        else ""
    )
    return _load(routing, counts, experts, ranks, capacity, layer, layers)


@lru_cache(maxsize=4096)
def _load(
    routing: Routing,
    counts: str,
    experts: int,
    ranks: int,
    capacity: float,
    layer: int | None,
    layers: int,
) -> Load:
    """Return the load for a routing and the `counts` of its file. Results are remembered by the
    file's content, whatever its path and date."""
    even = shares(routing, experts, layer, layers, counts) * experts
    if capacity:
        dropped = float(np.maximum(even - capacity, 0.0).mean())
        return Load(capacity, capacity, dropped)
    return Load(1.0, float(even.reshape(ranks, -1).mean(axis=1).max()))


def shares(
    routing: Routing, experts: int, layer: int | None, layers: int, counts: str = ""
) -> Floats:
    """Return each expert's share of the tokens; the shares sum to 1. Raises `InputError`."""
    if routing.law == "file":
        return _counted(routing.file, counts, experts, layer, layers)
    rng = np.random.default_rng([routing.seed, 0 if layer is None else layer])
    if routing.law == "dirichlet":
        return rng.dirichlet(np.full(experts, routing.alpha))
    exponent = routing.exponent if routing.law == "zipf" else 0.0
    favoured: Floats = np.arange(1.0, experts + 1) ** -exponent
    return rng.permutation(favoured / favoured.sum())


def _counted(file: str, text: str, experts: int, layer: int | None, layers: int) -> Floats:
    if layer is None:
        fault = "counts of each layer need layers that are numbered"
        raise InputError(f"routing file {file}", fault, "set numbered = true beside routing")
    try:
        with warnings.catch_warnings(category=UserWarning, action="error"):  # for an empty file
            counts = np.loadtxt(StringIO(text), delimiter=",", ndmin=2)
    except (ValueError, UserWarning) as error:
        reason = str(error).splitlines()[0].partition(";")[0].rstrip(".")
        raise InputError(f"routing file {file}", reason, "write counts with commas") from None
    if counts.shape != (layers, experts):
        fault = f"has {counts.shape[0]} rows of {counts.shape[1]} counts"
        remedy = f"write {layers} rows (a row per layer) of {experts} counts (a count per expert)"
        raise InputError(f"routing file {file}", fault, remedy)
    count: Floats = counts[layer]
    if not np.isfinite(count).all() or count.min() < 0 or count.sum() <= 0:
        fault = f"row {layer + 1} has counts that are negative or add up to 0"
        raise InputError(f"routing file {file}", fault, "write how many tokens each expert got")
    share: Floats = count / count.sum()
    return share
