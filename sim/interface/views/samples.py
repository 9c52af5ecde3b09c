"""Show the step times of many sampled steps, and the answers of runs with several seeds."""

from collections.abc import Callable, Mapping
from itertools import groupby

from sim.analysis.samples.answer import Samples
from sim.analysis.samples.seeds import Seeds
from sim.config.readable import human_seconds
from sim.interface.document.nodes import (
    Document,
    Section,
    Sentence,
    Table,
    document,
    section,
    table,
)
from sim.results.formatting import Cells, count, loss, percent, several

_SHOWN: dict[str, Callable[[float], str]] = {
    "time": human_seconds, "step_time": human_seconds, "time_to_target": human_seconds,
    "makespan": human_seconds, "loss": loss
}  # fmt: skip


def view(samples: Samples) -> Document:
    """Show the distribution of step times and the causes of lost time. Then show the loss by a slow
    group on each stage, and the gain from replacing slow nodes."""
    size = f"{several(samples.ranks, 'GPU')}, {count(samples.samples)} steps sampled"
    return document(
        f"{samples.scenario} on {size}, seed {samples.seed}",
        table(_distribution(samples)),
        _losses("Mean loss by the place where ranks wait", samples.by_meeting, samples),
        _losses("Mean loss by cause", samples.by_cause, samples),
        _sensitivity(samples) if samples.sensitivity else None,
        _removal(samples),
        Sentence(f"Sampled in {human_seconds(samples.wall_seconds)}.", "aside"),
        *(Sentence(note, "note") for note in samples.notes),
    )


def _distribution(samples: Samples) -> list[Cells]:
    shares = (("median", 0.5), ("p95", 0.95), ("p99", 0.99))
    rows = [("without stragglers", samples.healthy), ("mean", samples.mean)]
    rows += [(name, samples.quantile(share)) for name, share in shares]
    return [(name, _step(seconds), _more(seconds, samples.healthy)) for name, seconds in rows]


def _more(seconds: float, healthy: float) -> str:
    return "" if seconds == healthy else f"{seconds / healthy - 1.0:+.2%}"


def _step(seconds: float) -> str:
    """Return a step time with enough digits to distinguish close step times."""
    return f"{seconds:.3f} s" if seconds >= 1.0 else f"{1e3 * seconds:.3f} ms"


def _losses(title: str, parts: Mapping[str, float], samples: Samples) -> Section:
    most = max([*parts.values(), 1e-12])
    by_name = Table(
        rows=[(name, human_seconds(seconds), percent(seconds / samples.healthy))
              for name, seconds in parts.items()],
        shares=[max(seconds, 0.0) / most for seconds in parts.values()],
    )  # fmt: skip
    return section(title, by_name)


def _sensitivity(samples: Samples) -> Section:
    """Show the seconds that a step loses if a tensor-parallel group of a stage is slow.
    Neighbouring stages with equal figures share a row."""
    told = [
        ((human_seconds(row["seconds"]), percent(0.1 * row["share"])), row["seconds"])
        for row in samples.sensitivity
    ]
    most = max(max(seconds for _, seconds in told), 1e-12)
    rows: list[Cells] = []
    shares: list[float] = []
    for cells, group in groupby(enumerate(told), key=lambda numbered: numbered[1][0]):
        stages = [number for number, _ in group]
        first, last = stages[0], stages[-1]
        rows.append((f"stage {first}" if first == last else f"stages {first} to {last}", *cells))
        shares.append(told[last][1] / most)
    title = "What a step loses when one tensor-parallel group is 10 % slower"
    return section(title, Table(rows=rows, shares=shares))


def _removal(samples: Samples) -> Section:
    closer = "" if samples.closer == samples.samples else f" (on {samples.closer} of the steps)"
    rows = [
        (
            "as it is" if not row["nodes"] else f"{row['nodes']:.0f} replaced",
            _step(row["mean"]),
            f"{-row['gain'] / samples.healthy:+.2%}" if row["nodes"] else "",
        )
        for row in samples.removed
    ]
    return section(f"With the slowest nodes replaced by ordinary nodes{closer}", table(rows))


def seeds(seeds: Seeds) -> Document:
    """Show a row for each quantity: its mean and its spread over the seeds."""
    rows: list[Cells] = []
    head: Cells = ()
    for name, known in seeds.drawn.items():
        shown = _SHOWN.get(name, "{:,.4g}".format)
        head = tuple(key for key in known if key != "runs")
        told = ("" if known[key] != known[key] else shown(known[key]) for key in head)
        rows.append((name.replace("_", " "), *told))
    last = seeds.seed + seeds.samples - 1
    title = f"{seeds.scenario}, {seeds.samples} runs, seeds {seeds.seed} to {last}"
    return document(title, table(rows, ("", *head)))
