"""Run a training script on this machine. Its steps are timed by phase, and its memory is counted.
If the machine's speed drifts, kernels are timed between the steps.

A step ends when the script's optimizer has updated the weights (or when its CUDA graph has been
replayed). `python -m sim.analysis.calibration.training.real_run ANSWER STEPS SCRIPT ...` writes the
measurement to the file ANSWER as JSON, on rank 0.

Reference kernels and all-reduces show how fast the machine is at a moment.
"""

import gc
import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch
from weakref import ref

from sim.analysis.calibration.timing import torch_device
from sim.analysis.calibration.timing.provenance import machine
from sim.analysis.calibration.training import phase_timer
from sim.analysis.calibration.training.job_measurement import JobMeasurement, MeasuredRound, joined
from sim.analysis.calibration.training.phase_timer import bytes_of, counted
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.hardware.kernels.measurements import Measurement

# Bytes of the all-reduces that show gloo's cost of a message and the loopback's bandwidth.
TRANSFERS = (64.0, 64 * 2.0**10, 2.0**20, 4 * 2.0**20, 25 * 2.0**20)
_REPEATS = 7


def reference_kernels(device: str) -> float:
    """Median seconds of a product of 768 x 768 matrices followed by a sum of 16 MiB."""
    import torch

    a = torch.randn(768, 768, device=device)
    b = torch.randn(2**22, device=device)
    out = torch.empty_like(b)

    def seconds() -> float:
        began = time.perf_counter()
        torch.mm(a, a)
        torch.add(b, b, out=out)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    seconds()
    return median(seconds() for _ in range(_REPEATS))


def transfers() -> tuple[tuple[float, float], ...]:
    """Return (bytes, median seconds) of all-reduces of all `TRANSFERS`; call it on every rank."""
    return tuple((size, _all_reduce(size)) for size in TRANSFERS)


def _all_reduce(size: float) -> float:
    import torch
    import torch.distributed as dist

    data = torch.zeros(int(size) // 4)
    seconds = []
    for _ in range(_REPEATS):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(data)
        seconds.append(time.perf_counter() - began)
    return median(seconds[1:])


TimeKernels = Callable[[int, int], Sequence[Measurement]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaving:
    """`rounds` of `steps` training steps each, after `warm_up` steps. Before the steps of a round,
    `time_kernels(round, rounds)` times kernels, unless it is None. Then `settling` untimed steps
    fill the caches again."""

    rounds: int = 5
    steps: int = 4
    warm_up: int = 2
    settling: int = 1
    time_kernels: TimeKernels | None = None


def interleaving(steps: int) -> Interleaving:
    """Return an even number of rounds of about four steps, with at least `steps` steps in all.

    >>> found = [interleaving(steps) for steps in (20, 3)]
    >>> [(interleaved.rounds, interleaved.steps) for interleaved in found]
    [(6, 4), (2, 2)]
    """
    rounds = max(2, 2 * round(steps / 8 + 0.49))
    return Interleaving(rounds=rounds, steps=-(-steps // rounds))


class _Enough(BaseException):
    """Raised within the script to end it when all steps have been measured."""


class RealRun:
    """Seconds and memory of a script's steps on a device. With `graph`, each step of the script
    replays one CUDA graph.

    The measurement is a generator (`_protocol`) that yields before each step of the script. The end
    of the step resumes the generator.
    """

    def __init__(
        self,
        device: str,
        plan: Interleaving,
        *,
        graph: bool = False,
        report: Callable[[str], None] = lambda message: None,
    ) -> None:
        import torch

        self.torch, self.device, self.plan, self.graph = torch, device, plan, graph
        self.report = report
        self.timer = phase_timer.on_gpu() if device == "cuda" else phase_timer.on_host()
        self.rounds: list[MeasuredRound] = []
        self.done = 0
        self.parameters: dict[int, Any] = {}
        self.peak = 0.0
        self._optimizer = 0
        self._losses: list[Any] = []
        self._loss = 0.0
        self._replicated: Any = None

    def measured(self, script: Callable[[], object]) -> JobMeasurement:
        """Run a script until all steps are measured. Raises `InputError` if the script ends
        earlier."""
        if self.device == "cpu":
            torch_device.keep_freed()
        self._protocol = self._steps()
        self._older = {id(kept): ref(kept) for kept in _of_type(self.torch.Tensor)}
        with self._watched():
            try:
                next(self._protocol)
                script()
            except _Enough:
                return self._measurement()
            finally:
                self._protocol.close()
        fault = f"the script ended after {self.done} of {self.plan.rounds * self.plan.steps} steps"
        remedy = f"take --steps {max(self.done - 1, 1)}, or less"
        raise InputError("sim measure", f"{fault}, not counting the first", remedy)

    def _steps(self) -> Generator[None, None, None]:
        """Yield before each step of the script; measure between the steps."""
        for _ in range(self.plan.warm_up):
            yield
        self._find_replicas()
        if self.device == "cuda":
            self.torch.cuda.reset_peak_memory_stats()
        for number in range(self.plan.rounds):
            self.report(f"round {number + 1} of {self.plan.rounds}")
            yield from self._round(number)
        if not self.graph:  # a graph's memory is a separate pool, which torch does not count
            yield from self._counted()

    def _counted(self) -> Generator[None, None, None]:
        """Count the memory of a further, untimed step, since a profiler counts a CPU's allocations.
        The profiler does not see that older blocks are freed. So counting begins when the step
        calls its first module."""
        from torch.nn.modules.module import register_module_forward_pre_hook

        with ExitStack() as stack:

            def begin(*_: Any) -> None:
                hook.remove()
                gc.collect()
                held = partial(bytes_of, self._tensors())
                found.append(stack.enter_context(counted(held, self.device)))

            found: list[list[float]] = []
            hook = register_module_forward_pre_hook(begin)
            stack.callback(hook.remove)
            yield
        self.peak = found[0][0] if found else 0.0

    def _round(self, number: int) -> Generator[None, None, None]:
        before, steps = reference_kernels(self.device), []
        time_kernels = self.plan.time_kernels
        kernels = time_kernels(number, self.plan.rounds) if time_kernels else ()
        # Gloo's speed drifts with the machine's. NCCL's does not, and NCCL refuses host tensors.
        all_reduces = transfers() if self._ranks > 1 and self.device == "cpu" else ()
        for _ in range(self.plan.settling):
            yield
        for _ in range(self.plan.steps):
            self.timer.seconds()
            self.timer.mark("start")
            yield
            seconds = self.timer.seconds()
            steps.append({**seconds, "step": sum(seconds.values())})
            self.done += 1
        self.rounds.append(
            MeasuredRound(
                reference=(before + reference_kernels(self.device)) / 2,
                steps=tuple(steps),
                kernels=tuple(kernels),
                transfers=tuple(all_reduces),
            )
        )

    @contextmanager
    def _watched(self) -> Iterator[None]:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        backward = self.torch.autograd.backward

        def marked(tensors: Any, *args: Any, **options: Any) -> None:
            self.timer.mark("forward")
            backward(tensors, *args, **options)
            self.timer.mark("communication" if self._reduces() else "backward")
            self._losses += [tensors] if hasattr(tensors, "detach") else [*tensors]

        with ExitStack() as stack:
            hook = register_optimizer_step_post_hook(self._updated)
            stack.callback(hook.remove)
            if self.graph:
                replay = self.torch.cuda.CUDAGraph.replay

                def replayed(graph: Any) -> None:
                    replay(graph)
                    self._ended("graph")

                stack.enter_context(patch.object(self.torch.cuda.CUDAGraph, "replay", replayed))
            else:
                stack.enter_context(patch.object(self.torch.autograd, "backward", marked))
            yield

    def _updated(self, optimizer: Any, *_: Any) -> None:
        self._optimizer = self._optimizer or id(optimizer)
        if id(optimizer) != self._optimizer:  # only the optimizer that stepped first counts
            return
        weights = (weight for group in optimizer.param_groups for weight in group["params"])
        self.parameters = {id(weight): weight for weight in weights}
        if not self.graph:
            self._ended("optimizer")

    def _ended(self, phase: str) -> None:
        self.timer.mark(phase)
        if self._losses:
            self._loss = sum(float(loss.detach().float().sum()) for loss in self._losses)
            self._losses.clear()
        try:
            next(self._protocol)
        except StopIteration:
            raise _Enough from None

    @property
    def _ranks(self) -> int:
        dist = self.torch.distributed
        return int(dist.get_world_size()) if dist.is_available() and dist.is_initialized() else 1

    def _find_replicas(self) -> None:
        """With DDP, mark the end of the backward pass where the first parameters have their
        gradients; the rest of the pass is communication."""
        from torch.nn.parallel import DistributedDataParallel

        if self._ranks == 1:
            return
        self._replicated = next(_of_type(DistributedDataParallel), None)
        if self._replicated is not None:
            first = next(self._replicated.parameters())
            first.register_post_accumulate_grad_hook(lambda _: self.timer.mark("backward"))

    def _reduces(self) -> bool:
        return self._replicated is not None and self._replicated.require_backward_grad_sync

    def _tensors(self) -> Iterator[Any]:
        """Yield all tensors that the script has made, with the gradients of the parameters."""
        for kept in _of_type(self.torch.Tensor):
            older = self._older.get(id(kept))
            if older is None or older() is not kept:
                yield kept
                if kept.is_leaf and kept.grad is not None:
                    yield kept.grad

    def _measurement(self) -> JobMeasurement:
        job_measurement = JobMeasurement(
            rounds=tuple(self.rounds),
            parameters=sum(int(weight.numel()) for weight in self.parameters.values()),
            peak=self.peak,
            loss=self._loss,
            machine=machine(self.device),
        )
        if self._ranks == 1:
            return job_measurement
        gathered: list[Any] = [None] * self._ranks
        self.torch.distributed.all_gather_object(gathered, job_measurement)
        return joined(gathered)


def _of_type(kind: type) -> Iterator[Any]:
    """Yield all live objects of a type."""
    return (kept for kept in gc.get_objects() if issubclass(type(kept), kind))


def measure_text(
    rank: int,
    script: str,
    device: str,
    plan: Interleaving,
    report: Callable[[str], None],
    graph: bool = False,
) -> JobMeasurement:
    """Run the text of a script on this rank. Each rank returns the joined measurement of all
    ranks."""
    told = report if rank == 0 else lambda message: None
    code = compile(script, "train.py", "exec")
    run = RealRun(device, plan, graph=graph, report=told)
    return run.measured(lambda: exec(code, {"__name__": "__main__"}))


def main() -> None:
    """Run the script of the command line, and write the answer."""
    import torch

    answer, steps, script, *arguments = sys.argv[1:]
    path = Path(script).resolve()
    sys.argv, sys.path[0] = [str(path), *arguments], str(path.parent)
    half = -(-int(steps) // 2)
    plan = Interleaving(rounds=2, steps=half, warm_up=1, settling=0)
    run = RealRun("cuda" if torch.cuda.is_available() else "cpu", plan)
    found: dict[str, Any]
    try:
        found = asdict(run.measured(lambda: runpy.run_path(str(path), run_name="__main__")))
    except InputError as error:
        found = {"what": error.what, "remedy": error.remedy}
    if os.environ.get("RANK", "0") == "0":
        Path(answer).write_text(json.dumps(found), encoding="utf-8")
    os._exit(0)  # process groups that a script left open cannot block the exit


if __name__ == "__main__":
    main()
