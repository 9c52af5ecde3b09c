"""Pipeline schedules: in which order a stage runs its forward and backward passes.

A schedule is, for each stage, the passes in their order; it says nothing of time. A microbatch
goes through chunk 0 on stages 0 ... p-1, then chunk 1 on stages 0 ... p-1 and so on, and back the
same way. With F and B the passes of one microbatch through one stage's layers, and no
communication, the bubble's share of a step on p equal stages with m microbatches is

    naive                            (p-1) / p
    GPipe, 1F1B                      (p-1) / (m + p-1)
    interleaved, v chunks a stage    (p-1) / (v m + p-1)

(Narayanan et al. 2021, arXiv 2104.04473, section 2.2, gives the same as ratios to the ideal time,
(p-1)/m and (p-1)/(v m).) Schedules that split the backward pass in two (zero bubble: Qi et al.
2024, arXiv 2401.10241; DualPipe) are left out.
"""

import re
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Literal, NamedTuple, get_args

from sim.config.errors import InputError

Phase = Literal["F", "B"]
Name = Literal["naive", "gpipe", "1f1b", "interleaved"]


class Pass(NamedTuple):
    """One microbatch, forward or backward, through one of a stage's chunks of layers."""

    phase: Phase
    microbatch: int
    chunk: int = 0


Schedule = tuple[tuple[Pass, ...], ...]


def schedule(name: Name, stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """The schedule of that name.

    Raises `InputError` for an unknown name, or where only `interleaved` takes chunks.

    >>> print(to_text(schedule("1f1b", stages=2, microbatches=2)))
    0F0 0F1 0B0 0B1
    1F0 1B0 1F1 1B1
    """
    if name == "interleaved":
        return interleaved(stages, microbatches, chunks)
    if name not in get_args(Name):
        known = ", ".join(get_args(Name))
        raise InputError("plan, schedule", f"no schedule named {name!r}", f"known: {known}")
    if chunks != 1:
        what = f"{name} runs one chunk a stage, not {chunks}"
        raise InputError("plan, schedule", what, 'set schedule = "interleaved" or interleave = 1')
    plain: dict[str, Callable[[int, int], Schedule]]
    plain = {"naive": naive, "gpipe": gpipe, "1f1b": one_f_one_b}
    return plain[name](stages, microbatches)


def naive(stages: int, microbatches: int) -> Schedule:
    """A microbatch goes all the way forward and back before the next one starts.

    >>> print(to_text(naive(stages=2, microbatches=2)))
    0F0 0B0 0F1 0B1
    1F0 1B0 1F1 1B1
    """
    _refuse_nonsense(stages, microbatches)
    one = tuple(Pass(phase, i) for i in range(microbatches) for phase in get_args(Phase))
    return (one,) * stages


def gpipe(stages: int, microbatches: int) -> Schedule:
    """All forward passes, then all backward passes.

    Source: Huang et al. 2019, arXiv 1811.06965, figure 2c. Backward passes go in the order of the
    microbatches, as in Narayanan et al. 2021, figure 3, and PyTorch; the first paper's figure
    has them in reverse, which takes the same time and memory.

    >>> print(to_text(gpipe(stages=2, microbatches=2)))
    0F0 0F1 0B0 0B1
    1F0 1F1 1B0 1B1
    """
    _refuse_nonsense(stages, microbatches)
    one = tuple(Pass(phase, i) for phase in get_args(Phase) for i in range(microbatches))
    return (one,) * stages


def one_f_one_b(stages: int, microbatches: int) -> Schedule:
    """PipeDream-flush: stage s runs p-s-1 forwards, then one forward and one backward in turn.

    Never more than p-s microbatches are in flight on stage s.
    Source: Narayanan et al. 2021, section 2.2.1, figure 4 (top); Megatron-LM,
    `forward_backward_pipelining_without_interleaving`.

    >>> print(to_text(one_f_one_b(stages=2, microbatches=3)))
    0F0 0F1 0B0 0F2 0B1 0B2
    1F0 1B0 1F1 1B1 1F2 1B2
    """
    _refuse_nonsense(stages, microbatches)
    forward = [Pass("F", i) for i in range(microbatches)]
    backward = [Pass("B", i) for i in range(microbatches)]
    return tuple(_alternate(forward, backward, stages - stage - 1) for stage in range(stages))


def interleaved(stages: int, microbatches: int, chunks: int) -> Schedule:
    """Interleaved 1F1B: each stage holds `chunks` (v) pieces of the model, p apart.

    Microbatches go in groups of p through chunk 0, then the same group through chunk 1, and so
    on; backward likewise from the last chunk. Stage s starts with 2 (p-s-1) + (v-1) p forwards.
    Source: Narayanan et al. 2021, section 2.2.2, figure 4 (bottom); Megatron-LM,
    `get_pp_rank_microbatches` and `get_schedule_table`. (Its first versions ran everything forward
    before anything backward where m = p; the bubble is the same.)

    Raises `InputError` where the microbatches do not divide by the stages.

    >>> print(to_text(interleaved(stages=2, microbatches=2, chunks=2)))
    0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1
    1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1
    """
    _refuse_nonsense(stages, microbatches, chunks)
    if microbatches % stages:
        raise InputError(
            "plan",
            f"{microbatches} microbatches do not divide by {stages} interleaved stages",
            f"use a multiple of {stages} (change the batch or the microbatch), or interleave = 1",
        )
    forward = _grouped("F", stages, microbatches, range(chunks))
    backward = _grouped("B", stages, microbatches, range(chunks)[::-1])
    more = (chunks - 1) * stages
    return tuple(
        _alternate(forward, backward, 2 * (stages - stage - 1) + more) for stage in range(stages)
    )


def _grouped(phase: Phase, stages: int, microbatches: int, chunks: Iterable[int]) -> list[Pass]:
    """Groups of p microbatches, each through the chunks in turn."""
    return [
        Pass(phase, first + i, chunk)
        for first in range(0, microbatches, stages)
        for chunk in chunks
        for i in range(stages)
    ]


def _alternate(forward: list[Pass], backward: list[Pass], warmup: int) -> tuple[Pass, ...]:
    """`warmup` forwards, one forward and one backward in turn, then the backwards left over."""
    warmup = min(warmup, len(forward))
    steady = len(forward) - warmup
    pairs = zip(forward[warmup:], backward[:steady], strict=True)
    return (*forward[:warmup], *(one for pair in pairs for one in pair), *backward[steady:])


def _refuse_nonsense(stages: int, microbatches: int, chunks: int = 1) -> None:
    given = {"pp": stages, "microbatches": microbatches, "interleave": chunks}
    for name, count in given.items():
        if count < 1:
            raise InputError("plan", f"{name} = {count}", f"set {name} >= 1")


def peak_in_flight(schedule: Schedule, stage: int) -> int:
    """The most passes a stage has run forward and not yet back: what its activations pay for.

    It counts chunks: an interleaved stage holds 1/v of its layers' activations for each.

    >>> [peak_in_flight(one_f_one_b(4, 8), stage) for stage in range(4)]
    [4, 3, 2, 1]
    >>> peak_in_flight(interleaved(4, 8, 2), 0)  # p v (1 + (p-1)/(p v)): Korthikanti et al. 2022
    11
    """
    return max(accumulate(1 if one.phase == "F" else -1 for one in schedule[stage]))


def chunks_in(schedule: Schedule) -> int:
    """How many chunks a stage holds (v)."""
    return 1 + max(one.chunk for passes in schedule for one in passes)


def bubble_naive(stages: int) -> float:
    """(p-1)/p: one stage works, the others wait (Huang et al. 2019, figure 2b)."""
    return (stages - 1) / stages


def bubble(stages: int, microbatches: int, chunks: int = 1) -> float:
    """(p-1)/(v m + p-1), the bubble's share of a step: GPipe, 1F1B (v = 1) and interleaved.

    Equal stages, no communication. Source: Huang et al. 2019, section 2.3 for v = 1; Narayanan et
    al. 2021, section 2.2.

    >>> bubble(8, 64), bubble(8, 64, chunks=3)
    (0.09859154929577464, 0.035175879396984924)
    """
    return (stages - 1) / (chunks * microbatches + stages - 1)


def to_text(schedule: Schedule) -> str:
    """As PyTorch writes schedules: a rank a line, `[stage]F[microbatch]` or `[stage]B...`.

    PyTorch numbers the pieces of the model: chunk c on stage s of p is c p + s. Source:
    torch/distributed/pipelining/schedules.py, `_Action`.

    >>> from_text(to_text(interleaved(2, 4, 2))) == interleaved(2, 4, 2)
    True
    """
    stages = len(schedule)
    return "\n".join(
        " ".join(f"{one.chunk * stages + stage}{one.phase}{one.microbatch}" for one in passes)
        for stage, passes in enumerate(schedule)
    )


_ACTION = re.compile(r"(\d+)(F|B|I|W|UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)(\d*)")
_IMPLIED = {"UNSHARD", "RESHARD", "REDUCE_GRAD", "SEND_F", "RECV_F", "SEND_B", "RECV_B"}


def from_text(text: str) -> Schedule:
    """Read action strings, a rank a line, separated by spaces or commas (PyTorch's CSV).

    Communication actions are left out: they follow from the passes. Raises `InputError` for
    actions that are none, run on the wrong rank, or split the backward pass (I, W).

    >>> from_text("0F0 0B0")
    ((Pass(phase='F', microbatch=0, chunk=0), Pass(phase='B', microbatch=0, chunk=0)),)
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return tuple(
        tuple(_passes(line, rank, len(lines), f"schedule, line {rank + 1}"))
        for rank, line in enumerate(lines)
    )


def _passes(line: str, rank: int, ranks: int, where: str) -> Iterable[Pass]:
    for word in line.replace(",", " ").split():
        action = _ACTION.fullmatch(word)
        if action is None:
            raise InputError(where, f"{word!r} is no action", "write like 0F0 or 3B7")
        piece, kind, microbatch = action.groups()
        if kind in _IMPLIED:
            continue
        if kind not in get_args(Phase) or not microbatch:
            remedy = "use F and B with a microbatch; schedules that split B in I and W are left out"
            raise InputError(where, f"{word!r} is no whole pass", remedy)
        chunk, owner = divmod(int(piece), ranks)
        if owner != rank:
            raise InputError(where, f"{word!r} belongs to rank {owner} of {ranks}", "move it there")
        yield Pass("F" if kind == "F" else "B", int(microbatch), chunk)
