"""Jobs side by side by the figures of their kind, for kinds without a comparison of their own.

An answer names this class as its `comparison` and offers `cost` and `account`. `cost` is the name
and the seconds of the quantity that is smallest for the best job. `account` has seconds by part,
under a title.
"""

from collections.abc import Mapping
from typing import Any

from sim.analysis.comparison.cases import Case
from sim.analysis.comparison.comparison import Comparison, Parted
from sim.config.dataclass import dataclass
from sim.config.units import human_seconds
from sim.results.formatting import Cells, large, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureComparison(Comparison):
    """The figures of jobs of one kind."""

    picture = "sim.interface.plots.comparison:figures"

    @property
    def costs(self) -> list[float]:
        """Each case's seconds of the quantity that is smallest for the best case."""
        return [case.result.get("cost")[1] for case in self.cases]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [{"name": case.name, **case.result.columns} for case in self.cases]

    @property
    def table(self) -> list[Cells]:
        names = [name for name in self.records[0] if name != "name"]
        rows = [(row["name"], *(_shown(row.get(name)) for name in names)) for row in self.records]
        return [("", *names), *rows]

    @property
    def parts(self) -> list[Parted]:
        title, _ = self.cases[0].result.get("account")
        seconds: list[Mapping[str, float]] = [case.result.get("account")[1] for case in self.cases]
        return [Parted(title=title, seconds=tuple(seconds))]

    @property
    def best(self) -> Case:
        return self.cases[self.costs.index(min(self.costs))]

    @property
    def reason(self) -> str:
        best, costs = self.cases.index(self.best), self.costs
        others = [n for n in range(len(costs)) if n != best]
        other = 0 if best else min(others, key=lambda n: costs[n])
        name, least = self.best.result.get("cost")
        less = percent(1.0 - least / costs[other]) if costs[other] else percent(0.0)
        taken = f"{human_seconds(least)} against {human_seconds(costs[other])}"
        return f"{self.names[best]} takes {less} less than {self.names[other]}: {taken} {name}."


def _shown(value: Any) -> str:
    """Return a figure as text."""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else large(value)
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
