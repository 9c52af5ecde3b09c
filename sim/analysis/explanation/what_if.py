"""Step times by replay, on a grid of faster or slower parts and larger or smaller microbatches."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product

import numpy as np

from sim import questions
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.readable import human_bytes
from sim.kind import Setup
from sim.parallel.memory import fullest, memories
from sim.questions import Floats, Speeds
from sim.scenario.setup import PlanSetup
from sim.uncertainty.draws import bandwidth

SPEEDS = (0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)  # factors on the scenario's speeds
MICROBATCH = "sequences of a microbatch"
_LEAST = 5e-4  # share of a step that a knob must change
_KNOBS = {  # each knob with prefixes of the names of resources whose seconds it changes
    "speed of the GPUs' kernels": ("gemm", "attention", "stream"),
    "speed of collectives inside passes": ("collective",),
    "bandwidth of all other transfers": (bandwidth(""),),
    "speed of the hosts' launches": ("host",),
}
_GRIDS = (SPEEDS, (0.5, 0.67, 1.0, 1.5, 2.0), (0.5, 1.0, 2.0))  # from fine to coarse
_LEAST_PLAYS = 16  # two knobs at three speeds, and the plays that find the two knobs
_MOST = 3  # the most knobs of speed: every knob multiplies the columns
_FACTORS = (0.25, 0.5, 2.0, 4.0)  # factors on the job's own microbatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A quantity that may be changed: its `values` in words, the index of the step's `own` value,
    and `notes` on each value, if any."""

    name: str
    values: tuple[str, ...]
    own: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Step times (s) by the values of the `knobs`; the last knob's value changes fastest."""

    knobs: tuple[Knob, ...]
    times: tuple[float, ...]


def what_if(setup: Setup, *, microbatches: bool = True, plays: int = 0) -> WhatIf:
    """Return the knobs that matter most, and step times at all combinations of their values. The
    times are columns of replays, one replay for each microbatch that the plan allows with the same
    global batch. Some steps cannot be replayed in this way, such as steps of a script with several
    streams. Such a step is played instead, at most `plays` times.

    Kernels at twice the speed take half as long; launches and latencies keep their seconds.
    Everything that waits for a changed operation starts earlier or later (`limits`). Raises
    `InputError` for a step that cannot be replayed.
    """
    try:
        record = questions.speeds(setup, many=True)
    except InputError:
        if plays < _LEAST_PLAYS:
            raise
        return _played(questions.speeds(setup), plays - len(_KNOBS))
    felt = _felt(record)
    sizes = list(_microbatches(questions.planned(setup))) if microbatches and setup.job else []
    speeds = tuple(f"{speed:g} x" for speed in SPEEDS)
    knobs = [Knob(name=name, values=speeds, own=SPEEDS.index(1.0)) for name in felt]
    if len(sizes) < 2:
        return WhatIf(knobs=tuple(knobs), times=tuple(map(float, _grid(record, felt))))
    played = [record if other is setup else questions.speeds(other, many=True) for other in sizes]
    place = next(number for number, other in enumerate(sizes) if other is setup)
    times = np.concatenate([_grid(record, felt) for record in played])
    return WhatIf(knobs=(_knob(sizes, place), *knobs), times=tuple(map(float, times)))


def _played(record: Speeds, plays: int) -> WhatIf:
    """Return the knobs that change the step most, with as many speeds as `plays` allow."""
    felt = _felt(record, most=2 if plays < 3**_MOST else _MOST)
    fine = (speeds for speeds in _GRIDS if len(speeds) ** len(felt) <= plays)
    speeds = next(fine, _GRIDS[-1])
    texts = tuple(f"{speed:g} x" for speed in speeds)
    knobs = [Knob(name=name, values=texts, own=speeds.index(1.0)) for name in felt]
    return WhatIf(knobs=tuple(knobs), times=tuple(map(float, _grid(record, felt, speeds))))


def _felt(speeds: Speeds, most: int = _MOST) -> tuple[str, ...]:
    """Return the knobs of speed that change the step most."""
    alone = np.ones((len(speeds.kinds), 1 + len(_KNOBS)))
    for column, kinds in enumerate(_KNOBS.values(), 1):
        alone[_rows(speeds, kinds), column] = 1.0 / SPEEDS[0]
    step, *slower = map(float, speeds.times(alone))
    cost = {name: time / step - 1.0 for name, time in zip(_KNOBS, slower, strict=True)}
    felt = [name for name in _KNOBS if cost[name] > _LEAST]
    first = sorted(felt, key=lambda name: -cost[name])[:most]
    return tuple(sorted(first, key=list(_KNOBS).index))


def _grid(speeds: Speeds, felt: Sequence[str], stops: Sequence[float] = SPEEDS) -> Floats:
    """Return step times (s) at all speeds of the knobs."""
    points = list(product(stops, repeat=len(felt)))
    factors = np.ones((len(speeds.kinds), len(points)))
    for number, name in enumerate(felt):
        factors[_rows(speeds, _KNOBS[name])] = 1.0 / np.array([point[number] for point in points])
    return speeds.times(factors)


def _rows(speeds: Speeds, kinds: Sequence[str]) -> list[int]:
    return [number for number, name in enumerate(speeds.kinds) if name.startswith(tuple(kinds))]


def _microbatches(setup: PlanSetup) -> Iterator[PlanSetup]:
    """Yield the job with each size of microbatch that its plan allows, in ascending order. The
    job's own size is among them."""
    plan = setup.job.plan
    microbatch = plan.microbatch
    sizes = {
        microbatch,
        *(int(microbatch * factor) for factor in _FACTORS if (microbatch * factor).is_integer()),
    }
    for size in sorted(sizes):
        if size == microbatch:
            yield setup
            continue
        with suppress(InputError):
            yield setup.replanned(replace(plan, microbatch=size))


def _knob(sizes: Sequence[PlanSetup], place: int) -> Knob:
    plans = [size.job.plan for size in sizes]
    return Knob(
        name=MICROBATCH,
        values=tuple(f"{plan.microbatch} ({plan.microbatches} a step)" for plan in plans),
        own=place,
        notes=tuple(map(_memory, sizes)),
    )


def _memory(setup: PlanSetup) -> str:
    held, room = fullest(memories(setup.job, setup.program)), setup.job.device.usable_memory
    fits = "fits" if held.fits(room) else "does not fit"
    return f"{human_bytes(held.reserved)} of {human_bytes(room)} of memory: {fits}"
