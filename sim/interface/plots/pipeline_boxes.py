"""The elements of a pipeline's picture: a coloured box for every pass and every transfer."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from matplotlib.colors import to_rgb

from sim.engine.timeline import Span, Timeline
from sim.program.actions import NAMES, Kind
from sim.program.causes import COMPUTE, OPTIMIZER, PIPELINE, Cause

Colour = tuple[float, float, float]

COLOURS: Mapping[Kind, Colour] = {  # of a pass; other work has the colour of its cause
    "F": (0.0, 0.447, 0.698),
    "B": (0.902, 0.45, 0.0),
    "I": (0.96, 0.8, 0.3),
    "W": (0.0, 0.3, 0.2),
}
TOP, PASS_HEIGHT = -0.45, 0.62  # of a pass, within a row of height 1 around its number
_LANE = 0.13  # height of a lane of transfers


@dataclass(frozen=True, slots=True)
class Box:
    """A coloured rectangle and its label."""

    left: float
    right: float
    top: float
    height: float
    colour: Colour
    meaning: str
    number: str = ""
    chunk: int | None = None  # of a pass where there are several

    @property
    def told(self) -> str:
        """The meaning, with the chunk."""
        return self.meaning if self.chunk is None else f"{self.meaning} (chunk {self.chunk})"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a legend: a meaning and its colours, of chunks from dark to light."""

    meaning: str
    colours: tuple[Colour, ...]


def legend(boxes: Iterable[Box]) -> list[Entry]:
    """An entry for each kind of pass and each other meaning, passes first."""
    found: dict[str, dict[int, Colour]] = {}
    for box in boxes:
        found.setdefault(box.meaning, {}).setdefault(-1 if box.chunk is None else box.chunk,
                                                     box.colour)  # fmt: skip
    return [_entry(meaning, found[meaning]) for meaning in sorted(found, key=_legend_place)]


def _entry(meaning: str, colours: Mapping[int, Colour]) -> Entry:
    chunks = sorted(colours)
    shades = tuple(colours[chunk] for chunk in chunks)
    if len(chunks) < 2:
        return Entry(meaning, shades)
    return Entry(f"{meaning}, chunks {chunks[0]} to {chunks[-1]}", shades)


def _legend_place(meaning: str) -> tuple[int, str]:
    """Passes in their order, then the optimizer and messages, then everything else."""
    order = (*NAMES.values(), OPTIMIZER, PIPELINE)
    return order.index(meaning) if meaning in order else len(order), meaning


def boxes_of(timeline: Timeline, rows: int, scale: float) -> Iterator[Box]:
    """The boxes of the first rows, times in units of `scale` (s)."""
    chunks = 1 + max((span.args.get("chunk", 0) for span in timeline.spans), default=0)
    last = max((span.args.get("microbatch", 0) for span in timeline.spans), default=0)
    lanes = _lanes(timeline.spans)
    for span in timeline.spans:
        if span.role >= rows:
            continue
        if computes(span):
            yield _pass_box(span, chunks, last, scale)
        else:
            for cause, begin, end in _in_flight(span):
                top = span.role + TOP + PASS_HEIGHT + _LANE * lanes[cause]
                yield Box(begin / scale, end / scale, top, 0.85 * _LANE, _rgb(cause), cause)


def computes(span: Span) -> bool:
    """Whether a span is a pass or other work of the compute stream, not a transfer."""
    return "parts" in span.args or "phase" in span.args


def _pass_box(span: Span, chunks: int, last: int, scale: float) -> Box:
    kind, microbatch = span.args.get("phase", ""), span.args.get("microbatch", -1)
    place = span.start / scale, span.end / scale, span.role + TOP, PASS_HEIGHT
    if kind not in COLOURS:
        meaning = "other compute" if span.cause == COMPUTE else span.cause
        return Box(*place, _rgb(span.cause), meaning)
    chunk = span.args.get("chunk", 0)
    colour = shade(COLOURS[kind], chunk, chunks, max(microbatch, 0) / max(last, 1))
    number = "" if microbatch < 0 else str(microbatch)
    return Box(*place, colour, NAMES[kind], number, chunk if chunks > 1 else None)


@cache
def _rgb(cause: Cause) -> Colour:
    return to_rgb(cause.colour)


@lru_cache(maxsize=65536)
def shade(base: Colour, chunk: int, chunks: int, progress: float) -> Colour:
    """Chunks from dark to light, and within a chunk a little lighter from first to last."""
    step = chunk / (chunks - 1) if chunks > 1 else 0.45
    return _mix(base, -0.38 + 0.84 * step + 0.14 * progress)


def _mix(colour: Colour, light: float) -> Colour:
    """Towards white by `light` in 0 ... 1, towards black below 0.

    >>> _mix((0.0, 0.5, 1.0), 0.5), _mix((0.0, 0.5, 1.0), -0.5)
    ((0.5, 0.75, 1.0), (0.0, 0.25, 0.5))
    """
    red, green, blue = (c + (1.0 - c) * light if light > 0 else c * (1.0 + light) for c in colour)
    return red, green, blue


def _in_flight(span: Span) -> Iterable[tuple[Cause, float, float]]:
    """The transfers of a span, without the waiting before them."""
    if "transfers" in span.args:
        return [(cause, begin, end) for cause, _, begin, end in span.args["transfers"]]
    return [(span.cause, span.start, span.end)]


def _lanes(spans: Iterable[Span]) -> dict[Cause, int]:
    """Pipeline communication in the first lane under the passes, all other in the second."""
    causes = dict.fromkeys(cause for span in spans for cause, _, _ in _in_flight(span))
    return {cause: int(cause != PIPELINE) for cause in causes}
