"""How is a script made to see a GPU and a world of ranks that do not exist?"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from types import SimpleNamespace
from typing import Any

from sim.config.dataclass import dataclass
from sim.hardware.device import Device
from sim.jobs.capturing import (
    autograd,
    cuda,
    device,
    distributed,
    modules,
    recurrent,
    stand_ins,
    triton_kernels,
)
from sim.jobs.capturing.compiled import Compiled
from sim.jobs.capturing.contents import TensorContents
from sim.jobs.capturing.cuda import Streams
from sim.jobs.capturing.exchange import Exchange, install_messages
from sim.jobs.capturing.gradients import Gradients, install_loaders
from sim.jobs.capturing.lines import SourceLines
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches
from sim.jobs.capturing.recorder import Recorder, mode
from sim.jobs.capturing.results import ResultCache
from sim.jobs.capturing.router import Router
from sim.jobs.capturing.steps import install_pipelining
from sim.jobs.capturing.values import UnknownValues
from sim.model.experts.routing import Routing

GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRank:
    """The place of a captured rank.

    It is `rank` of a `world`. Its messages travel by an `exchange`. The lines of the source in
    `folder` are recorded. `routing` sends tokens to experts. The script sees `device`. `values`
    gives unknown values by line.
    """

    world: int
    rank: int
    folder: str
    exchange: Exchange
    routing: Routing
    device: Device
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def local(self) -> int:
        """The rank on its node."""
        return self.rank % GPUS_PER_NODE


@contextmanager
def fake_world(torch: Any, log: Log, place: CapturedRank) -> Iterator[Recorder]:
    """Record in a log all work inside this context; nothing stays patched afterwards."""
    patches, old = Patches(), dict(os.environ)
    streams = Streams(torch.device("cuda", 0), log)
    os.environ |= _environment(place)
    try:
        _patch(torch, patches, log, streams, place)
        fake, recorder = _recorder(torch, patches, log, streams, place)
        with fake, mode(torch, recorder):
            yield recorder
    finally:
        patches.restore()
        os.environ.clear()
        os.environ |= old


def _patch(torch: Any, patches: Patches, log: Log, streams: Streams, place: CapturedRank) -> None:
    """Patch torch to show a device, its streams, and the other ranks."""

    def stream() -> int:
        return streams.current

    autograd.without_threads(torch, patches)
    device.pretend(torch, patches)
    gpus = min(place.world, GPUS_PER_NODE)
    cuda.install(torch, patches, streams, place.device, gpus=gpus, index=place.local)
    autograd.install(torch, patches, log, stream)
    modules.install_batch_norm(torch, patches, streams.sync)
    distributed.install(torch, patches, log, stream, world=place.world, rank=place.rank)
    install_messages(torch, patches, place.exchange)
    install_pipelining(patches, log)


def _recorder(
    torch: Any, patches: Patches, log: Log, streams: Streams, place: CapturedRank
) -> tuple[Any, Recorder]:
    """Return the mode in which tensors are fake, and the recorder of operators."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    lines = streams.line = SourceLines(place.folder, log)
    patches.set(FakeTensorMode, "cache", {})  # shared by all modes, but "cuda" differs by rank
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    distributed.asynchronous(torch, patches, fake)
    original = SimpleNamespace(**vars(torch))  # DeepSpeed's zero.Init replaces functions of torch
    contents = TensorContents(original, Router(original, place.routing), ResultCache(torch, fake))

    def where() -> str:
        return log.line(lines())

    log.where = lambda: where() if lines() >= 0 else ""
    modules.install(torch, patches, lambda: _unsaved(log, streams, where()))
    modules.install_transformers(
        patches,
        lambda tensor: contents.of(tensor) is not None,
        lambda note: log.notes.number(f"{where()}: {note}"),
    )
    values = UnknownValues(log, where, place.values, place.folder)
    values.install(torch, patches)
    gradients = Gradients(torch, where)
    gradients.install(patches)
    recorder = Recorder(
        torch, log, streams, lines, exchange=place.exchange, contents=contents, values=values,
        gradients=gradients,
    )  # fmt: skip
    install_loaders(torch, patches, log, gradients)
    stand_ins.install(torch, patches, log.notes.number)
    recurrent.install(torch, patches, log.notes.number)
    triton_kernels.install(torch, patches, recorder.launched, log.notes.number)
    Compiled(torch, patches, log, where, recorder).install()
    return fake, recorder


def _unsaved(log: Log, streams: Streams, line: str) -> None:
    streams.sync()
    log.notes.number(f"{line}: a checkpoint is not written and takes no time")


def _environment(place: CapturedRank) -> Mapping[str, str]:
    """The environment of a process of torchrun."""
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.world),
        "LOCAL_RANK": str(place.local),
        "LOCAL_WORLD_SIZE": str(min(place.world, GPUS_PER_NODE)),
        "GROUP_RANK": str(place.rank // GPUS_PER_NODE),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
    }
