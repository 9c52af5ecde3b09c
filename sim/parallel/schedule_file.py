"""Schedules in PyTorch's format: a line for each rank, with actions such as `[piece]F[microbatch]`.

Pieces are numbered along the model, so the lines also say which stage holds which pieces.
Source: torch/distributed/pipelining/schedules.py, `_Action` and `_dump_csv`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sim.config import gate, reads
from sim.config.errors import InputError
from sim.program.schedule import KINDS, Action, Kind, Order, Places, Schedule


class Cell(NamedTuple):
    """An action as it is written, and whether it overlaps the action after it."""

    kind: str
    microbatch: int
    piece: int
    overlaps: bool


_ACTION = re.compile(
    r"(\d{1,9})(F|B|I|W|UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)(\d{0,9})"
)
_PAIR = re.compile(r"\(([^()]*)\)OVERLAP_F_B")


def to_text(schedule: Schedule) -> str:
    """Return a schedule in PyTorch's format.

    >>> from sim.program.v_places import in_a_v
    >>> print(to_text(Schedule(((Action("F", 0), Action("F", 0, 1)),), in_a_v(1))))
    0F0,1F0
    """
    pairs = schedule.pairs or (frozenset[int](),) * schedule.stages
    rows = zip(schedule.orders, schedule.pieces, pairs, strict=True)
    return "\n".join(",".join(_words(*row)) for row in rows)


def _words(order: Order, pieces: Sequence[int], pairs: Collection[int]) -> Iterator[str]:
    words = [f"{pieces[a.chunk]}{a.kind}{a.microbatch}" for a in order]
    for place, word in enumerate(words):
        if place in pairs:
            yield f"({word};{words[place + 1]})OVERLAP_F_B"
        elif place - 1 not in pairs:
            yield word


def load(path: str, stages: int, microbatches: int) -> Schedule:
    """Return the schedule in a file. Raises `InputError` if it is invalid or of other sizes."""
    schedule = from_text(reads.text(Path(path)), where=path)
    if schedule.stages != stages:
        fault = f"has {schedule.stages} lines for {stages} stages"
        raise InputError(path, fault, "write one line a stage, or change pp")
    _check_complete(schedule, microbatches, path)
    refuse_deadlock(schedule, path)
    return schedule


def from_text(text: str, *, where: str = "schedule") -> Schedule:
    """Read the actions of a rank from each line, separated by spaces or commas.

    Actions of communication are ignored, as communication follows from the passes. Raises
    `InputError` for any other text.

    >>> from_text("0F0 0B0").orders
    ((Action(kind='F', microbatch=0, chunk=0), Action(kind='B', microbatch=0, chunk=0)),)
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(where, "has no actions", "write actions such as 0F0 0B0, one line a stage")
    rows = [list(_cells(line, f"{where}, line {number}")) for number, line in enumerate(lines, 1)]
    pieces = _places(rows, where)
    orders = tuple(
        tuple(Action(_kind(cell.kind), cell.microbatch, piece.index(cell.piece)) for cell in row)
        for row, piece in zip(rows, pieces, strict=True)
    )
    pairs = tuple(frozenset(n for n, cell in enumerate(row) if cell.overlaps) for row in rows)
    return Schedule(orders, pieces, Path(where).stem, pairs if any(pairs) else ())


def _cells(line: str, where: str) -> Iterator[Cell]:
    paired = _PAIR.sub(lambda pair: pair[1].replace(";", "& "), line)
    for marked in paired.replace(",", " ").split():
        word = marked.removesuffix("&")
        action = _ACTION.fullmatch(word)
        if action is None:
            raise InputError(where, f"{gate.shown(word)} is not an action", "write e.g. 0F0 or 3B7")
        piece, kind, microbatch = action.groups()
        if kind not in KINDS:
            continue
        if not microbatch:
            raise InputError(where, f"{word!r} names no microbatch", f"write e.g. {word}0")
        yield Cell(kind, int(microbatch), int(piece), marked != word)


def _kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind == name)


def _places(rows: Sequence[Sequence[Cell]], where: str) -> Places:
    """Return the pieces of each stage, ascending. Raises `InputError` if pieces are missing, or are
    spread unevenly over the stages."""
    places = tuple(tuple(sorted({cell.piece for cell in row})) for row in rows)
    held = Counter(piece for place in places for piece in place)
    alike = len({len(place) for place in places}) == len(set(held.values())) == 1
    if not alike or sorted(held) != list(range(len(held))) or len(held) % len(rows):
        fault = "does not give each stage equally many pieces, and each piece equally many stages"
        raise InputError(where, fault, "number the pieces from 0 along the model")
    copies = Counter(places)
    if any(copies[place] != held[place[0]] for place in places):
        fault = "gives stages some of their pieces in common, but not all"
        raise InputError(where, fault, "let stages share all of their pieces, or none")
    return places


def check(schedule: Schedule, microbatches: int, where: str) -> None:
    """Raise `InputError` for an order that misses or repeats a pass, or waits for itself."""
    _check_complete(schedule, microbatches, where)
    refuse_deadlock(schedule, where)


def _check_complete(schedule: Schedule, microbatches: int, where: str) -> None:
    """Raise `InputError` unless every microbatch goes once forward and back through every piece, on
    one of the stages that hold the piece."""
    sharing: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for stage, pieces in enumerate(schedule.pieces):
        sharing[pieces].append(stage)
    for pieces, stages in sharing.items():
        orders = [schedule.orders[stage] for stage in stages]
        passes = sorted(
            (pieces[a.chunk], a.microbatch, part)
            for order in orders
            for a in order
            for part in _parts(a)
        )
        wanted = [(p, m, part) for p in pieces for m in range(microbatches) for part in "FIW"]
        if passes != wanted:
            odd = next(iter(set(passes) ^ set(wanted)), None) or passes[0]  # a pass runs twice
            who = f"stage {' or '.join(map(str, stages))}"
            fault = f"{who} does not run {odd[2]} of microbatch {odd[1]} of piece {odd[0]} once"
            remedy = f"the plan has {microbatches} microbatches; B stands for I and W together"
            raise InputError(where, fault, remedy)


def _parts(action: Action) -> str:
    return "IW" if action.kind == "B" else action.kind


def refuse_deadlock(schedule: Schedule, where: str = "plan, schedule") -> None:
    """Raise `InputError` if actions wait for each other in a circle; name one of these actions."""
    done: set[tuple[str, int, int]] = set()  # part, microbatch, piece
    at = [0] * schedule.stages
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(schedule.orders):
            while (
                at[stage] < len(order) and _missing(schedule, stage, order[at[stage]], done) is None
            ):
                action = order[at[stage]]
                piece = schedule.pieces[stage][action.chunk]
                done.update((part, action.microbatch, piece) for part in _parts(action))
                at[stage], moved = at[stage] + 1, True
    for stage, order in enumerate(schedule.orders):
        if at[stage] < len(order):
            action = order[at[stage]]
            piece = schedule.pieces[stage][action.chunk]
            part, microbatch, needed = _missing(schedule, stage, action, done) or ("", 0, 0)
            fault = (
                f"stage {stage} waits forever at {piece}{action.kind}{action.microbatch} for "
                f"{needed}{part}{microbatch}"
            )
            raise InputError(where, fault, "change the order of the actions")


def _missing(
    schedule: Schedule, stage: int, action: Action, done: set[tuple[str, int, int]]
) -> tuple[str, int, int] | None:
    """Return a pass that an action needs and that has not run yet, or None."""
    piece, last = schedule.pieces[stage][action.chunk], schedule.cuts - 1
    if action.kind == "F":
        needs = [("F", piece - 1)] if piece else []
    elif action.kind == "W":
        needs = [("I", piece)]
    else:
        needs = [("F", piece), *([("I", piece + 1)] if piece < last else [])]
    wanted = ((part, action.microbatch, place) for part, place in needs)
    return next((need for need in wanted if need not in done), None)
