"""Jobs side by side by their key figures, for kinds of scenario without a comparison of their own.

An answer names this class as its `comparison`, and offers `cost` and `account`. `cost` is a pair:
a phrase that says what the seconds measure, and the seconds, fewest for the best job. `account` has
seconds by part, under a title.
"""

from collections.abc import Mapping
from math import isclose
from typing import Any

from sim.analysis.comparison.cases import Case
from sim.analysis.comparison.comparison import Comparison, Parted
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.readable import human_seconds
from sim.results.formatting import Cells, figure, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureComparison(Comparison):
    """The figures of jobs of one kind."""

    picture = "sim.interface.plots.comparison:figures"

    @property
    def costs(self) -> list[float]:
        """The seconds by which the cases are ranked; fewer are better. Raises `InputError` for
        cases whose seconds measure different things."""
        names, costs = zip(*(case.result.get("cost") for case in self.cases), strict=True)
        if len(set(names)) > 1:
            fault = f"seconds {names[0]} stand beside seconds of another kind"
            raise InputError("compare", fault, "compare jobs that all end, or jobs that never end")
        return list(costs)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [{"name": case.name, **case.result.columns} for case in self.cases]

    @property
    def table(self) -> list[Cells]:
        names = list(dict.fromkeys(name for row in self.records for name in row))[1:]
        units = self.cases[0].result.units
        rows = [
            (row["name"], *(figure(row.get(n), units.get(n.partition(".")[0], "")) for n in names))
            for row in self.records
        ]
        return [("", *(name.replace("_", " ").replace(".", ", ") for name in names)), *rows]

    @property
    def parts(self) -> list[Parted]:
        title, _ = self.cases[0].result.get("account")
        seconds: list[Mapping[str, float]] = [case.result.get("account")[1] for case in self.cases]
        return [Parted(title=title, seconds=tuple(seconds))]

    @property
    def best(self) -> Case:
        runs = [case for case in self.cases if not case.result.misfit] or self.cases
        costs = dict(zip(self.names, self.costs, strict=True))
        return min(runs, key=lambda case: costs[case.name])

    @property
    def reason(self) -> str:
        best, costs = self.cases.index(self.best), self.costs
        others = [n for n in range(len(costs)) if n != best]
        other = 0 if best else min(others, key=lambda n: costs[n])
        if misfit := self.cases[other].result.misfit:
            why = f"{self.names[other]} would not run: {misfit}."
            return f"No job would run; {why}" if self.best.result.misfit else why
        name, least = self.best.result.get("cost")
        if isclose(least, costs[other]):
            both = f"{self.names[best]} and {self.names[other]}"
            return f"{both} take equally long: {human_seconds(least)} {name}."
        less = percent(1.0 - least / costs[other])
        taken = f"{human_seconds(least)} against {human_seconds(costs[other])}"
        return f"{self.names[best]} takes {less} less than {self.names[other]}: {taken} {name}."
