"""How is a training script recorded? It runs on a fake device in a fake world."""

import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

from sim.config import progress
from sim.config.errors import InputError
from sim.jobs.capturing.device import known_torch
from sim.jobs.capturing.exchange import Exchange, captured_together
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.refusals import refused
from sim.jobs.capturing.router import routing_of
from sim.jobs.capturing.steps import Enough, StepCounter
from sim.jobs.capturing.world import CapturedRank, fake_world
from sim.jobs.recorded.allocator_settings import VARIABLES
from sim.jobs.recorded.recording import Recording
from sim.model.experts.routing import Routing


def capture(
    train: Callable[..., Any],
    *,
    world: int = 0,
    mesh: Mapping[str, int] | None = None,
    rank: int = 0,
    stages: bool = False,
    routing: str | Routing = "balanced",
) -> tuple[Recording, ...]:
    """Record `train` on one rank, from the end of its first optimizer step to the end of its
    second.

    `train` makes its model on "cuda" and trains it for two steps at least, like a script. A `mesh`
    (sizes by name, the outermost first) is handed to it as a `DeviceMesh`, and says how many ranks
    there are; else `world` does. With `stages` the ranks of the other pipeline stages are recorded,
    too, each in its own process: all ranks that exchange messages with this one. `routing` says how
    tokens are spread over experts (`routing_of`, or a `Routing`). Nothing stays patched. Raises
    `InputError` for a script that cannot be recorded.

    >>> recordings = sim.capture(train, mesh={"dp": 64, "tp": 8})  # doctest: +SKIP
    >>> sim.run(RecordedScenario(record=recordings, topology="dgx-h100-ndr"))  # doctest: +SKIP
    """
    size = prod((mesh or {}).values())
    if world and mesh and world != size:
        raise InputError(
            "sim.capture", f"a mesh of {size} ranks in a world of {world}", "give only the mesh"
        )
    name = getattr(train, "__name__", "function")

    def run() -> None:
        train(_made(mesh)) if mesh else train()

    return captured(
        run, world=world or size, rank=rank, stages=stages, routing=routing, script=name
    )


def _made(mesh: Mapping[str, int]) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cuda", tuple(mesh.values()), mesh_dim_names=tuple(mesh))


def capture_script(
    script: Path,
    arguments: Sequence[str] = (),
    *,
    world: int,
    rank: int = 0,
    stages: bool = False,
    routing: str | Routing = "balanced",
) -> tuple[Recording, ...]:
    """Record a script, which runs as `python script` would. Raises `InputError`."""
    if not script.is_file():
        raise InputError(str(script), "is not a file", "name a training script")
    folder = str(script.resolve().parent)

    def run() -> None:
        old = sys.argv, list(sys.path)
        sys.argv, sys.path[:0] = [str(script), *arguments], [folder]
        try:
            runpy.run_path(str(script.resolve()), run_name="__main__")
        finally:
            sys.argv, sys.path[:] = old

    return captured(
        run,
        world=world,
        rank=rank,
        stages=stages,
        routing=routing,
        folder=folder,
        script=script.name,
        arguments=tuple(arguments),
    )


def captured(
    run: Callable[[], None],
    *,
    world: int,
    rank: int,
    stages: bool,
    routing: str | Routing,
    folder: str = "",
    script: str,
    arguments: tuple[str, ...] = (),
) -> tuple[Recording, ...]:
    """The recordings of a call of `run`, in the order of their ranks."""
    torch = known_torch()
    if not 0 <= rank < world:
        raise InputError("--rank", f"there is no rank {rank}", f"use 0 to {world - 1}")
    folder = folder or os.getcwd()
    law = routing_of(routing) if isinstance(routing, str) else routing

    def one(rank: int, exchange: Exchange) -> Recording:
        place = CapturedRank(world=world, rank=rank, folder=folder, exchange=exchange, routing=law)
        return _recorded(torch, run, place, script, arguments)

    if not stages:
        return (one(rank, Exchange()),)
    found = captured_together(one, rank)
    return tuple(found[rank] for rank in sorted(found))


def _told(steps: StepCounter, log: Log) -> str:
    what = "before the first optimizer step" if not steps.done else "recording the second step"
    return f"{what}: {log.seen:,} operators"


def _recorded(
    torch: Any,
    run: Callable[[], None],
    place: CapturedRank,
    script: str,
    arguments: tuple[str, ...],
) -> Recording:
    log, steps = Log(), StepCounter(torch)
    with fake_world(torch, log, place), refused(script, place.folder):
        with steps.counted(log), progress.told(lambda: _told(steps, log)), suppress(Enough):
            run()
        if steps.done < 2:
            what = f"took {steps.done} steps of an optimizer, and the second one is recorded"
            raise InputError(script, what, "let it train for two steps or more")
        return Recording(
            script=script,
            arguments=arguments,
            torch=torch.__version__,
            world=place.world,
            rank=place.rank,
            parameters=steps.parameters,
            allocator=next(filter(None, map(os.environ.get, VARIABLES)), ""),
            operators=tuple(log.operators.entries),
            groups=tuple(log.groups.entries),
            lines=tuple(log.lines.entries),
            passes=tuple(log.passes.entries),
            events=tuple(log.events),
            memory=log.allocations(),
            notes=tuple(log.notes.entries),
        )
