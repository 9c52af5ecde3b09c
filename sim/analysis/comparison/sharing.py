"""Several ways to share updates, side by side: which reaches the loss first, and why."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isnan
from statistics import median
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from sim.analysis.comparison.cases import Case
from sim.analysis.comparison.comparison import Comparison, Parted, Seconds, surer
from sim.analysis.samples.pairs import paired
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.readable import human_bytes, human_seconds
from sim.jobs.sharing.outcome import Outcome
from sim.jobs.sharing.update_record import CurvePoint
from sim.results.differences import differences, told
from sim.results.formatting import Cells, count, percent
from sim.results.formatting import loss as show

Floats = NDArray[np.float64]

_UNLIKE = 1.05  # a note warns if the ways' rates (`Outcome.reach`) differ by this factor
_NEVER = CurvePoint(seconds=inf, samples=inf, loss=inf, bytes=inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingComparison(Comparison):
    """Runs of workers that share updates, compared at equal time, at equal samples and at the loss
    `target`. If no target is given, it is the jobs' common target, or else the lowest loss that all
    learning runs reach. A loss is reached when a run stays at or below it until its end
    (`sim.jobs.sharing.update_record.held`). If a way learns nothing, all ways are compared by
    samples a second. With several seeds, figures are medians, and seconds by
    cause are means."""

    picture = "sim.interface.plots.sharing:ways"
    pictures: ClassVar[Mapping[str, str]] = {"curves": "sim.interface.plots.sharing:ways"}
    unwritten = ("cases", "tokens")
    unanswered = {"tokens": "workers that share updates train to a loss"}  # noqa: RUF012

    def __post_init__(self) -> None:
        """Raise `InputError` if a run that learns nothing is to reach a loss."""
        if self._blank and self.target is not None:
            remedy = 'give all of them a task: --task, or "sharing.learning.task"'
            raise InputError(
                self._blank[0], "has no learning task, so it never reaches a loss", remedy
            )

    @property
    def _blank(self) -> list[str]:
        """The ways that learn nothing."""
        return [name for name, outcome in self.outcomes.items() if outcome.learns_nothing]

    @property
    def title(self) -> str:
        seeds = f", {self._seeds} seeds of each" * (self._seeds > 1)
        return f"Shared updates, {len(self.cases)} ways side by side{seeds}"

    @property
    def _seeds(self) -> int:
        """How many runs each way has."""
        return min(len(_runs(case)) for case in self.cases)

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The first run of each way by its name."""
        return {case.name: cast(Outcome, case.result) for case in self.cases}

    @property
    def _all_runs(self) -> list[Outcome]:
        """The runs of all seeds of all ways."""
        return [run for case in self.cases for run in _runs(case)]

    @property
    def seconds(self) -> float:
        """The time of the shortest run (s)."""
        return min(run.time for run in self._all_runs)

    @property
    def samples(self) -> float:
        """The fewest samples that a run has seen."""
        return min(run.samples for run in self._all_runs)

    @property
    def loss(self) -> float | None:
        """The loss to reach: the requested target, else the jobs' common target, else the lowest
        loss that all runs reach; None if a way learns nothing."""
        if self._blank:
            return None
        if self.target is not None:
            return self.target
        targets = {outcome.target for outcome in self.outcomes.values()}
        if len(targets) == 1 and (common := targets.pop()) is not None:
            return common
        curves = (run.curve for run in self._all_runs if run.curve)
        return max(
            (curve[-1].loss for curve in curves if curve[-1].loss < curve[0].loss), default=None
        )

    def at_target(self, outcome: Outcome) -> CurvePoint:
        """Return the point from which a run stays at or below the loss to reach; `_NEVER` if there
        is none."""
        return (outcome.reached(self.loss) if self.loss is not None else None) or _NEVER

    @property
    def records(self) -> list[dict[str, Any]]:
        """The figures of each way: medians of several seeds, with each seed's figures in `runs`."""
        return [self._record(case) for case in self.cases]

    def _record(self, case: Case) -> dict[str, Any]:
        runs = [self._of_run(case, run) for run in _runs(case)]
        each = {key: [run[key] for run in runs] for key in runs[0]}
        middle = {key: _median(values) for key, values in each.items()}
        return {"name": case.name, **middle, **({"runs": each} if len(runs) > 1 else {})}

    def _of_run(self, case: Case, outcome: Outcome) -> dict[str, float | None]:
        there = self.at_target(outcome)
        reached = {} if there is _NEVER else there._asdict()
        seconds = reached.get("seconds")
        if self.loss is None:  # nothing is learnt: the rent of equal samples
            seconds = outcome.time * self.samples / outcome.samples if outcome.samples else None
        return {
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
        first = "median (lowest to highest)" * (self._seeds > 1)
        head: Cells = (first, "samples/s", level, "waiting", "staleness", "sent in all")
        if learnt:
            head += (
                f"loss at {human_seconds(self.seconds)}",
                f"loss at {self.samples:,.0f} samples",
                "worst worker's final loss",
                f"time to {self.loss:.3g}",
                f"samples to {self.loss:.3g}",
                f"bytes sent to {self.loss:.3g}",
            )
        rent = any(case.rent for case in self.cases)
        if rent:
            head += (f"$ to {self.loss:.3g}" if learnt else f"$ for {self.samples:,.0f} samples",)
        return [head, *(self._row(row, learnt, rent) for row in self.records)]

    def _row(self, row: dict[str, Any], learnt: bool, rent: bool) -> Cells:
        cells: Cells = (
            row["name"],
            _drawn(row, "samples_per_second", count),
            _rates(row),
            percent(row["waiting"]),
            f"{row['staleness']:.1f}",
            human_bytes(row["bytes"]),
        )
        if learnt:
            cells += (
                _drawn(row, "loss_at_equal_time", _number),
                _drawn(row, "loss_at_equal_samples", _number),
                _drawn(row, "worst_loss", _number),
                _drawn(row, "time_to_target", human_seconds, "never"),
                _drawn(row, "samples_to_target", lambda samples: f"{samples:,.0f}"),
                _drawn(row, "bytes_to_target", human_bytes),
            )
        return (*cells, _drawn(row, "dollars", _number)) if rent else cells

    @property
    def parts(self) -> list[Parted]:
        found = [
            Parted(
                title=f"By cause, a worker's seconds for {self.samples:,.0f} samples"
                + ", mean of the seeds" * (self._seeds > 1),
                seconds=tuple(map(self._spent, self.cases)),
            )
        ]
        steps = [outcome.step for outcome in self.outcomes.values()]
        if all(steps):
            found.append(Parted(title="A step of a worker, by cause", seconds=tuple(steps)))
        return found

    def _spent(self, case: Case) -> Seconds:
        """Return the seconds by cause of the mean worker for `samples` samples."""
        spent: defaultdict[str, float] = defaultdict(float)
        runs = _runs(case)
        for run in runs:
            each = run.time * self.samples / (run.samples or 1.0) / len(runs)
            for cause, share in run.shares.items():
                if share:
                    spent[str(cause)] += share * each
        return spent

    @property
    def ranking(self) -> list[Case]:
        """The ways that reach the loss, fastest first, then the others by samples a second."""
        rows = zip(self.cases, self.records, strict=True)
        ranked = sorted(rows, key=lambda row: (_until(row[1]), -row[1]["samples_per_second"]))
        return [case for case, _ in ranked]

    @property
    def best(self) -> Case:
        return self.ranking[0]

    @property
    def reason(self) -> str:
        ranking, first = self.ranking, self.cases[0]
        best, other = ranking[0], ranking[1] if first is ranking[0] else first
        rows = {row["name"]: row for row in self.records}
        best_row, other_row = rows[best.name], rows[other.name]
        pace = best_row["samples_per_second"] / other_row["samples_per_second"]
        before, after = self._spent(other), self._spent(best)
        least = 0.01 * sum(before.values())
        moved = ", ".join(told(differences(before, after), least))
        why = f"a worker's time for {self.samples:,.0f} samples differs by {moved or 'nothing'}"
        head = self._first(best_row, other_row)
        head += "".join(f" {told}." for told in self.evidence)
        if _until(best_row) < inf and _until(other_row) < inf:
            sure = surer(
                self._measured(best, best_row), self._measured(other, other_row), other.name
            )
            head += f" {sure}" * bool(sure)
        return f"{head} {best.name} has {pace:.2f} times the samples a second: {why}."

    def _measured(self, case: Case, row: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        """Return the seconds to the loss (per sample if nothing is learnt), and the law of
        errors."""
        each = row["time"] / (row["samples"] or 1.0)
        return each if self.loss is None else _until(row), self.outcomes[case.name].interval

    @property
    def evidence(self) -> list[str]:
        """A sentence for each other way: in how many seeds the best way is faster, and by how much.
        Two runs with the same seed share many random draws, whose effect cancels in the ratio of
        their times."""
        best = self.best
        return [
            _ordered(best.name, other.name, self._taken(best), self._taken(other))
            for other in self.cases
            if other is not best and best.runs and other.runs
        ]

    def _taken(self, case: Case) -> Floats:
        """Return each seed's seconds to the loss (per sample if nothing is learnt)."""
        runs = _runs(case)
        if self.loss is None:
            return np.array([run.time / run.samples for run in runs])
        return np.array([self.at_target(run).seconds for run in runs])

    @property
    def notes(self) -> list[str]:
        unlike = [*self._unlike_work(), *self._without_task(), *self._unlike_tasks()]
        usual = [*unlike, *self._not_held(), *super().notes]
        reaches = {name: outcome.reach for name, outcome in self.outcomes.items() if outcome.reach}
        if not reaches or max(reaches.values()) < _UNLIKE * min(reaches.values()):
            return usual
        told = ", ".join(f"{name} {reach:.3g}" for name, reach in reaches.items())
        said = (
            f"a worker's gradient moves the weights at different rates ({told}), which may matter "
            'more than the method: try sharing.learning.scaling = "linear", or equal rates'
        )
        return [said, *usual]

    def _unlike_work(self) -> Iterator[str]:
        """Warn of runs of different models, or on different devices."""
        jobs = {name: (own.model, own.gpus, own.device) for name, own in self.inputs.items()}
        if len(set(jobs.values())) > 1:
            told = ", ".join(
                f"{name} {model} on {gpus:,} {device}"
                for name, (model, gpus, device) in jobs.items()
            )
            yield f"ways differ in more than how they share updates: {told}"

    def _without_task(self) -> Iterator[str]:
        """Warn of runs that learn nothing beside runs that learn."""
        if 0 < len(self._blank) < len(self.cases):
            names = ", ".join(self._blank)
            yield f"compared by samples a second, as some ways have no learning task: {names}"

    def _unlike_tasks(self) -> Iterator[str]:
        """Warn of runs with different learning tasks, whose losses cannot be compared."""
        tasks = {name: str(outcome.get("task") or "") for name, outcome in self.outcomes.items()}
        if not self._blank and len({task for task in tasks.values() if task}) > 1:
            told = ", ".join(f"{name} {task}" for name, task in tasks.items() if task)
            yield f"losses of different tasks are not comparable: {told}"

    def _not_held(self) -> Iterator[str]:
        """Warn of runs that reach the loss but do not keep it."""
        for case in self.cases if self.loss is not None else ():
            runs = _runs(case)
            lost = [run for run in runs if self.at_target(run) is _NEVER]
            touched = [there for run in lost if (there := run.touched(self.loss or 0.0))]
            if touched:
                when = human_seconds(min(there.seconds for there in touched))
                seeds = f" in {len(touched)} of {len(runs)} seeds" if len(runs) > 1 else ""
                has = f"{case.name} has a loss of {self.loss:.3g} after {when}{seeds}"
                yield f"{has}, but does not stay there"

    def _first(self, best_row: Mapping[str, Any], other_row: Mapping[str, Any]) -> str:
        here, there = _until(best_row), _until(other_row)
        name, other = best_row["name"], other_row["name"]
        if self.loss is None:
            learnt = "; nothing is learnt" * (len(self._blank) == len(self.cases))
            return f"{name} is the fastest{learnt}."
        if here == inf:
            most = " in most seeds" * ("runs" in best_row)
            return f"None reaches a loss of {self.loss:.3g}{most}."
        head = f"{name} is the first at a loss of {self.loss:.3g}, after {human_seconds(here)}"
        head += f" in the median of {self._seeds} seeds" * (self._seeds > 1)
        if there == inf:
            return f"{head}; {other} never is."
        needs = best_row["samples_to_target"] / other_row["samples_to_target"]
        return f"{head} ({other}: {human_seconds(there)}), with {needs:.2f} times the samples."


def _runs(case: Case) -> tuple[Outcome, ...]:
    """Return the runs of a way, a run for each seed."""
    return cast("tuple[Outcome, ...]", case.runs or (case.result,))


def _until(row: Mapping[str, Any]) -> float:
    """Return the seconds to the loss; infinite where it is never reached."""
    seconds = row["time_to_target"]
    return inf if seconds is None else float(seconds)


def _above(value: float | None) -> float:
    """Return a value; infinity where there is none."""
    return inf if value is None or isnan(value) else value


def _median(values: Sequence[float | None]) -> float | None:
    """
    >>> _median([3.0, None, 1.0]), _median([None, 1.0, None])
    (3.0, None)
    """
    middle = median(map(_above, values))
    return None if middle == inf and None in values else middle


def _drawn(
    row: Mapping[str, Any], key: str, shown: Callable[[float], str], without: str = ""
) -> str:
    """Return a figure as text; with several seeds, the median (lowest to highest)."""

    def text(value: float | None) -> str:
        return without if value is None else shown(value)

    values = sorted(row.get("runs", {}).get(key, (row[key],)), key=_above)
    if values[0] is None or text(values[0]) == text(values[-1]):
        return text(row[key])
    return f"{text(row[key])} ({text(values[0])} to {text(values[-1]) or 'never'})"


def _ordered(name: str, other: str, here: Floats, there: Floats) -> str:
    """Say in how many seeds one way is before another, and by which share (90 % interval).

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
    """Return the samples a second of a measured run: expected, lowest and highest."""
    rates = (row["samples"] / row[f"time_{key}"] for key in ("expected", "high", "low"))
    expected, least, most = (count(rate) for rate in rates) if row["time"] else ("", "", "")
    return f"{expected} ({least} to {most})" if expected else ""


def _number(value: float | None) -> str:
    return "" if value is None else show(value, 3)
