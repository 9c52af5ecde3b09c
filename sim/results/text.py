"""A result as a page that a person likes to read: as text, and as HTML for notebooks."""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sim.config.units import human_bytes, human_seconds
from sim.results.memory_advice import memory_line

if TYPE_CHECKING:
    from sim.results.result import Result

_BAR = 30  # characters of the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MOST_STAGES = 24

Row = tuple[str, ...]


def text(result: "Result") -> str:
    """The result in plain text: rates, where the time goes, stages, memory, warnings."""
    sections = [
        f"{result.scenario} on {count(result.ranks)} GPUs",
        _indented(headline(result)),
        "Where the time goes (the critical rank's step)",
        _indented(_time_rows(result, bars=True)),
    ]
    if len(result.stages) > 1:
        sections += ["Stages", _indented(_stage_rows(result))]
    sections += [memory_line(result), _indented(_memory_rows(result, bars=True))]
    blocks = ["\n".join(pair) for pair in zip(sections[::2], sections[1::2], strict=True)]
    blocks.append("\n".join([_effort(result), *(f"warning: {one}" for one in result.warnings)]))
    return "\n\n".join(blocks)


def html(result: "Result", *, picture: bytes | None = None) -> str:
    """The same page for a notebook; `picture` is a PNG to show below it, such as the pipeline's."""
    parts = [
        f"<h4>{escape(result.scenario)} on {count(result.ranks)} GPUs</h4>",
        _table(headline(result)),
        "<b>Where the time goes</b> (the critical rank's step)",
        _table(_time_rows(result), shares=_shares(result.breakdown)),
    ]
    if len(result.stages) > 1:
        parts += ["<b>Stages</b>", _table(_stage_rows(result))]
    colour = "inherit" if result.fits else "#d55e00"
    parts.append(f'<b style="color:{colour}">{escape(memory_line(result))}</b>')
    parts.append(_table(_memory_rows(result), shares=_shares(_memory_parts(result))))
    parts += [f"<div>⚠ {escape(one)}</div>" for one in result.warnings]
    parts.append(f"<small>{escape(_effort(result))}</small>")
    if picture is not None:
        data = b64encode(picture).decode()
        parts.append(f'<img style="max-width:100%" src="data:image/png;base64,{data}">')
    return '<div style="line-height:1.4">' + "\n".join(parts) + "</div>"


def headline(result: "Result") -> list[Row]:
    """The numbers that a reader came for."""
    rate = f"{count(result.model_tflops_per_gpu)} model TFLOP/s per GPU"
    return [
        (
            "step time",
            human_seconds(result.step_time),
            f"{interval(result)}, {count(result.samples_per_second)} samples/s",
        ),
        (
            "tokens/s",
            count(result.tokens_per_second),
            f"{count(result.tokens_per_second_per_gpu)} per GPU",
        ),
        (
            "MFU",
            percent(result.mfu),
            f"HFU {percent(result.hfu)}, {rate}",
        ),
        ("bubble", percent(result.bubble_fraction), "of the stages' time"),
    ]


def interval(result: "Result") -> str:
    """Where a measured step time would lie: "(17.6 to 19.0, 90 %)", in its unit if it can."""
    shown = [human_seconds(time) for time in (result.step_time_low, result.step_time_high)]
    unit = human_seconds(result.step_time).partition(" ")[2]
    if all(text.endswith(f" {unit}") for text in shown):
        shown = [text.removesuffix(f" {unit}") for text in shown]
    return f"({' to '.join(shown)}, {100 * result.interval['level']:.0f} %)"


# --- Rows ----------------------------------------------------------------------------------------


def _time_rows(result: "Result", *, bars: bool = False) -> Iterator[Row]:
    """Causes with their seconds and shares, largest first; the printed figures add up."""
    causes, step = _sorted(result.breakdown), result.step_time
    scale, unit = next(
        ((size, name) for size, name in ((1.0, "s"), (1e-3, "ms")) if step >= size), (1e-6, "us")
    )
    times = apportioned([seconds / scale for seconds in causes.values()], 3)
    shares = apportioned([100 * seconds / step for seconds in causes.values()], 1)
    longest = max(causes.values(), default=1.0)
    for (cause, seconds), amount, share in zip(causes.items(), times, shares, strict=True):
        row = (cause, f"{amount:.3f} {unit}", f"{share:.1f} %")
        yield (*row, bar(seconds / longest)) if bars else row
    yield "total", f"{step / scale:.3f} {unit}", "100.0 %"


def _stage_rows(result: "Result") -> list[Row]:
    """A row a stage; neighbours that print alike share one."""
    known = any("memory" in stage for stage in result.stages)
    title = ("stage", "layers", "compute", "bubble", *(["memory"] if known else []))
    rows = [_stage_row(stage, result.step_time) for stage in result.stages]
    merged: list[Row] = [title]
    for figures, group in groupby(enumerate(rows), key=lambda numbered: numbered[1]):
        numbers = [number for number, _ in group]
        name = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        merged.append((name, *figures))
    if len(merged) > _MOST_STAGES:
        half = _MOST_STAGES // 2
        hidden = len(merged) - 2 * half
        merged[half:-half] = [(f"... {hidden} more",)]
    return merged


def _stage_row(stage: Mapping[str, Any], step: float) -> Row:
    row = (
        str(stage["layers"]),
        human_seconds(stage["compute"]),
        f"{human_seconds(stage['bubble'])} ({percent(stage['bubble'] / step)})",
    )
    return (*row, human_bytes(stage["memory"])) if "memory" in stage else row


def _memory_rows(result: "Result", *, bars: bool = False) -> Iterator[Row]:
    parts = _memory_parts(result)
    longest = max([*parts.values(), 1.0])
    for name, size in parts.items():
        yield (name, human_bytes(size), bar(size / longest)) if bars else (name, human_bytes(size))


def _memory_parts(result: "Result") -> dict[str, float]:
    return _sorted({part: size for part, size in result.memory_per_gpu.items() if part != "total"})


def _effort(result: "Result") -> str:
    return (
        f"Simulated {count(result.ranks)} ranks as {count(result.roles)} roles, "
        f"{count(result.operations)} operations, in {human_seconds(result.wall_seconds)}."
        f"{_sources(result.device_time)}"
    )


def _sources(shares: Mapping[str, float]) -> str:
    """What kernel times rest on, where a profile has its share."""
    if "profile" not in shares:
        return ""
    measured, modelled = percent(shares["profile"]), percent(shares.get("model", 0.0))
    return f"\nKernel times: {measured} from the profile, {modelled} from the model."


def _sorted(parts: Mapping[str, float]) -> dict[str, float]:
    """Largest first, what is nothing left out."""
    return {k: v for k, v in sorted(parts.items(), key=lambda item: -item[1]) if v > 0}


def _shares(parts: Mapping[str, float]) -> list[float]:
    """Each part over the largest one, in the order of the rows."""
    values = list(_sorted(parts).values())
    return [value / values[0] for value in values]


# --- Figures and layout --------------------------------------------------------------------------


def apportioned(values: Sequence[float], digits: int) -> list[float]:
    """Values rounded so that they add up to their rounded sum (largest remainders).

    >>> apportioned([33.333, 33.333, 33.333], 0), apportioned([0.06, 0.06, 0.88], 1)
    ([34.0, 33.0, 33.0], [0.1, 0.0, 0.9])
    """
    scale = 10**digits
    floors = [int(value * scale) for value in values]
    left = round(sum(values) * scale) - sum(floors)
    order = sorted(range(len(values)), key=lambda i: floors[i] - values[i] * scale)
    for i in order[: max(left, 0)]:
        floors[i] += 1
    return [floor / scale for floor in floors]


def bar(share: float) -> str:
    """A bar of block characters, in eighths of one.

    >>> bar(0.05)
    '█▌'
    """
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def count(value: float) -> str:
    """A number with three digits or all of its integer ones.

    >>> count(7303.9), count(3.5664), count(114.12), count(64)
    ('7,304', '3.57', '114', '64')
    """
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percent(share: float) -> str:
    """A fraction in per cent.

    >>> percent(0.39374)
    '39.4 %'
    """
    return f"{100 * share:.1f} %"


def _indented(rows: Iterable[Row]) -> str:
    """Columns aligned: the first to the left, figures to the right, bars and notes to the left."""
    lines = list(rows)
    columns = max(map(len, lines), default=0)
    widths = [
        max((len(row[i]) for row in lines if len(row) > i), default=0) for i in range(columns)
    ]
    return "\n".join(_line(row, widths) for row in lines)


def _line(row: Row, widths: Sequence[int]) -> str:
    cells = [
        cell.ljust(width) if i == 0 or not _is_figure(cell) else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=False))
    ]
    return ("  " + "  ".join(cells)).replace("  (", " (").rstrip()


def _is_figure(cell: str) -> bool:
    return cell[:1].isdigit() and not cell.endswith(("/s", "GPU"))


def _table(rows: Iterable[Row], shares: Sequence[float] = ()) -> str:
    """An HTML table; `shares` draw a bar behind the first rows."""
    cell = "padding:1px 12px 1px 4px;border:none;"
    lines = []
    for i, row in enumerate(rows):
        cells = [
            f'<td style="{cell}text-align:{"right" if _is_figure(text) and j else "left"}">'
            f"{escape(text)}</td>"
            for j, text in enumerate(row)
        ]
        if i < len(shares):
            width = round(180 * shares[i])
            stripe = f"background:#0072b2;height:0.7em;width:{width}px"
            cells.append(f'<td style="{cell}"><div style="{stripe}"></div></td>')
        lines.append(f'<tr style="background:none">{"".join(cells)}</tr>')
    return f'<table style="margin:2px 0 8px 0">{"".join(lines)}</table>'
