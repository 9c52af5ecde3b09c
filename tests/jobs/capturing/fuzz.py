"""Random small scripts, held against what a CPU does: `python -m tests.jobs.capturing.fuzz 500`.

Each seed draws modules, an optimizer, a precision and a control flow. The same function runs on the
CPU, where torch counts its FLOPs (`torch.utils.flop_counter`) and its weights. A capture has to
agree to the last of them, or to say in a note why not. The bytes of gradients that data parallelism
sums are those of the weights. Weights, gradients and states are counted by hand, and the peak lies
between them and all that was ever allocated.
"""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from sim.jobs.capturing.capture import capture
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.memory import Memory
from sim.jobs.recorded.recording import Recording
from sim.model.kernels import Attention, Gemm

WIDTH, LENGTH, WORLD = 32, 16, 4
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


class Heads(nn.Module):
    """Attention of two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(x).split(WIDTH, -1))
        scores = (q @ k.transpose(-1, -2)).softmax(-1)  # composed: a CPU has no fused kernel
        return (scores @ v).transpose(1, 2).flatten(-2)  # type: ignore[no-any-return]


class Along(nn.Module):
    """A convolution along the sequence."""

    def __init__(self) -> None:
        super().__init__()
        # torch counts the gradient of a grouped one's weights as if it had no groups
        self.inner = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.transpose(1, 2)).transpose(1, 2)  # type: ignore[no-any-return]


def feed_forward(draw: random.Random) -> nn.Module:
    wide = draw.choice([16, 48, 64])
    act = draw.choice([nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh])()
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
    parallel: bool
    embedded: bool

    @classmethod
    def of(cls, seed: int) -> "Drawn":
        draw = random.Random(seed)
        layers = tuple(draw.choices(list(LAYERS), k=draw.randint(1, 5)))
        frozen = draw.choice([0, 0, 0, 1]) if len(layers) > 1 else 0
        return cls(
            seed=seed,
            layers=layers,
            again=draw.random() < 0.25,
            shared=draw.random() < 0.2,
            frozen=frozen,
            optimizer=draw.choice(list(STATES)),
            micro=draw.choice([1, 1, 2, 3]),
            updates=draw.choice([1, 1, 1, 2]),
            clip=draw.random() < 0.4,
            guarded=draw.random() < 0.3,
            evaluates=0 if frozen else draw.choice([0, 0, 2, 3]),
            autocast=draw.random() < 0.4,
            parallel=draw.random() < 0.4,
            embedded=draw.random() < 0.5,
        )

    def model(self) -> nn.Module:
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
        kinds: dict[str, Callable[[], torch.optim.Optimizer]] = {
            "SGD": lambda: torch.optim.SGD(weights, lr=1e-3),
            "momentum": lambda: torch.optim.SGD(weights, lr=1e-3, momentum=0.9),
            "AdamW": lambda: torch.optim.AdamW(weights, lr=1e-3),
            "fused": lambda: torch.optim.AdamW(weights, lr=1e-3, fused=True),
            "Adagrad": lambda: torch.optim.Adagrad(weights, lr=1e-3),
            "RMSprop": lambda: torch.optim.RMSprop(weights, lr=1e-3),
        }
        return kinds[self.optimizer]()

    def data(self, device: str, rows: int = 3) -> torch.Tensor:
        if self.embedded:
            return torch.ones(rows, LENGTH, dtype=torch.int64, device=device)
        return torch.ones(rows, LENGTH, WIDTH, device=device)

    def pass_of(self, model: nn.Module, device: str) -> None:
        """A microbatch, forward and back."""
        labels = torch.zeros(3 * LENGTH, dtype=torch.int64, device=device)
        with torch.autocast(device, torch.bfloat16, enabled=self.autocast):
            scores = model(self.data(device)).flatten(0, 1)
            loss = nn.functional.cross_entropy(scores.float(), labels)
        loss.backward()  # type: ignore[no-untyped-call]

    def train(self, device: str, steps: int) -> None:
        """The script."""
        model = self.model().to(device)
        if self.parallel and device == "cuda":
            dist.init_process_group("nccl")
            model = DistributedDataParallel(model)
        optimizer = self.made([w for w in model.parameters() if w.requires_grad])
        for step in range(steps):
            optimizer.zero_grad()
            for _ in range(self.micro):
                self.pass_of(model, device)
            norm = torch.ones((), device=device)
            if self.clip:
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if not self.guarded or bool(torch.isfinite(norm)):
                for _ in range(self.updates):
                    optimizer.step()
            if self.evaluates and step % self.evaluates == 0:
                with torch.no_grad():
                    model(self.data(device, 1))


def flops_of(own: Recording, *, aside: bool = False) -> float:
    total = 0.0
    for event in own.events:
        if event.kind == "kernel" and event.phase != "optimizer" and (aside or not event.aside):
            kernel = kernel_of(own.operators[event.operator])
            total += kernel.flops if isinstance(kernel, Gemm | Attention) else 0.0
    return total


def differences(drawn: Drawn) -> list[str]:
    """How a capture differs from the CPU without a word."""
    model = drawn.model()
    learnt = [w for w in model.parameters() if w.requires_grad]
    elements = sum(weight.numel() for weight in learnt)
    with FlopCounterMode(display=False) as counted:
        for _ in range(drawn.micro):
            drawn.pass_of(model, "cpu")
    (own,) = capture(lambda: drawn.train("cuda", 7), world=WORLD if drawn.parallel else 1)
    found = []

    def same(what: str, here: float, there: float) -> None:
        if here != there:
            found.append(f"{what}: {here:,.0f} captured, {there:,.0f} by the CPU")

    same("parameters", own.parameters, elements)
    same("FLOPs", flops_of(own, aside=drawn.frozen > 0), counted.get_total_flops())
    sums = [event.bytes for event in own.events if event.kind == "collective"]
    same("bytes summed", sum(sums), 4.0 * elements * drawn.micro if drawn.parallel else 0.0)
    updates = sum(
        "_foreach_add" in own.operators[e.operator].name
        or "_fused" in own.operators[e.operator].name
        for e in own.events
        if e.kind == "kernel" and e.phase == "optimizer"
    )
    if not updates:
        found.append("no update")
    return found + memory(own, drawn, learnt)


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
    for seed in range(first, first + often):
        drawn = Drawn.of(seed)
        try:
            found = differences(drawn)
        except Exception as error:  # a script that runs on a CPU has to be recorded
            found = [f"{type(error).__name__}: {error}"[:300]]
        if found:
            wrong += 1
            print(drawn, *found, sep="\n    ", flush=True)
    print(f"{often} scripts, {wrong} differ")
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(*map(int, sys.argv[1:])), 1))
