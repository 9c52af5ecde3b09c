"""The `[jitter]` table of a scenario: what makes ranks slower now and then, or for good.

Only the description is here; `sim.variability.stragglers` draws from it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Gt, Le

if TYPE_CHECKING:
    from sim.variability.stragglers import Straggling

Kind = Literal[
    "constant", "lognormal", "shifted-exponential", "pareto", "on-off", "pauses", "trace"
]
Positive = Annotated[float, Gt(0)]

_NEEDS = {
    "constant": ("factor",),
    "lognormal": ("sigma",),
    "shifted-exponential": ("extra",),
    "pareto": ("alpha",),
    "on-off": ("factor", "slow", "well"),
    "pauses": ("factor", "every"),
    "trace": ("file",),
}
_DEFAULT_SIGMA = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason why ranks are slow, with the distribution of the factor on their kernels' time.

    `each` says who draws together (a rank, a node, all ranks of a stage or of a replica), `lasts`
    whether a draw holds for one step or for the whole job, `share` which fraction of them has the
    trouble at all (chosen once a job). What a distribution needs: see `sim.variability.stragglers`;
    steps are the unit of `slow`, `well` and `every`, `file` is a CSV of recorded step times.
    """

    name: str
    kind: Kind = "lognormal"
    each: Literal["rank", "node", "stage", "replica"] = "rank"
    lasts: Literal["step", "job"] = "step"
    share: Annotated[float, Gt(0), Le(1)] = 1.0
    sigma: Positive | None = None
    extra: Positive | None = None
    alpha: Positive | None = None
    factor: Positive | None = None
    slow: Annotated[float, Ge(1)] | None = None
    well: Annotated[float, Ge(1)] | None = None
    every: Annotated[int, Ge(1)] | None = None
    together: bool = False
    file: str | None = None

    def __post_init__(self) -> None:
        needed = _NEEDS[self.kind]
        known = {key for keys in _NEEDS.values() for key in keys}
        for key in sorted(known):
            given = getattr(self, key) is not None
            if given and key not in needed:
                raise ValueError(f"{self.kind} has no {key}; it takes {', '.join(needed)}")
            if key in needed and not given:
                raise ValueError(f"{self.kind} needs {key}; add {key} = ...")

    def distribution(self) -> "Straggling":
        """What to draw from. Raises `InputError` for a trace that cannot be read."""
        from sim.variability import stragglers

        given = {key: getattr(self, key) for key in _NEEDS[self.kind]}
        if self.kind == "trace":
            return stragglers.recorded(Path(given["file"]))
        if self.kind == "pauses":
            return stragglers.Pauses(**given, together=self.together)
        kinds: dict[str, type[Straggling]] = {
            "constant": stragglers.Constant,
            "lognormal": stragglers.Lognormal,
            "shifted-exponential": stragglers.ShiftedExponential,
            "pareto": stragglers.Pareto,
            "on-off": stragglers.OnOff,
        }
        return kinds[self.kind](**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """All causes, and the seed of their generators (one a cause, told apart by name)."""

    seed: Annotated[int, Ge(0)] = 0
    cause: tuple[Cause, ...] = ()

    def __post_init__(self) -> None:
        names = [one.name for one in self.cause]
        if len(set(names)) < len(names):
            raise ValueError("two causes of one name; name each of them differently")

    @property
    def assumed(self) -> bool:
        """Whether nothing is known, so that a small lognormal jitter is assumed."""
        return not self.cause

    @property
    def causes(self) -> tuple[Cause, ...]:
        return self.cause or (Cause(name="kernels", kind="lognormal", sigma=_DEFAULT_SIGMA),)
