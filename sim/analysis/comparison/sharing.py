"""Workers that share updates, in several ways side by side: who reaches the loss first, and why."""

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from sim.analysis.comparison.cases import Case
from sim.analysis.comparison.comparison import Comparison, Parted, Seconds, surer
from sim.analysis.samples.pairs import paired
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import human_bytes, human_seconds
from sim.jobs.sharing.outcome import Outcome
from sim.jobs.sharing.update_record import CurvePoint
from sim.results.differences import differences, told
from sim.results.formatting import Cells, count, percent
from sim.results.formatting import loss as show

Floats = NDArray[np.float64]

_UNLIKE = 1.05  # times a rate: less decides nothing
_NEVER = CurvePoint(seconds=inf, samples=inf, loss=inf, bytes=inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingComparison(Comparison):
    """Runs of workers that share updates, compared at equal time, at equal samples and at the loss
    `target`: what is asked for, or else the lowest that every run ends with which learns at all.
    It is reached where it is for the rest of the run (`sim.jobs.sharing.update_record.held`)."""

    picture = "sim.interface.plots.sharing:ways"
    pictures: ClassVar[Mapping[str, str]] = {"curves": "sim.interface.plots.sharing:ways"}
    unwritten = ("cases",)

    def __post_init__(self) -> None:
        """Refuse to hold a run that learns nothing against a loss. Raises `InputError`."""
        blank = [name for name, outcome in self.outcomes.items() if outcome.learns_nothing]
        if blank and (self.target is not None or len(blank) < len(self.cases)):
            remedy = 'give all of them a task: --task, or "sharing.learning.task"'
            raise InputError(blank[0], "learns nothing, so that it never reaches a loss", remedy)

    @classmethod
    def check_target(cls, target: float | None) -> None:
        """Any loss may be the target."""

    @property
    def title(self) -> str:
        return f"Shared updates, {len(self.cases)} ways side by side"

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The runs by their names."""
        return {case.name: cast(Outcome, case.result) for case in self.cases}

    @property
    def seconds(self) -> float:
        """How long even the shortest run took."""
        return min(outcome.time for outcome in self.outcomes.values())

    @property
    def samples(self) -> float:
        """How many samples even the slowest has seen."""
        return min(outcome.samples for outcome in self.outcomes.values())

    @property
    def loss(self) -> float | None:
        """The loss that is to be reached: what is asked for, else the jobs' own target where they
        have one in common, else what all reach; None where nothing is learnt."""
        if self.target is not None:
            return self.target
        own = {outcome.target for outcome in self.outcomes.values()}
        if len(own) == 1 and (common := own.pop()) is not None:
            return common
        curves = (outcome.curve for outcome in self.outcomes.values() if outcome.curve)
        return max(
            (curve[-1].loss for curve in curves if curve[-1].loss < curve[0].loss), default=None
        )

    def at_target(self, outcome: Outcome) -> CurvePoint:
        """From where on a run has that loss; everything without end where it never has."""
        return (outcome.reached(self.loss) if self.loss is not None else None) or _NEVER

    @property
    def records(self) -> list[dict[str, Any]]:
        return [self._record(case, self.outcomes[case.name]) for case in self.cases]

    def _record(self, case: Case, outcome: Outcome) -> dict[str, Any]:
        there = self.at_target(outcome)
        reached = {} if there is _NEVER else there._asdict()
        seconds = reached.get("seconds")
        if self.loss is None:  # nothing is learnt: the rent of equal samples
            seconds = outcome.time * self.samples / outcome.samples if outcome.samples else None
        return {
            "name": case.name,
            "time": outcome.time,
            "time_low": outcome.time_low,
            "time_expected": outcome.time_expected,
            "time_high": outcome.time_high,
            "samples": outcome.samples,
            "samples_per_second": outcome.samples_per_second,
            "bytes": outcome.bytes,
            "waiting": outcome.shares["waiting"] + outcome.shares["idle"],
            "staleness": outcome.staleness["mean"],
            "loss": outcome.loss,
            "worst_loss": outcome.spread.get("worst"),
            "loss_at_equal_time": outcome.loss_within(seconds=self.seconds),
            "loss_at_equal_samples": outcome.loss_within(samples=self.samples),
            "time_to_target": reached.get("seconds"),
            "samples_to_target": reached.get("samples"),
            "bytes_to_target": reached.get("bytes"),
            "dollars": None if seconds is None else case.dollars(seconds),
        }

    @property
    def table(self) -> list[Cells]:
        learnt = self.loss is not None
        level = f"expected ({100.0 * next(iter(self.outcomes.values())).interval['level']:.0f} %)"
        head: Cells = ("", "samples/s", level, "waiting", "staleness", "sent in all")
        if learnt:
            head += (
                f"loss at {human_seconds(self.seconds)}",
                f"loss at {self.samples:,.0f} samples",
                "worst worker's at the end",
                f"time to {self.loss:.3g}",
                "samples to it",
                "sent to it",
            )
        rent = any(case.rent for case in self.cases)
        if rent:
            head += ("$ to it" if learnt else f"$ for {self.samples:,.0f} samples",)
        return [head, *(self._row(row, learnt, rent) for row in self.records)]

    def _row(self, row: dict[str, Any], learnt: bool, rent: bool) -> Cells:
        cells: Cells = (
            row["name"],
            count(row["samples_per_second"]),
            _rates(row),
            percent(row["waiting"]),
            f"{row['staleness']:.1f}",
            human_bytes(row["bytes"]),
        )
        if learnt:
            cells += (
                _number(row["loss_at_equal_time"]),
                _number(row["loss_at_equal_samples"]),
                _number(row["worst_loss"]),
                "never" if row["time_to_target"] is None else human_seconds(row["time_to_target"]),
                "" if row["samples_to_target"] is None else f"{row['samples_to_target']:,.0f}",
                "" if row["bytes_to_target"] is None else human_bytes(row["bytes_to_target"]),
            )
        return (*cells, _number(row["dollars"])) if rent else cells

    @property
    def parts(self) -> list[Parted]:
        found = [
            Parted(
                title=f"By cause, a worker's seconds for {self.samples:,.0f} samples",
                seconds=tuple(self._spent(own) for own in self.outcomes.values()),
            )
        ]
        steps = [outcome.step for outcome in self.outcomes.values()]
        if all(steps):
            found.append(Parted(title="A step of a worker, by cause", seconds=tuple(steps)))
        return found

    def _spent(self, outcome: Outcome) -> Seconds:
        """Seconds by cause of the mean worker for as many samples as the slowest has seen."""
        each = outcome.time * self.samples / (outcome.samples or 1.0)
        return {str(cause): share * each for cause, share in outcome.shares.items() if share}

    @property
    def ranking(self) -> list[Case]:
        """Runs that reach the loss, the fastest first, then all others by samples a second."""

        def key(case: Case) -> tuple[float, float]:
            outcome = self.outcomes[case.name]
            return self.at_target(outcome).seconds, -outcome.samples_per_second

        return sorted(self.cases, key=key)

    @property
    def best(self) -> Case:
        return self.ranking[0]

    @property
    def reason(self) -> str:
        ranking, first = self.ranking, self.cases[0]
        other = ranking[1] if first is ranking[0] else first
        outcome, theirs = self.outcomes[ranking[0].name], self.outcomes[other.name]
        pace = outcome.samples_per_second / theirs.samples_per_second
        least = 0.01 * sum(self._spent(theirs).values())
        moved = ", ".join(told(differences(self._spent(theirs), self._spent(outcome)), least))
        why = f"a worker's time for {self.samples:,.0f} samples differs by {moved or 'nothing'}"
        head = self._first(outcome, theirs, ranking[0].name, other.name)
        head += "".join(f" {told}." for told in self.evidence)
        if self.at_target(outcome) is not _NEVER is not self.at_target(theirs):
            sure = surer(self._measured(outcome), self._measured(theirs), other.name)
            head += f" {sure}" * bool(sure)
        return f"{head} {ranking[0].name} has {pace:.2f} times the samples a second: {why}."

    def _measured(self, outcome: Outcome) -> tuple[float, Mapping[str, Any]]:
        """Seconds to the loss, or for a sample where nothing is learnt, and the law of errors."""
        each = outcome.time / (outcome.samples or 1.0)
        return each if self.loss is None else self.at_target(outcome).seconds, outcome.interval

    @property
    def evidence(self) -> list[str]:
        """In how many seeds the best is before each other one, and by how much: the mean of the
        ratios of both with the same seed, in which what they have in common is not counted."""
        best = self.best
        return [
            _ordered(best.name, other.name, self._taken(best), self._taken(other))
            for other in self.cases
            if other is not best and best.runs and other.runs
        ]

    def _taken(self, case: Case) -> Floats:
        """Of each seed the seconds to the loss, or for a sample where nothing is learnt."""
        runs = cast("tuple[Outcome, ...]", case.runs)
        if self.loss is None:
            return np.array([run.time / run.samples for run in runs])
        return np.array([self.at_target(run).seconds for run in runs])

    @property
    def notes(self) -> list[str]:
        usual = [*self._unlike_tasks(), *self._not_held(), *super().notes]
        reaches = {name: outcome.reach for name, outcome in self.outcomes.items() if outcome.reach}
        if not reaches or max(reaches.values()) < _UNLIKE * min(reaches.values()):
            return usual
        told = ", ".join(f"{name} {reach:.3g}" for name, reach in reaches.items())
        said = (
            f"a worker's gradient moves the weights by unlike rates ({told}), which may decide "
            'more than the method: try sharing.learning.scaling = "linear", or equal rates'
        )
        return [said, *usual]

    def _unlike_tasks(self) -> Iterator[str]:
        """Runs that learn other things, whose losses say nothing of one another."""
        tasks = {name: str(outcome.get("task") or "") for name, outcome in self.outcomes.items()}
        if len({task for task in tasks.values() if task}) > 1:
            told = ", ".join(f"{name} {task}" for name, task in tasks.items() if task)
            yield f"losses of different tasks do not compare: {told}"

    def _not_held(self) -> Iterator[str]:
        """Runs that have the loss for a while."""
        loss = self.loss
        for name, outcome in self.outcomes.items():
            there = None if loss is None else outcome.touched(loss)
            if there and self.at_target(outcome) is _NEVER:
                when = human_seconds(there.seconds)
                yield f"{name} has a loss of {loss:.3g} after {when}, but does not stay there"

    def _first(self, outcome: Outcome, theirs: Outcome, name: str, other: str) -> str:
        here, there = self.at_target(outcome), self.at_target(theirs)
        if self.loss is None:
            return f"{name} is the fastest; nothing is learnt."
        if here is _NEVER:
            return f"None reaches a loss of {self.loss:.3g}."
        head = f"{name} is the first at a loss of {self.loss:.3g}, after {human_seconds(here[0])}"
        if there is _NEVER:
            return f"{head}; {other} never is."
        needs = here.samples / there.samples
        return f"{head} ({other}: {human_seconds(there[0])}), with {needs:.2f} times the samples."


def _ordered(name: str, other: str, here: Floats, there: Floats) -> str:
    """How often one is before another with the same seed, and by which share, with 90 %.

    >>> _ordered("a", "b", np.array([1.0, 1.0, 1.0]), np.array([1.1, 1.2, 0.9]))
    'a is before b in 2 of 3 seeds, by 6 % (-17 to 36)'
    """
    before = int(np.sum(here < there))
    said = f"{name} is before {other} in {before} of {len(here)} seeds"
    found = paired(here, there)
    if found is None:
        return said
    by, low, high = (100.0 * share for share in (found.by, found.low, found.high))
    only = f" where both reach it ({found.both})" * (found.both < len(here))
    return f"{said}, by {by:.0f} % ({low:.0f} to {high:.0f}){only}"


def _rates(row: Mapping[str, Any]) -> str:
    """The samples a second of a measured run: expected, at least and at most."""
    rates = (row["samples"] / row[f"time_{key}"] for key in ("expected", "high", "low"))
    expected, least, most = (count(rate) for rate in rates) if row["time"] else ("", "", "")
    return f"{expected} ({least} to {most})" if expected else ""


def _number(value: float | None) -> str:
    return "" if value is None else show(value, 3)
