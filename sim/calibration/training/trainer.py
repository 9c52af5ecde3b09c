"""A job's training step in real torch: module, precision, replication, optimizer, laps."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import set_checkpoint_early_stop

from sim.calibration.training import stopwatch
from sim.calibration.training.allocation import bytes_of
from sim.calibration.training.modules.batch import draw
from sim.calibration.training.modules.transformer import Network
from sim.calibration.training.update import Update
from sim.parallel.job import Job

SEED = 0
_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}


class Trainer:
    """Runs steps of one rank of a job on random tokens; `step()` gives the seconds of each phase.

    Phases: `forward`, `backward`, `communication` (what of it follows the backward pass; only
    DDP's can be told apart) and `optimizer`. With several ranks their process group must exist.
    """

    def __init__(self, job: Job, device: str = "cpu", rank: int = 0) -> None:
        self.job, self.device = job, device
        torch.manual_seed(SEED)
        if device == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = job.plan.precision == "tf32"
        self.network = self._network()
        self.model: Any = self._replicated(self.network)
        self.update = Update(self.model, job)
        size = job.plan.microbatch
        self.batches = [
            draw(job.model, size, SEED + rank * job.plan.microbatches + number, device)
            for number in range(job.plan.microbatches)
        ]
        self.watch = stopwatch.on_gpu() if device == "cuda" else stopwatch.on_host()
        self.graph: Any = None
        self._mark_last_gradients()

    def step(self) -> dict[str, float]:
        """One optimizer step. Seconds by phase (not of a graph's), and of the whole as `step`."""
        if self.job.stack.graph and self.graph is None:
            self.graph = self._captured()
        self.watch.mark("start")
        if self.graph is None:
            self._work(self.watch.mark)
        else:
            self.graph.replay()
            self.watch.mark("graph")
        laps = self.watch.laps()
        return {**laps, "step": sum(laps.values())}

    def _captured(self) -> Any:
        """The whole step as one CUDA graph, after a few on a stream of their own."""
        beside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call, unused-ignore]
        with torch.cuda.stream(beside):
            for _ in range(3):
                self._work(_unmarked)
        torch.cuda.synchronize()
        graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._work(_unmarked)
        return graph

    def _work(self, mark: Callable[[str], None]) -> None:
        self.losses: list[Any] = []
        # Recompute all that the job lists, also what no gradient needs any more.
        with set_checkpoint_early_stop(False), self._attention():
            for number, batch in enumerate(self.batches):
                with self._quiet(number):
                    self.losses.append(self._forward(batch))
                    mark("forward")
                    (self.losses[-1] / len(self.batches)).backward()
                mark("communication" if self._marks_last(number) else "backward")
        self.update.step()
        mark("optimizer")

    @property
    def loss(self) -> float:
        """The mean loss of the last step's micro-steps on this rank."""
        return float(torch.stack([one.detach().float() for one in self.losses]).mean())

    @property
    def held(self) -> float:
        """Bytes of all tensors that outlive a step, DDP's buckets included."""
        tensors = [*self.network.buffers(), *self.update.tensors()]
        tensors += [tensor for batch in self.batches for tensor in _fields(batch)]
        for one in self.network.parameters():
            tensors += [one.detach()] + ([one.grad] if one.grad is not None else [])
        return bytes_of(map(_local, tensors)) + self._buckets

    @property
    def _buckets(self) -> float:
        """Gradients of DDP are views of its buckets, which stay when gradients are set to none."""
        if not self._ddp or self.job.stack.fusion.gradients != "fresh":
            return 0.0
        return float(sum(one.numel() * one.element_size() for one in self.network.parameters()))

    @property
    def _ddp(self) -> bool:
        return self.model is not self.network

    def _network(self) -> Network:
        job = self.job
        with torch.device(self.device):
            network = Network(job.model, job.stack.fusion, job.plan.recompute)
        network.to(dtype=_DTYPES[job.plan.precision])  # in place
        return network

    def _replicated(self, network: Network) -> nn.Module:
        plan = self.job.plan
        if plan.data_parallel == 1:
            return self._compiled(network)
        if plan.zero == 3:
            return self._sharded(network)
        from torch.nn.parallel import DistributedDataParallel

        # DDP cuts as soon as a bucket is full; the first one early.
        return DistributedDataParallel(
            self._compiled(network),
            bucket_cap_mb=self.job.stack.bucket / 2**20,
            gradient_as_bucket_view=True,
        )

    def _compiled(self, network: nn.Module) -> nn.Module:
        if self.job.stack.fusion.compiled:
            network.compile()
        return network

    def _sharded(self, network: Network) -> Network:
        from torch.distributed.fsdp import fully_shard

        for layer in network.layers:
            fully_shard(layer)
        fully_shard(network)
        return network

    def _forward(self, batch: Any) -> Any:
        return self.model(batch)

    def _quiet(self, number: int) -> AbstractContextManager[Any]:
        """Only the last micro-step's gradients leave."""
        if self._ddp and number < len(self.batches) - 1:
            quiet: AbstractContextManager[Any] = self.model.no_sync()
            return quiet
        return nullcontext()

    def _marks_last(self, number: int) -> bool:
        return self._ddp and number == len(self.batches) - 1

    def _mark_last_gradients(self) -> None:
        """The embedding's gradients are the last ones: the backward pass ends with them."""
        if not self._ddp:
            return
        parameters: Iterable[Any] = self.network.embedding.parameters()
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(lambda _: self.watch.mark("backward"))

    def _attention(self) -> AbstractContextManager[Any]:
        """The fused attention that the stack offers first, among torch's."""
        if self.device == "cpu":
            return nullcontext()
        from torch.nn.attention import SDPBackend, sdpa_kernel

        known = {
            "flash2": SDPBackend.FLASH_ATTENTION,
            "cudnn": SDPBackend.CUDNN_ATTENTION,
            "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
        }
        offered = [known[name] for name in self.job.stack.attention if name in known]
        chosen: AbstractContextManager[Any] = sdpa_kernel([*offered, SDPBackend.MATH])
        return chosen


def _unmarked(name: str) -> None:
    """Nothing is timed within a graph."""


def _local(tensor: Any) -> Any:
    """What this rank holds of a tensor that FSDP has divided."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _fields(batch: Any) -> Iterator[Any]:
    return (getattr(batch, name) for name in batch.__slots__)
