"""`sim capture`: a training script runs on a fake device in a fake world, and is recorded."""

import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sim.capture import autograd, cuda, device, distributed, transformers
from sim.capture.log import Log
from sim.capture.patches import Patches
from sim.capture.recorder import Recorder, frames_of, mode
from sim.capture.refusals import refused
from sim.capture.streams import Streams
from sim.capture.versions import known_torch
from sim.config.errors import InputError
from sim.recording.allocator_settings import VARIABLES
from sim.recording.recording import PARTS, Recording

GPUS_PER_NODE = 8


class _Enough(BaseException):
    """The step that counts has ended."""


def capture_script(
    script: Path, arguments: Sequence[str] = (), *, world: int, rank: int = 0
) -> Recording:
    """What rank `rank` of a `world` does between the ends of a script's first and second optimizer
    step. The script runs, as `python script` would. Raises `InputError`.
    """
    if not script.is_file():
        raise InputError(str(script), "is not a file", "name a training script")

    def run() -> None:
        old = sys.argv, list(sys.path)
        sys.argv, sys.path[:0] = [str(script), *arguments], [str(script.resolve().parent)]
        try:
            runpy.run_path(str(script), run_name="__main__")
        finally:
            sys.argv, sys.path[:] = old

    folder = str(script.resolve().parent)
    name = script.name
    return capture(
        run, world=world, rank=rank, folder=folder, script=name, arguments=tuple(arguments)
    )


def capture(
    run: Callable[[], Any],
    *,
    world: int,
    rank: int = 0,
    folder: str = "",
    script: str = "function",
    arguments: tuple[str, ...] = (),
) -> Recording:
    """What `run` does between the ends of its first and second optimizer step.

    `run` makes its model on "cuda" and trains it for two steps at least, as in a script; nothing
    that was patched meanwhile stays so. `folder` holds the source whose lines are told. Raises
    `InputError` for what cannot be recorded.

    >>> from sim.capture.capture import capture  # doctest: +SKIP
    >>> recording = capture(train, world=512)  # doctest: +SKIP
    """
    torch = known_torch()
    if not 0 <= rank < world:
        raise InputError("--rank", f"there is no rank {rank}", f"use 0 to {world - 1}")
    log, steps = Log(), _Steps(torch)
    with _fake_world(torch, log, world, rank, folder or os.getcwd()), refused(script, folder):
        with steps.counted(log), suppress(_Enough):
            run()
        if steps.done < 2:
            what = f"took {steps.done} steps of an optimizer, and the second one is recorded"
            raise InputError(script, what, "let it train for two steps or more")
        return Recording(
            script=script,
            arguments=arguments,
            torch=torch.__version__,
            world=world,
            rank=rank,
            parameters=steps.parameters,
            allocator=next(filter(None, map(os.environ.get, VARIABLES)), ""),
            operators=tuple(log.operators.entries),
            groups=tuple(log.groups.entries),
            lines=tuple(log.lines.entries),
            events=tuple(log.events),
            memory=log.allocations(),
        )


@contextmanager
def _fake_world(torch: Any, log: Log, world: int, rank: int, folder: str) -> Iterator[None]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    patches, old = Patches(), dict(os.environ)
    streams = Streams(torch.device("cuda", 0), log)

    def stream() -> int:
        return streams.current

    local = rank % GPUS_PER_NODE
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(min(world, GPUS_PER_NODE)),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
    }
    try:
        device.pretend(torch, patches)
        cuda.install(torch, patches, streams, gpus=GPUS_PER_NODE, index=local)
        autograd.install(torch, patches, log, stream)
        distributed.install(torch, patches, log, stream, world=world, rank=rank)
        transformers.install(patches)
        own = Recorder(torch, log, streams, frames_of(folder, log))
        with FakeTensorMode(allow_non_fake_inputs=True), mode(torch, own):
            yield
    finally:
        patches.restore()
        os.environ.clear()
        os.environ |= old


class _Steps:
    """Counts the steps of optimizers; one inside another's counts with it."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.done, self.parameters = torch, 0, 0
        self._depth = 0
        self._optimizers: dict[int, Any] = {}

    @contextmanager
    def counted(self, log: Log) -> Iterator[None]:
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        def begins(optimizer: Any, *_: Any) -> None:
            self._depth, log.phase = self._depth + 1, "optimizer"
            self._optimizers[id(optimizer)] = optimizer

        def ended(*_: Any) -> None:
            self._depth -= 1
            if self._depth:
                return
            self.done, log.phase = self.done + 1, "forward"
            self._name_parts(log)
            if self.done == 2:
                raise _Enough
            log.begin()

        hooks = (
            register_optimizer_step_pre_hook(begins),
            register_optimizer_step_post_hook(ended),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _name_parts(self, log: Log) -> None:
        """Say which blocks hold parameters, gradients and the optimizer's state."""
        weights = [
            weight
            for optimizer in self._optimizers.values()
            for group in optimizer.param_groups
            for weight in group["params"]
        ]
        self.parameters = sum(int(weight.numel()) for weight in weights)
        for weight in weights:
            self._name(log, weight, "parameters")
            self._name(log, weight.grad, "gradients")
        for optimizer in self._optimizers.values():
            for state in optimizer.state.values():
                for value in state.values():
                    self._name(log, value, "optimizer")

    def _name(self, log: Log, tensor: Any, part: str) -> None:
        local = getattr(tensor, "_local_tensor", tensor)
        if not isinstance(local, self.torch.Tensor):
            return
        if block := log.block_of(local.untyped_storage()):
            log.parts[block] = PARTS.index(part)
