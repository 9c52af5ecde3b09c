"""Ways to make a job fit where no layout fits: choices that were not tried, or more GPUs."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, combinations

from sim.analysis.search.choices.named import choices, said
from sim.analysis.search.evaluate import Candidate
from sim.analysis.search.layouts import Pruned, layouts, meshes
from sim.analysis.search.space import Space
from sim.analysis.search.tasks import families
from sim.config.errors import InputError
from sim.config.readable import human_bytes
from sim.simulate import garbage_left

_SAVING = ("recompute", "zero", "moments", "offload")  # choices that save memory, cheapest first
_MOST, _DOUBLINGS = 3, 8  # the most remedies that are printed, and the most doublings of the GPUs


def remedies(space: Space) -> list[str]:
    """Return options of the same command with which a layout fits, and the memory of a frugal
    layout. The options change one choice, else two, or take more GPUs. All of them were tried."""
    with garbage_left():
        found = list(_by_choices(space))
        more = _by_gpus(space)
    return [*found[: _MOST - 1], *more]


def _by_choices(space: Space) -> Iterator[str]:
    """Yield options that change one choice, or two where no single choice helps."""
    wider = {name: words for name in _names(space) if (words := _words(space, name)) is not None}
    for count in (1, 2):
        some = False
        for names in combinations(wider, count):
            tried = _with(space, {name: wider[name] for name in names})
            if found := _first(tried):
                chosen, some = said(tried, found.job.plan), True
                options = [f"--only {name}={chosen[name]}" for name in names if chosen.get(name)]
                yield _told(options, tried, found)
        if some:
            return


def _names(space: Space) -> list[str]:
    """Return the choices that may save memory, and the choices that the user held fixed."""
    names = dict.fromkeys((*_SAVING, *space.only, *space.without))
    return [name for name in names if name not in space.untold]


def _words(space: Space, name: str) -> tuple[str, ...] | None:
    """Return all values of a choice that the software has. () stands for any number. None means
    that the search has already tried all values."""
    choice = next(choice for choice in choices() if choice.name == name)
    fixed = name in space.only or name in space.without
    if choice.words is None:
        return () if fixed else None
    return tuple(word for word in choice.words() if not space.lacks(name, word))


def _with(space: Space, wider: Mapping[str, tuple[str, ...]]) -> Space:
    only = {name: words for name, words in space.only.items() if name not in wider}
    only |= {name: words for name, words in wider.items() if words}
    without = {name: words for name, words in space.without.items() if name not in wider}
    return replace(space, only=only, without=without)


def _by_gpus(space: Space) -> list[str]:
    """Double the number of GPUs until a layout fits, and return the option for this number."""
    for doubling in range(1, _DOUBLINGS + 1):
        gpus = space.gpus << doubling
        try:
            tried = replace(space, topology=space.topology.with_gpus(gpus))
        except InputError:
            return []
        if found := _first(tried):
            return [_told([f"--gpus {gpus}"], tried, found)]
    return []


def most_gpus(space: Space) -> int:
    """Return the largest number of GPUs that remedies try."""
    return max(space.gpus, min(space.gpus << _DOUBLINGS, space.topology.size))


def _told(options: list[str], space: Space, found: Candidate) -> str:
    room = human_bytes(space.topology.device.usable_memory)
    return f"{' '.join(options)} fits ({human_bytes(found.memory)} of {room})"


def _first(space: Space) -> Candidate | None:
    """Return a layout that fits, of the most frugal layouts; None where none fits."""
    frugal = _frugal(space)
    some = families(frugal, meshes(frugal, Pruned()), time.perf_counter())
    for mesh in chain.from_iterable(some):
        mesh_layouts = mesh.layouts()
        for passes in mesh_layouts.suited:
            if mesh_layouts.least_of_passes(passes) <= mesh_layouts.capacity:
                for plan in layouts(frugal, passes):
                    small = mesh_layouts.least_memory(plan) <= mesh_layouts.capacity
                    if small and (found := mesh_layouts.candidate(plan)) is not None:
                        return found
        mesh.forget()
    return None


_FRUGAL = {"microbatch": "1", "schedule": "1f1b", "interleave": "1", "recompute": "full"}
_TOGETHER = ("schedule", "interleave")


def _frugal(space: Space) -> Space:
    """Return the space with each free choice held at the value that takes least memory, if this
    value is available. 1F1B has a single chunk on each stage, so the schedule and `interleave` are
    held together."""
    apart = () if all(space.allows(name, _FRUGAL[name]) for name in _TOGETHER) else _TOGETHER
    free = {
        name: (word,)
        for name, word in _FRUGAL.items()
        if name not in apart
        and name not in space.only
        and name not in space.without
        and not space.lacks(name, word)
    }
    return replace(space, only={**space.only, **free})
