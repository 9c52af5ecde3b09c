"""Random small scripts, held against what a CPU does: `python -m tests.jobs.capturing.fuzz 500`.

Each seed draws modules, an optimizer, a precision and a control flow. The same function runs on the
CPU, where torch counts its FLOPs (`torch.utils.flop_counter`) and its weights. A capture has to
agree to the last of them, or to say in a note why not. The bytes of gradients that data parallelism
sums are those of the weights. Weights, gradients and states are counted by hand, and the peak lies
between them and all that was ever allocated.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.amp import GradScaler
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from sim.jobs.capturing.capture import capture
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.memory import Memory
from sim.jobs.recorded.recording import Recording
from sim.model.kernels import Attention, Gemm
from tests.jobs.capturing.peers import Peers

WIDTH, LENGTH, WORLD, HEADS = 32, 16, 4, 4
STATES = {"SGD": 0, "momentum": 1, "AdamW": 2, "fused": 2, "Adagrad": 1, "RMSprop": 1}


class Residual(nn.Module):
    """A layer with a way around it."""

    def __init__(self, inner: nn.Module, *, again: bool) -> None:
        super().__init__()
        self.inner, self.again = inner, again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.again:
            return x + checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]
        return x + self.inner(x)  # type: ignore[no-any-return]


class Squared(torch.autograd.Function):
    """max(x, 0)^2 with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.relu().square()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return grad * 2.0 * x.relu()


class SquaredReLU(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Squared.apply(x)  # type: ignore[no-any-return,no-untyped-call]


class Heads(nn.Module):
    """Attention; where `exchanged` (Ulysses), of a part of the heads over whole sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.exchanged = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)) for t in self.qkv(x).split(WIDTH, -1))
        if self.exchanged:
            q, k, v = map(whole_sequence, (q, k, v))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-1, -2)).softmax(-1)  # composed: a CPU has no fused kernel
        out = (scores @ v).transpose(1, 2)
        return (all_heads(out) if self.exchanged else out).flatten(-2)


def whole_sequence(x: torch.Tensor) -> torch.Tensor:
    """(rows, a rank's tokens, heads, head) -> (rows, tokens, a rank's heads, head)."""
    return exchange(x.unflatten(2, (WORLD, -1)).movedim(2, 0)).movedim(0, 1).flatten(1, 2)


def all_heads(x: torch.Tensor) -> torch.Tensor:
    """The way back."""
    return exchange(x.unflatten(1, (WORLD, -1)).movedim(1, 0)).movedim(0, 2).flatten(2, 3)


def exchange(x: torch.Tensor) -> torch.Tensor:
    return all_to_all_single_autograd(x.contiguous(), None, None, dist.group.WORLD)


class Dispatched(nn.Module):
    """An expert on each rank, which takes an equal part of the tokens of all ranks."""

    def __init__(self, expert: nn.Module) -> None:
        super().__init__()
        self.expert = expert

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return exchange(self.expert(exchange(x.flatten(0, 1)))).view_as(x)


class Along(nn.Module):
    """A causal convolution along the sequence: padded on both sides, and cut."""

    def __init__(self) -> None:
        super().__init__()
        # torch counts the gradient of a grouped one's weights as if it had no groups
        self.inner = nn.Conv1d(WIDTH, WIDTH, 3, padding=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.transpose(1, 2))[..., :-2].transpose(1, 2)  # type: ignore[no-any-return]


def feed_forward(draw: random.Random) -> nn.Module:
    wide = draw.choice([16, 48, 64])
    act = draw.choice([nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh, SquaredReLU])()
    return nn.Sequential(
        nn.Linear(WIDTH, wide, bias=draw.random() < 0.5), act, nn.Linear(wide, WIDTH)
    )


LAYERS: dict[str, Callable[[random.Random], nn.Module]] = {
    "feed-forward": feed_forward,
    "attention": lambda _: Heads(),
    "convolution": lambda _: Along(),
    "layer norm": lambda _: nn.LayerNorm(WIDTH),
    "RMS norm": lambda _: nn.RMSNorm(WIDTH),
    "linear": lambda draw: nn.Linear(WIDTH, WIDTH, bias=draw.random() < 0.5),
}


@dataclass(frozen=True)
class Drawn:
    """What a seed says: layers by name, whether each runs again, and what a step does."""

    seed: int
    layers: tuple[str, ...]
    again: bool
    shared: bool  # the first layer stands at the end, too
    frozen: int  # layers
    optimizer: str
    micro: int
    updates: int  # steps of the optimizer an iteration
    clip: bool
    guarded: bool  # by whether all is finite
    evaluates: int  # every so many steps; 0: never
    autocast: bool
    way: str
    half: bool  # parameters are gathered in bf16
    kept: bool  # gathered parameters are kept for the backward pass
    late: bool  # gradients are reduced in the last microbatch alone
    embedded: bool
    scaled: bool  # the loss, as fp16 needs it

    @classmethod
    def of(cls, seed: int) -> "Drawn":
        draw = random.Random(seed)
        way = draw.choice(list(WAYS))
        layers = tuple(draw.choices(list(LAYERS), k=draw.randint(2 if way == "pp" else 1, 5)))
        divided = way in ("tp", "sp", "pp")
        frozen = draw.choice([0, 0, 0, 1]) if len(layers) > 1 and not divided else 0
        return cls(
            seed=seed,
            layers=layers,
            again=draw.random() < 0.25,
            shared=draw.random() < 0.2 and way not in ("fsdp1", "pp"),
            frozen=frozen,
            optimizer=draw.choice(list(STATES)),
            micro=draw.choice([2, 3, 4] if way == "pp" else [1, 1, 2, 3]),
            updates=draw.choice([1, 1, 1, 2]),
            clip=draw.random() < 0.4 and not divided,
            guarded=draw.random() < 0.3 and not divided,
            evaluates=0 if frozen or divided else draw.choice([0, 0, 2, 3]),
            autocast=draw.random() < 0.4,
            way=way,
            half=draw.random() < 0.5,
            kept=draw.random() < 0.5,
            late=draw.random() < 0.5,
            embedded=draw.random() < 0.5,
            scaled=draw.random() < 0.4 and way in ("alone", "ddp", "ulysses", "ep"),
        )

    def model(self) -> nn.Sequential:
        draw = random.Random(self.seed + 1)
        layers: list[nn.Module] = []
        for place, name in enumerate(self.layers):
            layer = LAYERS[name](draw).requires_grad_(place >= self.frozen)
            layers.append(Residual(layer, again=self.again and place >= self.frozen))
        if self.shared:
            layers.append(layers[0])
        if self.embedded:
            layers = [nn.Embedding(40, WIDTH), *layers]
        return nn.Sequential(*layers, nn.Linear(WIDTH, 40))

    def made(self, weights: list[nn.Parameter]) -> torch.optim.Optimizer:
        mixed = self.way in ("tp", "sp")  # lists of weights would hold DTensors and others
        lists = {"foreach": not mixed}
        fused = lists if mixed else {"fused": True}
        kinds: dict[str, Callable[[], torch.optim.Optimizer]] = {
            "SGD": lambda: torch.optim.SGD(weights, lr=1e-3, **lists),
            "momentum": lambda: torch.optim.SGD(weights, lr=1e-3, momentum=0.9, **lists),
            "AdamW": lambda: torch.optim.AdamW(weights, lr=1e-3, **lists),
            "fused": lambda: torch.optim.AdamW(weights, lr=1e-3, **fused),
            "Adagrad": lambda: torch.optim.Adagrad(weights, lr=1e-3, **lists),
            "RMSprop": lambda: torch.optim.RMSprop(weights, lr=1e-3, **lists),
        }
        return kinds[self.optimizer]()

    def data(self, device: str, rows: int = 3) -> torch.Tensor:
        if self.embedded:
            return torch.ones(rows, LENGTH, dtype=torch.int64, device=device)
        length = LENGTH // WORLD if self.way == "sp" else LENGTH
        return torch.ones(rows, length, WIDTH, device=device)

    def pass_of(self, model: nn.Module, device: str, scaler: GradScaler) -> None:
        """A microbatch, forward and back."""
        with torch.autocast(device, torch.bfloat16, enabled=self.autocast):
            loss = loss_of(model(self.data(device)), labels(device))
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def train(self, device: str, steps: int, after: Callable[[], None] = int) -> None:
        """The script."""
        if self.way != "alone" and not dist.is_initialized():
            dist.init_process_group("nccl")
        scaler = GradScaler(device, enabled=self.scaled)
        model, learn = WAYS[self.way](self, self.model().to(device), device, scaler)
        optimizer = self.made([w for w in model.parameters() if w.requires_grad])
        for step in range(steps):
            optimizer.zero_grad()
            learn()
            norm = torch.ones((), device=device)
            if self.clip:
                scaler.unscale_(optimizer)
                norm = clipped(model)
            if not self.guarded or bool(torch.isfinite(norm)):
                for _ in range(self.updates):
                    scaler.step(optimizer)
                    scaler.update()
            after()
            if self.evaluates and step % self.evaluates == 0:
                with torch.no_grad():
                    model(self.data(device, 1))


def labels(device: str, rows: int = 3) -> torch.Tensor:
    return torch.zeros(rows * LENGTH, dtype=torch.int64, device=device)


def loss_of(scores: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(scores.flatten(0, 1).float(), truth.flatten())


def clipped(model: nn.Module) -> torch.Tensor:
    if isinstance(model, FullyShardedDataParallel):
        return model.clip_grad_norm_(1.0)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


Learn = Callable[[], None]
Way = Callable[[Drawn, nn.Sequential, str, GradScaler], tuple[nn.Module, Learn]]


def _in_turns(
    drawn: Drawn, model: nn.Module, device: str, scaler: GradScaler, late: Callable[[bool], Any]
) -> Learn:
    """Microbatches one behind the other; `late` says of each whether gradients are reduced."""

    def learn() -> None:
        for number in range(drawn.micro):
            with late(number == drawn.micro - 1 or not drawn.late):
                drawn.pass_of(model, device, scaler)

    return learn


def alone(
    drawn: Drawn, model: nn.Sequential, device: str, scaler: GradScaler
) -> tuple[nn.Module, Learn]:
    return model, _in_turns(drawn, model, device, scaler, lambda _: nullcontext())


def ddp(
    drawn: Drawn, model: nn.Sequential, device: str, scaler: GradScaler
) -> tuple[nn.Module, Learn]:
    whole = DistributedDataParallel(model, bucket_cap_mb=0.01 if drawn.kept else 25)
    late = {True: nullcontext, False: whole.no_sync}
    return whole, _in_turns(drawn, whole, device, scaler, lambda last: late[last]())


def fsdp1(
    drawn: Drawn, model: nn.Sequential, device: str, scaler: GradScaler
) -> tuple[nn.Module, Learn]:
    strategies = {True: ShardingStrategy.SHARD_GRAD_OP, False: ShardingStrategy.FULL_SHARD}
    mixed = MixedPrecision(param_dtype=torch.bfloat16) if drawn.half else None
    whole = FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy([Residual]),
        sharding_strategy=strategies[drawn.kept],
        mixed_precision=mixed,
        use_orig_params=True,
        device_id=None if device == "cuda" else torch.device("cpu"),
    )
    return whole, _in_turns(drawn, whole, device, scaler, lambda _: nullcontext())


def fsdp2(
    drawn: Drawn, model: nn.Sequential, device: str, scaler: GradScaler
) -> tuple[nn.Module, Learn]:
    return _sharded(drawn, model, device, scaler, init_device_mesh(device, (WORLD,)))


def hsdp(
    drawn: Drawn, model: nn.Sequential, device: str, scaler: GradScaler
) -> tuple[nn.Module, Learn]:
    mesh = init_device_mesh(device, (2, WORLD // 2), mesh_dim_names=("r", "s"))
    return _sharded(drawn, model, device, scaler, mesh)


def _sharded(
    drawn: Drawn, model: nn.Sequential, device: str, scaler: GradScaler, mesh: DeviceMesh
) -> tuple[nn.Module, Learn]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if drawn.half else None)
    for layer in dict.fromkeys(part for part in model if isinstance(part, Residual)):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=not drawn.kept)
    whole = fully_shard(model, mesh=mesh, mp_policy=policy)

    @contextmanager
    def late(last: bool) -> Iterator[None]:
        whole.set_requires_gradient_sync(last)
        yield

    return whole, _in_turns(drawn, whole, device, scaler, late)


def tp(
    drawn: Drawn, model: nn.Sequential, device: str, scaler: GradScaler
) -> tuple[nn.Module, Learn]:
    """Products in columns, then in rows; single ones in columns, gathered."""
    mesh = init_device_mesh(device, (WORLD,))
    columns = ColwiseParallel(output_layouts=Replicate())
    for name, part in model.named_modules():
        if isinstance(part, nn.Sequential) and name:
            parallelize_module(part, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        elif isinstance(part, Heads):
            parallelize_module(part, mesh, {"qkv": columns})
    parallelize_module(model, mesh, {str(len(model) - 1): columns})
    return model, _in_turns(drawn, model, device, scaler, lambda _: nullcontext())


def sp(
    drawn: Drawn, model: nn.Sequential, device: str, scaler: GradScaler
) -> tuple[nn.Module, Learn]:
    """Tokens are divided wherever products of columns and rows do not need them all."""
    mesh = init_device_mesh(device, (WORLD,))
    tokens, everywhere = Shard(1), Replicate()
    columns = ColwiseParallel(input_layouts=tokens, output_layouts=everywhere)
    for part in model.modules():
        if not isinstance(part, Residual):
            continue
        inner = part.inner
        if isinstance(inner, nn.Sequential):
            rows = RowwiseParallel(output_layouts=tokens)
            parallelize_module(inner, mesh, {"0": ColwiseParallel(input_layouts=tokens), "2": rows})
        elif isinstance(inner, nn.LayerNorm | nn.RMSNorm):
            parallelize_module(inner, mesh, SequenceParallel(use_local_output=True))
        elif isinstance(inner, Heads):
            parallelize_module(inner, mesh, {"qkv": columns})
            divided = PrepareModuleOutput(output_layouts=everywhere, desired_output_layouts=tokens)
            parallelize_module(inner, mesh, divided)
    ends = {str(len(model) - 1): columns}
    if drawn.embedded:
        ends["0"] = RowwiseParallel(input_layouts=everywhere, output_layouts=tokens)
    parallelize_module(model, mesh, ends)
    return model, _in_turns(drawn, model, device, scaler, lambda _: nullcontext())


def ulysses(
    drawn: Drawn, model: nn.Sequential, device: str, scaler: GradScaler
) -> tuple[nn.Module, Learn]:
    """Each rank has a part of all sequences, and attends with a part of the heads."""
    for part in model.modules():
        if isinstance(part, Heads):
            part.exchanged = True
    return ddp(drawn, model, device, scaler)


def ep(
    drawn: Drawn, model: nn.Sequential, device: str, scaler: GradScaler
) -> tuple[nn.Module, Learn]:
    """Each rank has an expert in place of each feed-forward layer, whose gradients it keeps."""
    for part in model.modules():
        if isinstance(part, Residual) and isinstance(part.inner, nn.Sequential):
            part.inner = Dispatched(part.inner)
    kept = [name for name, _ in model.named_parameters() if ".expert." in name]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, kept)
    return ddp(drawn, model, device, scaler)


def pp(
    drawn: Drawn, model: nn.Sequential, device: str, scaler: GradScaler
) -> tuple[nn.Module, Learn]:
    """Two stages; within each, replicas do not share gradients, or shard weights."""
    mesh = init_device_mesh(device, (2, WORLD // 2), mesh_dim_names=("pp", "dp"))
    index, half = mesh.get_local_rank("pp"), len(model) // 2
    part = model[:half] if index == 0 else model[half:]
    if drawn.kept:
        fully_shard(part, mesh=mesh["dp"], reshard_after_forward=False)
    stage = PipelineStage(part, index, 2, torch.device(device), group=mesh.get_group("pp"))
    kind = Schedule1F1B if drawn.half else ScheduleGPipe
    schedule = kind(stage, drawn.micro, loss_fn=loss_of)

    def learn() -> None:
        rows = 3 * drawn.micro
        with torch.autocast(device, torch.bfloat16, enabled=drawn.autocast):
            if index == 0:
                schedule.step(drawn.data(device, rows))
            else:
                schedule.step(target=labels(device, rows).unflatten(0, (rows, LENGTH)))

    return part, learn


WAYS: dict[str, Way] = {
    "alone": alone, "ddp": ddp, "fsdp1": fsdp1, "fsdp2": fsdp2, "hsdp": hsdp, "tp": tp, "sp": sp,
    "ulysses": ulysses, "ep": ep, "pp": pp,
}  # fmt: skip


def flops_of(own: Recording, *, aside: bool = False) -> float:
    total = 0.0
    for event in own.events:
        if event.kind == "kernel" and event.phase != "optimizer" and (aside or not event.aside):
            kernel = kernel_of(own.operators[event.operator])
            total += kernel.flops if isinstance(kernel, Gemm | Attention) else 0.0
    return total


def differences(drawn: Drawn, peers: Peers) -> list[str]:
    """How a capture differs from real processes without a word."""
    learnt = [w for w in drawn.model().parameters() if w.requires_grad]
    elements = sum(weight.numel() for weight in learnt)
    counted = peers.count(drawn)
    world = 1 if drawn.way == "alone" else WORLD
    third = (3, 3) if drawn.evaluates else None  # as is counted
    recordings = capture(
        lambda: drawn.train("cuda", 7), world=world, stages=drawn.way == "pp", steps=third
    )
    found = []

    def same(what: str, here: float, there: float) -> None:
        if here != there:
            found.append(f"{what}: {here:,.0f} captured, {there:,.0f} by the CPU")

    same("parameters", sum(own.parameters for own in recordings), elements)
    for own in recordings:
        real = counted[own.rank]
        same(f"rank {own.rank}: FLOPs", flops_of(own, aside=drawn.frozen > 0), real.flops)
        calls: dict[str, Counter[int]] = {}
        for event in own.events:
            if event.kind in ("collective", "send", "recv"):
                calls.setdefault(event.name, Counter())[int(event.bytes)] += 1
        if calls != real.calls:
            found.append(f"rank {own.rank}: {calls} captured, {real.calls} by the CPU")
        peak = Memory(own).peak(since=0).allocated
        least = 0.0 if "RMS norm" in drawn.layers else 0.9  # composed on a CPU, which keeps more
        if not least < peak / real.peak < 1.1:
            found.append(f"rank {own.rank}: peak {peak:,.0f} captured, {real.peak:,} by the CPU")
    return found + (memory(recordings[0], drawn, learnt) if drawn.way in ("alone", "ddp") else [])


def memory(own: Recording, drawn: Drawn, learnt: list[nn.Parameter]) -> list[str]:
    """Weights, gradients and states by hand; the peak holds them all."""
    held = Memory(own).before_step()
    weights = sum(-(-4 * weight.numel() // 512) * 512 for weight in learnt)  # as torch rounds
    states = weights * STATES[drawn.optimizer]
    small = 512.0 * len(learnt)  # counters of steps
    found = []
    if held.get("parameters", 0.0) != weights:
        found.append(f"weights: {held.get('parameters', 0.0):,.0f} bytes for {weights:,}")
    if not states <= held.get("optimizer", 0.0) <= states + small:
        found.append(f"states: {held.get('optimizer', 0.0):,.0f} bytes for {states:,.0f}")
    least = 2 * weights + states
    if Memory(own).peak().allocated < least:
        found.append(f"peak: {Memory(own).peak().allocated:,.0f} bytes, at least {least:,.0f}")
    return found


def main(often: int, first: int = 0) -> int:
    """How many of so many seeds differ."""
    wrong = 0
    with TemporaryDirectory() as folder:
        peers = Peers(WORLD, Path(folder) / "meeting")
        for seed in range(first, first + often):
            drawn = Drawn.of(seed)
            try:
                found = differences(drawn, peers)
            except Exception as error:  # a script that runs on a CPU has to be recorded
                found = [f"{type(error).__name__}: {error}"[:300]]
            if found:
                wrong += 1
                print(drawn, *found, sep="\n    ", flush=True)
        peers.stop()
    print(f"{often} scripts, {wrong} differ")
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(*map(int, sys.argv[1:])), 1))
