"""Synchronous jobs side by side: which step is shortest, and by how much."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

from sim.analysis.comparison.cases import Case
from sim.analysis.comparison.comparison import Comparison, Parted, Seconds, surer
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.readable import human_bytes, human_seconds
from sim.config.units import DAY
from sim.results.differences import differences, told
from sim.results.formatting import Cells, large, long_unit, percent, rate
from sim.results.likely import likely
from sim.results.result import Result

_EXPECTED = "{dollars_expected:.3g} ({dollars_low:.3g} to {dollars_high:.3g})"
_TIME = "{expected:,.1f} ({low:,.1f} to {high:,.1f})"
_RENT = "{rent_expected:,.0f} ({rent_low:,.0f} to {rent_high:,.0f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepComparison(Comparison):
    """Steps of jobs. If batches differ, all seconds are scaled to the number of tokens in the first
    job's step. With `tokens` to train on, each job also has its days and dollars (rent). Models
    that have no tokens are compared by samples, but not with models that have tokens."""

    unwritten = ("cases", "target")
    unanswered = {"target": "synchronous steps have no loss"}  # noqa: RUF012
    picture = "sim.interface.plots.comparison:timelines"
    pictures: ClassVar[Mapping[str, str]] = {"bars": "sim.interface.plots.comparison"}

    def __post_init__(self) -> None:
        """Raise `InputError` if some jobs count samples and others tokens, or if `tokens` are given
        and a job's rate of tokens is unknown."""
        for name, result in zip(self.names, self.results, strict=True):
            if not result.tokens_per_second:
                if self.tokens is not None:
                    fault = "the rate of its tokens is unknown"
                    raise InputError(name, fault, "leave --tokens out")
            elif result.inputs.counted != self.counted:
                fault = f"counts {result.inputs.counted}, but jobs before it count {self.counted}"
                raise InputError(name, fault, "compare jobs that count the same")

    @property
    def counted(self) -> str:
        """What jobs with known rates count: tokens, or samples."""
        known = (result.inputs.counted for result in self.results if result.tokens_per_second)
        return next(known, "tokens")

    @property
    def amount(self) -> str:
        """The amount of work whose seconds are compared, as text that follows the word "as"; empty
        if each job makes one step."""
        alike = max(self.scales) - min(self.scales) < 1e-9
        return "" if alike else f"many {self.counted} as a step of {self.names[0]}"

    @property
    def title(self) -> str:
        subject = f"As {self.amount}" if self.amount else "A step of each"
        return f"{subject}, {len(self.cases)} side by side"

    @property
    def scales(self) -> list[float]:
        """For each case, the number of its steps that together have as many tokens as one step of
        the first case."""
        tokens = [result.tokens_per_second * result.step_time for result in self.results]
        return [tokens[0] / count if tokens[0] and count else 1.0 for count in tokens]

    @property
    def seconds(self) -> list[float]:
        """For each case, the simulated time of `scales` steps."""
        pairs = zip(self.results, self.scales, strict=True)
        return [result.step_time * scale for result, scale in pairs]

    @property
    def expected(self) -> list[float]:
        """For each case, the time of `scales` steps that a measured run is expected to take."""
        pairs = zip(self.results, self.seconds, strict=True)
        return [likely(result).expected * seconds for result, seconds in pairs]

    @property
    def results(self) -> list[Result]:
        return [cast(Result, case.result) for case in self.cases]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [
            {
                "name": case.name,
                "seconds": seconds,
                "step_time": result.step_time,
                "tokens_per_second": result.tokens_per_second,
                "mfu": result.mfu,
                "bubble_fraction": result.bubble_fraction,
                "memory": result.memory_per_gpu["total"],
                "fits": result.fits,
                "gpus": result.ranks,
                "dollars_per_million_tokens": result.dollars_per_million_tokens,
                **{f"dollars_{bound}": dollars for bound, dollars in _dollars(result).items()},
                **self._training(result),
            }
            for case, result, seconds in zip(self.cases, self.results, self.seconds, strict=True)
        ]

    def _training(self, result: Result) -> dict[str, float]:
        """Return the days and rent (dollars) of training on `tokens`, with the bounds of measured
        steps."""
        if self.tokens is None:
            return {}
        days = likely(result).of(self.tokens / result.tokens_per_second / DAY)
        rent = {bound: dollars * self.tokens / 1e6 for bound, dollars in _dollars(result).items()}
        figures = {"days": days, "rent": rent}
        return {
            f"{name}_{bound}": value for name, of in figures.items() for bound, value in of.items()
        }

    legend = "The change compares expected times. Figures without bounds are simulated."

    @property
    def table(self) -> list[Cells]:
        first = self.expected[0]
        level = f"{100.0 * self.results[0].interval['level']:.0f} %"
        head = (
            *("", "expected", "change", "simulated", f"{self.counted}/s"),
            *("MFU", "bubble", "memory", "fits", "GPUs"),
        )
        costs = f"$/1e6 {self.counted.replace('tokens', 'tok')}", f"expected ({level})"
        records, unit = self.records, (1.0, "")
        if self.tokens is not None:
            unit = long_unit(min(DAY * row["days_expected"] for row in records))
            amount = f"{large(self.tokens)} {self.counted}"
            costs = f"{unit[1]} of {amount} ({level})", f"dollars ({level})"
        rows: list[Cells] = [(*head, *costs)]
        for row, expected in zip(records, self.expected, strict=True):
            gain = expected / first - 1.0
            rows.append(
                (
                    row["name"],
                    human_seconds(expected),
                    f"{100.0 * gain:+.1f} %" if gain else "",
                    human_seconds(row["seconds"]),
                    rate(row["tokens_per_second"]),
                    percent(row["mfu"]),
                    percent(row["bubble_fraction"]),
                    human_bytes(row["memory"]),
                    {True: "yes", False: "no", None: "unknown"}[row["fits"]],
                    f"{row['gpus']:,}",
                    *self._costs(row, unit[0]),
                )
            )
        return rows

    def _costs(self, row: dict[str, Any], unit: float) -> tuple[str, str]:
        """Return the dollars per million tokens, or the time (in a `unit` of seconds) and dollars
        of `tokens`; empty where unknown."""
        cost = row["dollars_per_million_tokens"]
        if self.tokens is not None:
            time = {key: row[f"days_{key}"] * DAY / unit for key in ("expected", "low", "high")}
            return _TIME.format(**time), "" if cost is None else _RENT.format(**row)
        return ("", "") if cost is None else (f"{cost:.3f}", _EXPECTED.format(**row))

    @property
    def parts(self) -> list[Parted]:
        return [
            Parted(
                title="By cause, for the rank that ends last, with its waiting",
                seconds=self._scaled([result.breakdown for result in self.results]),
            ),
            Parted(
                title="On the critical path, by cause: what the step waits for, from rank to rank",
                seconds=self._path("cause"),
            ),
            Parted(title="On the critical path, by stage", seconds=self._path("stage")),
            Parted(
                title="Hidden behind compute",
                seconds=self._scaled([result.hidden for result in self.results]),
                whole=False,
            ),
        ]

    def _path(self, key: str) -> tuple[Seconds, ...]:
        found: list[Seconds] = []
        for result in self.results:
            seconds: defaultdict[str, float] = defaultdict(float)
            for row in result.critical_path:
                name = f"stage {row[key]}" if key == "stage" else row[key]
                seconds[name] += row["seconds"]
            found.append(seconds)
        return self._scaled(found)

    def _scaled(self, found: Sequence[Seconds]) -> tuple[Seconds, ...]:
        pairs = zip(found, self.scales, strict=True)
        return tuple({key: seconds * scale for key, seconds in row.items()} for row, scale in pairs)

    @property
    def best(self) -> Case:
        """The job with the shortest expected step among those that fit, if any fits."""
        rows = list(zip(self.cases, self.results, self.expected, strict=True))
        fit = [row for row in rows if row[1].fits] or rows
        return min(fit, key=lambda row: row[2])[0]

    @property
    def reason(self) -> str:
        return " ".join(self._reasons())

    def _reasons(self) -> Iterator[str]:
        best = self.cases.index(self.best)
        ranked = sorted(range(len(self.cases)), key=lambda n: self.expected[n])
        fit = [n for n in ranked if self.results[n].fits and n != best]
        other = 0 if best else next(iter(fit or [n for n in ranked if n != best]))
        for n in ranked:
            if self.expected[n] < self.expected[best]:
                yield f"{self.names[n]} is shorter, but does not fit."
        less = self.seconds[other] - self.seconds[best]
        by_cause, _, _, hidden = (part.seconds for part in self.parts)
        least = 1e-4 * self.seconds[best]
        moved = ", ".join(told(differences(by_cause[other], by_cause[best]), least))
        share = percent(abs(less) / self.seconds[other])
        corrected = list(self._corrected(best, other))
        how = " as simulated" * bool(corrected)
        if abs(less) < least:
            yield f"{self.names[best]} and {self.names[other]} take equally long{how}."
            yield from corrected
            return
        than = f"{'shorter' if less >= 0.0 else 'longer'} than {self.names[other]}"
        names = f"{self.names[best]} is {human_seconds(abs(less))} ({share}) {than}{how}"
        yield f"{names}: {moved}." if moved else f"{names}; no cause differs."
        behind = ", ".join(told(differences(hidden[other], hidden[best]), 10.0 * least))
        if behind:
            yield f"Hidden behind its compute: {behind}."
        yield from corrected
        here, there = ((self.seconds[n], self.results[n].interval) for n in (best, other))
        if sure := surer(here, there, "the other"):
            yield sure

    def _corrected(self, best: int, other: int) -> Iterator[str]:
        """Yield the expected difference where measured runs correct the two jobs differently."""
        pairs = zip(self.expected, self.seconds, strict=True)
        by = [100.0 * (expected / simulated - 1.0) for expected, simulated in pairs]
        if abs(by[best] - by[other]) < 0.1:
            return
        less = self.expected[other] - self.expected[best]
        share = percent(abs(less) / self.expected[other])
        yield (
            f"By expected times, it is {human_seconds(abs(less))} ({share}) "
            f"{'shorter' if less >= 0.0 else 'longer'}, because measured runs correct "
            f"{self.names[best]} by {by[best]:+.1f} %, {self.names[other]} by {by[other]:+.1f} %."
        )


def _dollars(result: Result) -> dict[str, float]:
    """Return the rent for a million tokens, with the bounds that measured steps give."""
    known = result.dollars_per_million_tokens
    return {} if known is None else likely(result).of(known)
