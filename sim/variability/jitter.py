"""The `[jitter]` table of a scenario: what makes ranks slower now and then, or for good."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from sim.config.schema import Tagged
from sim.variability.laws import LAWS, Lognormal, SlowdownLaw

_DEFAULT_SIGMA = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class JitterCause:
    """One reason why ranks are slow, with the law of the factor on their kernels' time.

    `each` says who draws together (a rank, a node, all ranks of a stage or of a replica), `lasts`
    whether a draw holds for one step or for the whole job, `share` which fraction of them has the
    trouble at all (chosen once a job). Steps are the law's unit of time.
    """

    name: str
    law: Annotated[SlowdownLaw, Tagged("kind", lambda: LAWS, inline=True, default="lognormal")]
    each: Literal["rank", "node", "stage", "replica"] = "rank"
    lasts: Literal["step", "job"] = "step"
    share: Annotated[float, Gt(0), Le(1)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """All causes, and the seed of their generators (one a cause, told apart by name)."""

    seed: Annotated[int, Ge(0)] = 0
    cause: tuple[JitterCause, ...] = ()

    def __post_init__(self) -> None:
        names = [cause.name for cause in self.cause]
        if len(set(names)) < len(names):
            raise ValueError("two causes of one name; name each of them differently")

    @property
    def assumed(self) -> bool:
        """Whether nothing is known, so that a small lognormal jitter is assumed."""
        return not self.cause

    @property
    def causes(self) -> tuple[JitterCause, ...]:
        return self.cause or (JitterCause(name="kernels", law=Lognormal(sigma=_DEFAULT_SIGMA)),)
