"""How is a training script recorded? It runs on a fake device in a fake world."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from sim.config import counting
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.hardware.device import load
from sim.jobs.capturing.checked import shortcomings
from sim.jobs.capturing.device import known_torch
from sim.jobs.capturing.entry import Entry, Late, Script, limited
from sim.jobs.capturing.exchange import Exchange, captured_together
from sim.jobs.capturing.lines import text_of
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.refusals import refused
from sim.jobs.capturing.router import routing_of
from sim.jobs.capturing.steps import Enough, StepCounter
from sim.jobs.capturing.values import UnknownValues
from sim.jobs.capturing.world import CapturedRank, fake_world
from sim.jobs.recorded.allocator_settings import VARIABLES
from sim.jobs.recorded.recording import Recording
from sim.model.experts.routing import Routing


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Options of a capture.

    With `stages`, ranks of the other pipeline stages are recorded, too, each in its own process:
    all ranks that exchange messages with this rank. `routing` says how tokens are spread over
    experts (a text for `routing_of`, or a `Routing`). `steps` are the first and the last of the
    script's steps to record. `values` sets unknown values by line of the script ("train.py:7"). A
    rank trains on `samples` samples a step (0: as many as its loader yields). The script sees this
    `gpu`. After `timeout` seconds the capture gives up (0: never). `marks` says how the script
    marks the ends of steps: "profiler" or "nvtx=TEXT".
    """

    stages: bool = False
    routing: str | Routing = "balanced"
    steps: tuple[int, int] | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    samples: int = 0
    gpu: str = "h100-80gb-sxm"
    timeout: float = 0.0
    marks: str = ""


def capture(
    train: Callable[..., Any],
    *,
    world: int = 0,
    mesh: Mapping[str, int] | None = None,
    rank: int = 0,
    **choices: Any,
) -> tuple[Recording, ...]:
    """Record a step of `train` on one rank.

    `train` makes its model on "cuda" and trains it for two steps at least, like a script. A `mesh`
    (sizes by name, the outermost first) is passed to `train` as a `DeviceMesh`, and gives the
    number of ranks. Without a mesh, this is `world`. Further arguments are fields of `Choices`. All
    patches of torch are undone. Raises `InputError` for a step that cannot be recorded, and any
    exception of `train` itself.

    >>> recordings = sim.capture(train, mesh={"dp": 64, "tp": 8})  # doctest: +SKIP
    >>> sim.run(RecordedScenario(record=recordings, topology="dgx-h100-ndr"))  # doctest: +SKIP
    """
    size = prod((mesh or {}).values())
    if world and mesh and world != size:
        raise InputError(
            "sim.capture", f"a mesh of {size} ranks in a world of {world}", "give only the mesh"
        )
    known = [key.name for key in fields(Choices)]
    if unknown := [key for key in choices if key not in known]:
        raise InputError.unknown("sim.capture", f"no argument {unknown[0]!r}", unknown[0], known)
    name = getattr(train, "__name__", "function")

    def run() -> None:
        train(_made(mesh)) if mesh else train()

    return captured(run, world=world or size, rank=rank, script=name, choices=Choices(**choices))


def _made(mesh: Mapping[str, int]) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cuda", tuple(mesh.values()), mesh_dim_names=tuple(mesh))


def capture_script(
    script: Path,
    arguments: Sequence[str] = (),
    *,
    world: int,
    rank: int = 0,
    **choices: Any,
) -> tuple[Recording, ...]:
    """Record a script, which runs as `python script` would; see `capture`."""
    if not script.is_file():
        raise InputError(str(script), "is not a file", "name a training script")
    return capture_entry(Script(script), arguments, world=world, rank=rank, **choices)


def capture_entry(
    entry: Entry, arguments: Sequence[str] = (), *, world: int, rank: int = 0, **choices: Any
) -> tuple[Recording, ...]:
    """Record a script, a module or code; see `capture`."""
    return captured(
        lambda: entry.run(arguments),
        world=world,
        rank=rank,
        folder=entry.folder,
        script=entry.name,
        arguments=tuple(arguments),
        choices=Choices(**choices),
    )


def captured(
    run: Callable[[], None],
    *,
    world: int,
    rank: int,
    choices: Choices,
    folder: str = "",
    script: str,
    arguments: tuple[str, ...] = (),
) -> tuple[Recording, ...]:
    """The recordings of a call of `run`, in the order of their ranks."""
    torch = known_torch()
    if not 0 <= rank < world:
        raise InputError("--rank", f"there is no rank {rank}", f"use 0 to {world - 1}")
    if choices.steps and not 2 <= choices.steps[0] <= choices.steps[1]:
        fault = "the steps to record run upwards from 2, as step 1 holds the set-up"
        raise InputError("--step", fault, "name steps from 2 on, such as 3 or 10..14")
    routing = choices.routing
    device = load(choices.gpu, where="--gpu")
    law = routing_of(routing) if isinstance(routing, str) else routing

    def one(rank: int, exchange: Exchange) -> Recording:
        place = CapturedRank(
            world=world,
            rank=rank,
            folder=folder or os.getcwd(),
            exchange=exchange,
            routing=law,
            device=device,
            values=choices.values,
        )
        return _recorded(torch, run, place, script, arguments, choices)

    if not choices.stages:
        return (one(rank, Exchange()),)
    found = captured_together(one, rank)
    return tuple(found[rank] for rank in sorted(found))


def _told(steps: StepCounter, log: Log, values: UnknownValues) -> str:
    when = f"in step {steps.done + 1}" if steps.done else "before the first optimizer step"
    return f"{when}: {log.seen:,} operators{values.told()}"


def _recorded(
    torch: Any,
    run: Callable[[], None],
    place: CapturedRank,
    script: str,
    arguments: tuple[str, ...],
    choices: Choices,
) -> Recording:
    log = Log()
    steps = StepCounter(torch, log, choices.steps)
    with fake_world(torch, log, place) as recorder, refused(script, place.folder):
        values = recorder.values
        told = partial(_told, steps, log, values)
        with (
            steps.counted(choices.marks),
            counting.told(told),
            limited(choices.timeout, values.place, told),
        ):
            _until_enough(run, steps, log)
        steps.choose(script, values.last)
        values.check_used(alone=not choices.stages)
        for note in shortcomings(log, place.world):
            log.notes.number(note)
        return Recording(
            script=script,
            arguments=arguments,
            torch=torch.__version__,
            world=place.world,
            rank=place.rank,
            parameters=steps.parameters,
            samples=choices.samples or log.samples,
            gpu=choices.gpu,
            allocator=next(filter(None, map(os.environ.get, VARIABLES)), ""),
            operators=tuple(log.operators.entries),
            groups=tuple(log.groups.entries),
            lines=tuple(log.lines.entries),
            texts=tuple(text_of(place.folder, line) for line in log.lines.entries),
            places=dict(log.places),
            passes=tuple(log.passes.entries),
            events=tuple(log.events),
            memory=log.allocations(),
            notes=tuple(log.notes.entries),
        )


def _until_enough(run: Callable[[], None], steps: StepCounter, log: Log) -> None:
    """Run until the step to record is over. If the script fails after a step that can be recorded,
    its exception becomes a note."""
    try:
        run()
    except Enough:
        return
    except (InputError, KeyboardInterrupt, Late):
        raise
    except BaseException as error:
        if not steps.satisfied:
            raise
        if not (isinstance(error, SystemExit) and not error.code):
            said = str(error).partition("\n")[0][:80]
            log.notes.number(f"ended in step {steps.done + 1} by {type(error).__name__}: {said}")
