"""What real processes do: gloo on this CPU, counted below autograd as operators run.

Each rank counts the FLOPs of a step by torch's own table (`torch.utils.flop_counter`), the bytes of
its collectives and messages, and the bytes of all storages that are alive.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from weakref import finalize

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.multiprocessing import get_context
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

_NAMES = {  # of operators without underscores, by how they begin
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allgather": "all_gather",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "send": "send",
    "recv": "recv",
}
_IN_FP32 = (  # by CUDA's autocast (ATen/autocast_mode.h), not by a CPU's
    ("softmax", "int"),
    ("log_softmax", "int"),
    ("layer_norm", "default"),
    ("rms_norm", "default"),
    ("pow", "Tensor_Scalar"),
)
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_UNFOLDS = (DTensor, AsyncCollectiveTensor)  # into tensors of this rank


@dataclass
class Counted:
    """A step of a rank: FLOPs, the bytes of each call by kind, the most bytes alive."""

    flops: float = 0.0
    calls: dict[str, Counter[int]] = field(default_factory=dict)
    peak: int = 0


class Counting(TorchDispatchMode):
    """Counts the steps after `skipped` updates, until the next update."""

    def __init__(self, skipped: int) -> None:
        super().__init__()
        self.skipped, self.updates, self.found = skipped, 0, Counted()
        self.alive, self.live = 0, dict[int, int]()

        resize = torch.UntypedStorage.resize_

        def resized(storage: Any, size: int) -> Any:
            resize(storage, size)
            self._track(storage)
            return storage

        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign,assignment]

    def updated(self) -> None:
        self.updates += 1
        self.found.peak = self.found.peak or self.alive * self.within

    @property
    def within(self) -> bool:
        return self.updates == self.skipped

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, _UNFOLDS) for kind in types):
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        made = [tensor for tensor in _tensors(out) if type(tensor) in _PLAIN]
        if not made and any(issubclass(kind, FakeTensor) for kind in types):
            return out  # DTensor works out a shape
        for tensor in made:
            self._track(tensor.untyped_storage())
        if not self.within:
            return out
        packet = func._overloadpacket
        if packet in flop_registry:
            self.found.flops += flop_registry[packet](*args, **(kwargs or {}), out_val=out)
        if func.namespace in ("c10d", "_c10d_functional"):
            self._call(packet.__name__.strip("_"), args, made)
        return out

    def _call(self, name: str, args: Any, made: list[torch.Tensor]) -> None:
        kind = next((kind for start, kind in _NAMES.items() if name.startswith(start)), None)
        if kind is not None:
            size = max(sum(map(_size, _tensors(side))) for side in (*args[:2], made))
            self.found.calls.setdefault(kind, Counter())[size] += 1

    def _track(self, storage: Any) -> None:
        key, size = id(storage), -(-storage.nbytes() // 512) * 512  # as CUDA's allocator rounds
        before = self.live.get(key)
        if before is None:
            finalize(storage, self._gone, key)
        self.live[key] = size
        self.alive += size - (before or 0)
        if self.within:
            self.found.peak = max(self.found.peak, self.alive)

    def _gone(self, key: int) -> None:
        self.alive -= self.live.pop(key, 0)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _autocast_as_on_cuda() -> torch.library.Library:
    """A CPU's autocast keeps in fp32 what CUDA's does, for as long as the answer lives."""
    library = torch.library.Library("aten", "IMPL", "AutocastCPU")
    for name, overload in _IN_FP32:
        library.impl(f"{name}.{overload}".removesuffix(".default"), _in_fp32(name, overload))
    return library


def _in_fp32(name: str, overload: str) -> Callable[..., torch.Tensor]:
    operator = getattr(getattr(torch.ops.aten, name), overload)

    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return operator(*tree_map(_wide, args), **kwargs)  # type: ignore[no-any-return]

    return run


def _wide(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16
    return value.float() if half else value


Train = Callable[[Callable[[], None]], None]  # is told of what to call behind each update


class Peers:
    """So many processes, each a rank of a world."""

    def __init__(self, world: int, meeting: Path) -> None:
        context = get_context("fork")
        self.ends: list[Connection] = []
        self.processes = []
        for rank in range(world):
            here, there = context.Pipe()
            given = rank, world, meeting, there
            self.processes.append(context.Process(target=_work, args=given, daemon=True))
            self.processes[-1].start()
            self.ends.append(here)

    def count(self, script: Any) -> list[Counted]:
        """What each rank does in the third step of a script with `train("cpu", 3, after)`. Raises
        `RuntimeError` for what a rank raises."""
        for end in self.ends:
            end.send(script)
        found = [end.recv() for end in self.ends]
        if failed := [one for one in found if isinstance(one, str)]:
            raise RuntimeError(f"on a CPU: {failed[0]}")
        return found

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def _work(rank: int, world: int, meeting: Path, end: Connection) -> None:
    """Each script runs in a process of its own, with which the threads of its groups end."""
    policy = _autocast_as_on_cuda()  # noqa: F841
    for number in count():
        script = end.recv()
        process = os.fork()
        if not process:
            end.send(_counted(script, rank, world, Path(f"{meeting}-{number}")))
            os._exit(0)
        if status := os.waitpid(process, 0)[1]:
            end.send(f"rank {rank} ended with status {status}")


def _counted(script: Any, rank: int, world: int, meeting: Path) -> Counted | str:
    """A script's third step, or what it raises."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    counting = Counting(2)
    try:
        with counting:
            script.train("cpu", 3, counting.updated)
        return counting.found
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
