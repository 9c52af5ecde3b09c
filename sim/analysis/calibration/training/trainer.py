"""A job's training step in torch: module, precision, replication, optimizer, times."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import set_checkpoint_early_stop

from sim.analysis.calibration.timing.calls.attention import BACKENDS
from sim.analysis.calibration.timing.calls.tensors import dtype_of
from sim.analysis.calibration.training import phase_timer
from sim.analysis.calibration.training.job_measurement import PhaseSeconds
from sim.analysis.calibration.training.modules.batch import Batch, draw
from sim.analysis.calibration.training.modules.transformer import TransformerModel
from sim.analysis.calibration.training.optimizer import TorchOptimizer, local
from sim.analysis.calibration.training.peak_memory import bytes_of
from sim.parallel.job import Job

SEED = 0


class Trainer:
    """Runs steps of one rank of a job on random tokens; `step()` gives the seconds of each phase.

    Phases: `forward`, `backward`, `communication` (the part after the backward pass; it can be
    separated for DDP only) and `optimizer`. With several ranks their process group must exist.
    """

    def __init__(self, job: Job, device: str = "cpu", rank: int = 0) -> None:
        self.job, self.device = job, device
        torch.manual_seed(SEED)
        if device == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = job.plan.precision == "tf32"
        self.network = self._network()
        self.model: Any = self._replicated(self.network)
        self.optimizer = TorchOptimizer(self.model, job)
        size = job.plan.microbatch
        self.batches = [
            draw(job.model, size, SEED + rank * job.plan.microbatches + number, device)
            for number in range(job.plan.microbatches)
        ]
        self.timer = phase_timer.on_gpu() if device == "cuda" else phase_timer.on_host()
        self.graph: Any = None
        self._mark_last_gradients()

    def step(self) -> PhaseSeconds:
        """One optimizer step: seconds by phase (unless a graph), and of the whole as `step`."""
        if self.job.stack.graph and self.graph is None:
            self.graph = self._captured()
        self.timer.mark("start")
        if self.graph is None:
            self._work(self.timer.mark)
        else:
            self.graph.replay()
            self.timer.mark("graph")
        seconds = self.timer.seconds()
        return {**seconds, "step": sum(seconds.values())}

    def _captured(self) -> Any:
        """The whole step as one CUDA graph, after a few warm-up steps on a side stream."""
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call, unused-ignore]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._work(_unmarked)
        torch.cuda.synchronize()
        graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._work(_unmarked)
        return graph

    def _work(self, mark: Callable[[str], None]) -> None:
        self.losses: list[Any] = []
        with set_checkpoint_early_stop(self.job.rule.early_stop), self._attention():
            for number, batch in enumerate(self.batches):
                with self._without_reduction(number):
                    self.losses.append(self.model(batch))
                    mark("forward")
                    (self.losses[-1] / len(self.batches)).backward()
                mark("communication" if self._reduces_after(number) else "backward")
        self.optimizer.step()
        mark("optimizer")

    @property
    def loss(self) -> float:
        """The mean loss of the last step's micro-steps on this rank."""
        return float(torch.stack([loss.detach().float() for loss in self.losses]).mean())

    @property
    def held(self) -> float:
        """Bytes of all tensors that outlive a step, DDP's buckets included."""
        tensors = [*self.network.buffers(), *self.optimizer.tensors()]
        tensors += [tensor for batch in self.batches for tensor in _fields(batch)]
        for parameter in self.network.parameters():
            tensors.append(parameter.detach())
            if parameter.grad is not None:
                tensors.append(parameter.grad)
        return bytes_of(map(local, tensors)) + self._buckets

    @property
    def _buckets(self) -> float:
        """Gradients of DDP are views of its buckets, which stay when gradients are set to none."""
        if not self._ddp or self.job.stack.fusion.gradients != "fresh":
            return 0.0
        return float(sum(p.numel() * p.element_size() for p in self.network.parameters()))

    @property
    def _ddp(self) -> bool:
        return self.model is not self.network

    def _network(self) -> TransformerModel:
        job = self.job
        with torch.device(self.device):
            network = TransformerModel(job.model, job.stack.fusion, job.plan.recompute)
        network.to(dtype=dtype_of(job.plan.precision))  # in place
        return network

    def _replicated(self, network: TransformerModel) -> nn.Module:
        plan = self.job.plan
        if plan.data_parallel == 1:
            return self._compiled(network)
        if plan.zero == 3:
            return self._sharded(network)
        from torch.nn.parallel import DistributedDataParallel

        # DDP closes a bucket as soon as it is full; the first one earlier.
        return DistributedDataParallel(
            self._compiled(network),
            bucket_cap_mb=self.job.stack.bucket / 2**20,
            gradient_as_bucket_view=True,
        )

    def _compiled(self, network: nn.Module) -> nn.Module:
        if self.job.stack.fusion.compiled:
            network.compile()
        return network

    def _sharded(self, network: TransformerModel) -> TransformerModel:
        from torch.distributed.fsdp import fully_shard

        for layer in network.layers:
            fully_shard(layer)
        fully_shard(network)
        return network

    def _without_reduction(self, number: int) -> AbstractContextManager[Any]:
        """DDP reduces the gradients of the last micro-step only."""
        if self._ddp and not self._reduces_after(number):
            context: AbstractContextManager[Any] = self.model.no_sync()
            return context
        return nullcontext()

    def _reduces_after(self, number: int) -> bool:
        return self._ddp and number == len(self.batches) - 1

    def _mark_last_gradients(self) -> None:
        """The embedding's gradients are the last ones: the backward pass ends with them."""
        if not self._ddp:
            return
        parameters: Iterable[Any] = self.network.embedding.parameters()
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(lambda _: self.timer.mark("backward"))

    def _attention(self) -> AbstractContextManager[Any]:
        """The fused attention that the stack offers first, among torch's."""
        if self.device == "cpu":
            return nullcontext()
        from torch.nn.attention import SDPBackend, sdpa_kernel

        offered = [BACKENDS[name] for name in self.job.stack.attention if name in BACKENDS]
        backends = [getattr(SDPBackend, name) for name in (*offered, BACKENDS["math"])]
        context: AbstractContextManager[Any] = sdpa_kernel(backends, set_priority=True)
        return context


def _unmarked(name: str) -> None:
    """Nothing is timed within a graph."""


def _fields(batch: Batch) -> Iterator[Any]:
    return (getattr(batch, name) for name in batch.__slots__)
