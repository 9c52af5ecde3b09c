"""Straggler samples as a page of text."""

from collections.abc import Iterable

from sim.analysis.samples.answer import Samples
from sim.config.units import human_seconds
from sim.results.formatting import bar, count, percent, several
from sim.results.tables import preformatted


def text(samples: Samples) -> str:
    """The distribution, where the loss comes from, which ranks matter, what removal gains."""
    blocks = [
        [_title(samples), *_distribution(samples)],
        ["Mean loss by where ranks wait", *_losses(samples.by_meeting, samples)],
        ["Mean loss by cause", *_losses(samples.by_cause, samples)],
        *([["What a step loses when one tensor-parallel group is 10 % slower",
            *_sensitivity(samples)]] if samples.sensitivity else []),
        [_removal_title(samples), *_removal(samples)],
        [f"Sampled in {human_seconds(samples.wall_seconds)}.",
         *(f"note: {note}" for note in samples.notes)],
    ]  # fmt: skip
    return "\n\n".join("\n".join(block) for block in blocks)


def html(samples: Samples) -> str:
    """The same page for a notebook."""
    return preformatted(text(samples))


def _title(samples: Samples) -> str:
    size = f"{several(samples.ranks, 'GPU')}, {count(samples.samples)} steps sampled"
    return f"{samples.scenario} on {size}, seed {samples.seed}"


def _distribution(samples: Samples) -> Iterable[str]:
    rows = [("without stragglers", samples.healthy), ("mean", samples.mean)]
    rows += [
        (name, samples.quantile(q)) for name, q in (("median", 0.5), ("p95", 0.95), ("p99", 0.99))
    ]
    for name, seconds in rows:
        more = "" if seconds == samples.healthy else f"  {seconds / samples.healthy - 1.0:+.2%}"
        yield f"  {name:<18}  {_step(seconds)}{more}"


def _step(seconds: float) -> str:
    """A step time, to be told from others that are close to it."""
    return f"{seconds:.3f} s" if seconds >= 1.0 else f"{1e3 * seconds:.3f} ms"


def _losses(parts: dict[str, float], samples: Samples) -> Iterable[str]:
    width, most = max(map(len, parts)), max([*parts.values(), 1e-12])
    for name, seconds in parts.items():
        figures = f"{human_seconds(seconds):>8}  {percent(seconds / samples.healthy):>6}"
        yield f"  {name:<{width}}  {figures}  {bar(max(seconds, 0.0) / most)}".rstrip()


def _sensitivity(samples: Samples) -> Iterable[str]:
    """Neighbouring stages that print alike share a line."""
    rows = [(f"{human_seconds(row['seconds']):>8}  {percent(0.1 * row['share']):>6}", row)
            for row in samples.sensitivity]  # fmt: skip
    most = max(max(row["seconds"] for _, row in rows), 1e-12)
    first = 0
    for last, (words, row) in enumerate(rows):
        if last + 1 < len(rows) and rows[last + 1][0] == words:
            continue
        name = f"stage {first}" if first == last else f"stages {first} to {last}"
        yield f"  {name:<15}  {words}  {bar(row['seconds'] / most)}"
        first = last + 1


def _removal_title(samples: Samples) -> str:
    closer = "" if samples.closer == samples.samples else f" (on {samples.closer} of the steps)"
    return f"With the slowest nodes replaced by ordinary ones{closer}"


def _removal(samples: Samples) -> Iterable[str]:
    for row in samples.removed:
        gain = row["gain"] / samples.healthy
        words = "as it is" if not row["nodes"] else f"{row['nodes']:.0f} replaced"
        yield f"  {words:<12}  {_step(row['mean'])}" + (f"  {-gain:+.2%}" if row["nodes"] else "")
