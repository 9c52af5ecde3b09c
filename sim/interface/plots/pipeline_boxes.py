"""Compute the boxes of a pipeline's picture: a coloured box for every pass and every transfer."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.timeline import Columns, Role
from sim.program.causes import COMPUTE, OPTIMIZER, PIPELINE
from sim.program.schedule import KINDS, NAMES, Kind

Colour = tuple[float, float, float]
Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

COLOURS: Mapping[Kind, Colour] = {  # colours of passes; other work has the colour of its cause
    "F": (0.0, 0.447, 0.698),
    "B": (0.902, 0.45, 0.0),
    "I": (0.96, 0.8, 0.3),
    "W": (0.0, 0.3, 0.2),
}
TOP, PASS_HEIGHT = -0.45, 0.62  # of a pass, relative to its row number; a row has height 1
_LANE = 0.13  # height of a lane of transfers
_NONE = -1


@dataclass(frozen=True, eq=False)
class Boxes:
    """Coloured rectangles; arrays have shape [boxes], and `colour` has [boxes, 3]. `passes` marks
    boxes of the compute stream, in the upper part of their row. `meaning` is an index into
    `meanings`. `number` and `chunk` are the microbatch and the chunk of a pass (-1: none, or a
    single chunk)."""

    left: Floats
    right: Floats
    top: Floats
    height: Floats
    passes: NDArray[np.bool_]
    colour: Floats
    meaning: Indices
    meanings: tuple[str, ...]
    number: Indices
    chunk: Indices

    def __len__(self) -> int:
        return len(self.left)

    @cached_property
    def kinds(self) -> dict[str, tuple[Indices, Indices]]:
        """The chunks of each meaning, and the index of the first box of each chunk."""
        found = {}
        for place, meaning in enumerate(self.meanings):
            boxes = np.flatnonzero(self.meaning == place)
            chunks, first = np.unique(self.chunk[boxes], return_index=True)
            if len(boxes):
                found[meaning] = chunks, boxes[first]
        return found


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a legend: a meaning and its colours, by chunk from dark to light."""

    meaning: str
    colours: tuple[Colour, ...]


def legend(*drawn: Boxes) -> list[Entry]:
    """Return a legend's entries: kinds of passes first, then all other meanings."""
    found: dict[str, dict[int, Colour]] = {}
    for boxes in drawn:
        for meaning, (chunks, first) in boxes.kinds.items():
            shades = found.setdefault(meaning, {})
            for chunk, box in zip(chunks.tolist(), first.tolist(), strict=True):
                red, green, blue = boxes.colour[box].tolist()
                shades.setdefault(chunk, (red, green, blue))
    return [_entry(meaning, found[meaning]) for meaning in sorted(found, key=_legend_place)]


def _entry(meaning: str, colours: Mapping[int, Colour]) -> Entry:
    chunks = sorted(chunk for chunk in colours if chunk != _NONE) or [_NONE]
    shades = tuple(colours[chunk] for chunk in chunks)
    if len(chunks) < 2:
        return Entry(meaning, shades)
    return Entry(f"{meaning}, chunks {chunks[0]} to {chunks[-1]}", shades)


def _legend_place(meaning: str) -> tuple[int, str]:
    """Return the sort key of a meaning: passes, then the optimizer and messages, then the rest."""
    order = (*NAMES.values(), OPTIMIZER, PIPELINE)
    return order.index(meaning) if meaning in order else len(order), meaning


def rows_of(roles: Sequence[Role], most: int) -> list[Role]:
    """Choose at most `most` roles, and return them in their order. Slow roles have priority, then a
    role of the first and the last stage, then a role of each other stage, then the rest."""
    heads = {role.stage: role.index for role in reversed(roles)}
    ends = {heads[0], heads[max(heads)]} if 0 in heads else set()

    def place(role: Role) -> tuple[bool, bool, bool, int]:
        head = heads[role.stage] == role.index
        return role.slowdown == 1.0, role.index not in ends, not head, role.index

    return sorted(sorted(roles, key=place)[:most], key=lambda role: role.index)


def boxes_of(columns: Columns, roles: Sequence[Role], scale: float) -> Boxes:
    """Return the boxes of some roles, each role on its row, with times in units of `scale` (s)."""
    kind, microbatch, chunk = columns.actions.T
    chunks, last = 1 + int(chunk.max(initial=0)), int(microbatch.max(initial=0))
    drawn = [role.index for role in roles]
    shown = np.isin(columns.role, drawn)
    kind, microbatch, chunk = kind[shown], microbatch[shown], chunk[shown]
    role, passes, cause = (
        np.searchsorted(drawn, columns.role[shown]),
        columns.computes[shown],
        columns.cause[shown],
    )
    # Pipeline communication is in the first lane below the passes, other transfers in the second.
    lane = np.array([float(label != PIPELINE) for label in columns.causes] or [0.0])[cause]
    names = [NAMES[pass_kind] for pass_kind in KINDS]
    names += ["other compute" if label == COMPUTE else label for label in columns.causes]
    names += columns.causes
    meaning = np.where(passes, len(KINDS) + cause, len(KINDS) + len(columns.causes) + cause)
    plain = np.array([to_rgb(label.colour) for label in columns.causes]).reshape(-1, 3)
    shades = shade(np.array([COLOURS[pass_kind] for pass_kind in KINDS])[kind], chunk, chunks,
                   np.maximum(microbatch, 0) / max(last, 1))  # fmt: skip
    of_pass = kind >= 0
    meanings = tuple(dict.fromkeys(names))
    places = np.array([meanings.index(name) for name in names])
    return Boxes(
        left=columns.begin[shown] / scale,
        right=columns.end[shown] / scale,
        top=TOP + np.where(passes, 0.0, PASS_HEIGHT + _LANE * lane) + role.astype(np.float64),
        height=np.where(passes, PASS_HEIGHT, 0.85 * _LANE),
        passes=passes,
        colour=np.where(of_pass[:, None], shades, plain[cause]),
        meaning=places[np.where(of_pass, kind, meaning)],
        meanings=meanings,
        number=np.where(of_pass, microbatch, _NONE),
        chunk=np.where(of_pass & (chunks > 1), chunk, _NONE),
    )


def shade(base: Floats, chunk: Indices, chunks: int, progress: Floats) -> Floats:
    """Return the colours of passes: chunks from dark to light, and a chunk's microbatches a little
    lighter from first to last (`progress` 0 to 1)."""
    step = np.asarray(chunk) / (chunks - 1) if chunks > 1 else 0.45
    return _mix(np.asarray(base), -0.38 + 0.84 * step + 0.14 * np.asarray(progress))


def _mix(colour: Floats, light: Floats) -> Floats:
    """Mix a colour with white by `light` from 0 to 1, or with black below 0.

    >>> _mix(np.array([0.0, 0.5, 1.0]), np.array([0.5, -0.5])).tolist()
    [[0.5, 0.75, 1.0], [0.0, 0.25, 0.5]]
    """
    light = np.asarray(light)[..., None]
    mixed: Floats = np.where(light > 0, colour + (1.0 - colour) * light, colour * (1.0 + light))
    return mixed
