"""Jobs side by side: a table, the sources of differences, why the best is best, and a picture."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from sim.analysis.comparison.cases import Case
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.results.answer import Answer, Inputs
from sim.results.differences import differences
from sim.results.formatting import Cells, time_unit
from sim.uncertainty.intervals import LEVEL
from sim.uncertainty.order import faster, longer

Seconds = Mapping[str, float]

# Share of the longest case's time. Rows with smaller differences are summed as "others", unless the
# first case spends at least 20 times this share in the row.
_LEAST = 5e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """The seconds of every case, split into named parts, under a `title`. The parts of a case add
    up to its time, unless `whole` is false."""

    title: str
    seconds: tuple[Seconds, ...]
    whole: bool = True

    @property
    def differences(self) -> list[dict[str, float]]:
        """Seconds of each other case minus the first case's seconds."""
        return [differences(self.seconds[0], other) for other in self.seconds[1:]]

    @property
    def moves(self) -> bool:
        """Whether any difference is large enough to be shown."""
        least = _LEAST * max(sum(seconds.values()) for seconds in self.seconds)
        return any(
            abs(moved) > least for difference in self.differences for moved in difference.values()
        )

    @property
    def rows(self) -> Iterator[Cells]:
        """Rows of a name, the first case's seconds, and the other cases' differences; large
        differences come first. Small rows are summed as "others", so columns add up."""
        first, more = self.seconds[0], self.differences
        total = max(sum(seconds.values()) for seconds in self.seconds)
        scale, unit = time_unit(total)
        most = {
            name: max(abs(difference.get(name, 0.0)) for difference in more)
            for name in dict.fromkeys(name for seconds in self.seconds for name in seconds)
        }
        small = [
            name
            for name, moved in most.items()
            if moved < _LEAST * total and first.get(name, 0.0) < 20.0 * _LEAST * total
        ]
        names = sorted((name for name in most if name not in small), key=lambda name: -most[name])
        groups = [(name, [name]) for name in names]
        for name, members in [*groups, *([("others", small)] if small else [])]:
            spent = sum(first.get(member, 0.0) for member in members)
            moved = [sum(other.get(member, 0.0) for member in members) for other in more]
            yield name, f"{spent / scale:.3f} {unit}", *(_signed(m / scale) for m in moved)
        if self.whole:
            sums = [sum(other.values()) for other in more]
            spent = sum(first.values())
            yield "total", f"{spent / scale:.3f} {unit}", *(_signed(m / scale) for m in sums)


def surer(
    first: tuple[float, Mapping[str, Any]], second: tuple[float, Mapping[str, Any]], name: str
) -> str:
    """Return a sentence with the probability that a measured run of the first job is shorter, and
    with the further time of the second job, which is called `name`. A job is given by its seconds
    and the law of its errors. The sentence is empty if the jobs do not rest on the same measured
    runs, or take equally long."""
    (seconds, law), (others, same) = first, second
    if law["basis"] != same["basis"] or seconds == others:
        return ""
    chance = faster(seconds, others, law["apart"])
    low, high = longer(seconds, others, law["apart"])
    return (
        f"With {100.0 * chance:.0f} % probability its measured run is shorter than that of {name}, "
        f"which takes {_more(low, high)} time ({100.0 * LEVEL:.0f} %)."
    )


def _more(low: float, high: float) -> str:
    """
    >>> _more(0.021, 0.053), _more(-0.109, 0.045), _more(-0.053, -0.021)
    ('2.1 to 5.3 % more', '10.9 % less to 4.5 % more', '2.1 to 5.3 % less')
    """
    if low < 0.0 <= high:
        return f"{-100.0 * low:.1f} % less to {100.0 * high:.1f} % more"
    near, far = sorted((abs(low), abs(high)))
    return f"{100.0 * near:.1f} to {100.0 * far:.1f} % {'more' if high >= 0.0 else 'less'}"


def _signed(value: float) -> str:
    """
    >>> _signed(0.25), _signed(-0.0001)
    ('+0.250', '+0.000')
    """
    return f"{round(value, 3) + 0.0:+.3f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Answer, ABC):
    """Two or more jobs; the others are compared with the first.

    `inputs` has the inputs of each case, by name. `asked` has the full text of each case whose name
    was shortened. `differences` has the seconds of each other case minus the first case's seconds,
    by title, case and cause. `notes` are remarks on the cases.
    """

    view = "sim.interface.views.comparison"
    report = "sim.interface.page.comparison"
    unwritten: ClassVar[tuple[str, ...]] = ("cases", "target", "tokens")
    legend: ClassVar[str] = ""  # a sentence that explains the table
    unanswered: ClassVar[Mapping[str, str]] = {
        "target": "jobs of this kind have no loss",
        "tokens": "days and dollars for a number of tokens are computed for synchronous steps only",
    }
    derived = ("inputs", "cases=records", "asked", "differences", "best=winner", "reason", "notes")
    frame_rows = "records"
    frame_index = ("name",)

    cases: tuple[Case, ...]
    target: float | None = None
    tokens: float | None = None

    @classmethod
    def check(cls, asked: Mapping[str, float | None]) -> None:
        """Raise `InputError` for a question that jobs of this kind do not answer."""
        for name, reason in cls.unanswered.items():
            if asked[name] is not None:
                raise InputError(f"--{name}", reason, "leave it out")

    @property
    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """A row of numbers for each case."""

    @property
    @abstractmethod
    def table(self) -> list[Cells]:
        """The records as text, under a head."""

    @property
    @abstractmethod
    def parts(self) -> list[Parted]:
        """The seconds in which cases differ, by several groupings."""

    @property
    @abstractmethod
    def best(self) -> Case:
        """The recommended case."""

    @property
    @abstractmethod
    def reason(self) -> str:
        """Why the best case is better than the first case; if the best is the first, than the next
        best."""

    @property
    def notes(self) -> list[str]:
        """Remarks on the cases, shown before they are compared."""
        warned = [f"{case.name}: {remark}" for case in self.cases for remark in case.result.remarks]
        precisions = {case.name: case.result.inputs.precision for case in self.cases}
        if len(set(precisions.values())) < 2:
            return warned
        told = ", ".join(
            f"{name} {precision}" for name, precision in precisions.items() if precision
        )
        return [f"steps are computed in different precisions: {told}", *warned]

    @property
    def title(self) -> str:
        return f"{len(self.cases)} side by side"

    @property
    def names(self) -> list[str]:
        return [case.name for case in self.cases]

    @property
    def winner(self) -> str:
        return self.best.name

    @property
    def inputs(self) -> dict[str, Inputs]:
        return {case.name: case.result.inputs for case in self.cases}

    @property
    def asked(self) -> dict[str, str]:
        return {case.name: case.asked for case in self.cases if case.asked}

    @property
    def differences(self) -> dict[str, dict[str, dict[str, float]]]:
        others = self.names[1:]
        return {part.title: dict(zip(others, part.differences, strict=True)) for part in self.parts}

    @property
    def fits(self) -> bool:
        """Whether any case fits into memory."""
        return any(case.result.fits for case in self.cases)
