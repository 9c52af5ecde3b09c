"""A training script run for real, by
`python -m sim.analysis.calibration.real_run ANSWER STEPS COUNT SCRIPT ...`.

Every rank times the steps of its optimizer, as many as asked for after the first; rank 0 writes
what it saw to the file ANSWER, as JSON. On a CPU bytes are counted (COUNT is 1) in a run of their
own, since each operator is then looked at.
"""

import json
import os
import runpy
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from weakref import finalize


class _Enough(BaseException):
    """All steps have ended."""


class RealRun:
    """Stamps and bytes of a script's steps on this device."""

    def __init__(self, torch: Any, steps: int) -> None:
        self.torch, self.steps = torch, steps
        self.cuda = bool(torch.cuda.is_available())
        self.stamps: list[float] = []
        self.parameters = 0
        self._first = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raises `_Enough` at the end of the last step."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        hook = register_optimizer_step_post_hook(self._stepped)
        try:
            yield
        finally:
            hook.remove()

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        self._first = self._first or id(optimizer)
        if id(optimizer) != self._first:  # of several, the one that steps first counts
            return
        if self.cuda:
            self.torch.cuda.synchronize()
        if not self.stamps:
            weights = {id(w): w for group in optimizer.param_groups for w in group["params"]}
            self.parameters = sum(int(weight.numel()) for weight in weights.values())
            if self.cuda:
                self.torch.cuda.reset_peak_memory_stats()
        self.stamps.append(time.perf_counter())
        if len(self.stamps) > self.steps:
            raise _Enough


def counting(torch: Any) -> Any:
    """A mode that counts the most bytes that the storages of tensors hold at once (`most`)."""
    from torch.utils import _python_dispatch
    from torch.utils._pytree import tree_leaves

    mode: Any = _python_dispatch.TorchDispatchMode

    class Counting(mode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.live: dict[int, int] = {}
            self.now = self.most = 0

        def gone(self, key: int) -> None:
            self.now -= self.live.pop(key, 0)

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            for one in tree_leaves(out):
                if isinstance(one, torch.Tensor):
                    storage = one.untyped_storage()
                    key, size = id(storage), storage.nbytes()
                    if key not in self.live:
                        finalize(storage, self.gone, key)
                    self.now += size - self.live.get(key, 0)
                    self.live[key] = size
            self.most = max(self.most, self.now)
            return out

    return Counting()


def run(script: Path, arguments: list[str], steps: int, count: bool) -> dict[str, Any]:
    """What a script's steps took here: seconds of each, of reference kernels before and after them,
    and bytes at the peak behind the first one."""
    import torch

    from sim.analysis.calibration.timing.provenance import machine
    from sim.analysis.calibration.timing.reference import reference_kernels

    own = RealRun(torch, steps)
    device = "cuda" if own.cuda else "cpu"
    before = reference_kernels(device)
    sys.argv, sys.path[0] = [str(script), *arguments], str(script.parent)
    mode = counting(torch) if count else nullcontext()
    with suppress(_Enough), own.watched(), mode:
        runpy.run_path(str(script), run_name="__main__")
    peak = torch.cuda.max_memory_allocated() if own.cuda else getattr(mode, "most", 0)
    seconds = [end - start for start, end in zip(own.stamps, own.stamps[1:], strict=False)]
    return {
        "seconds": seconds,
        "references": [before, reference_kernels(device)],
        "peak": peak,
        "parameters": own.parameters,
        "machine": machine(device),
    }


def main() -> None:
    """Run what the command line says."""
    answer, steps, count, script, *arguments = sys.argv[1:]
    found = run(Path(script).resolve(), arguments, int(steps), count == "1")
    if os.environ.get("RANK", "0") == "0":
        Path(answer).write_text(json.dumps(found), encoding="utf-8")
    os._exit(0)  # process groups that a script left open do not keep it


if __name__ == "__main__":
    main()
