"""The same Llama twice: tensor and sequence parallel by DTensor, captured, and by `sim.model`."""

from collections import Counter

import pytest

import sim
from sim.jobs.recorded.axes import every_axes
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import Recording
from sim.model.operators import kernels_of
from sim.parallel.job import stage_kernels
from sim.program.operations import Collective
from sim.scenario.scenario import Scenario
from sim.scenario.setup import from_scenario
from tests.jobs.capturing.llama import (
    CLUSTER,
    CONFIG,
    LENGTH,
    STACK,
    WORLD,
    planned,
    recorded,
    sums,
)

TP, DEPTHS = 8, (4, 32)
# The plan of PyTorch's tutorial on tensor parallelism and of torchtitan (models/llama3).
SCRIPT = """
import torch, torch.distributed as dist, torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel,
    parallelize_module,
)

HIDDEN, FFN, LAYERS, HEADS, KV, VOCABULARY, LENGTH, TP = NUMBERS
HEAD = HIDDEN // HEADS


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.k = nn.Linear(HIDDEN, KV * HEAD, bias=False)
        self.v = nn.Linear(HIDDEN, KV * HEAD, bias=False)
        self.o = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x, turn):
        heads = (f(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k, v = heads
        q, k = (torch.view_as_real(torch.view_as_complex(
            t.float().unflatten(-1, (-1, 2))) * turn).flatten(-2).type_as(t) for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, FFN, bias=False)
        self.up = nn.Linear(HIDDEN, FFN, bias=False)
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.RMSNorm(HIDDEN), Attention()
        self.second, self.ffn = nn.RMSNorm(HIDDEN), FeedForward()

    def forward(self, x, turn):
        x = x + self.attention(self.norm(x), turn)
        return x + self.ffn(self.second(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)
        angles = torch.outer(torch.arange(LENGTH), 1e4 ** (-torch.arange(0, HEAD, 2) / HEAD))
        self.register_buffer("turn", torch.polar(torch.ones_like(angles), angles))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.turn)
        return self.head(self.norm(x))


dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (dist.get_world_size() // TP, TP), mesh_dim_names=("dp", "tp"))
with torch.device("meta"):
    model = Llama()
parallelize_module(model, mesh["tp"], {
    "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "head": ColwiseParallel(
        input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
    ),
})
split = RowwiseParallel(output_layouts=Shard(1))
for layer in model.layers:
    parallelize_module(layer, mesh["tp"], {
        "norm": SequenceParallel(), "second": SequenceParallel(),
        "attention": PrepareModuleInput(
            input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
        "ffn": PrepareModuleInput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
        "ffn.gate": ColwiseParallel(), "ffn.up": ColwiseParallel(),
        "attention.o": split, "ffn.down": split,
    })
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for part in (*model.layers, model):
    fully_shard(part, mesh=mesh["dp"], mp_policy=policy)
model.to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for _ in range(2):
    tokens = torch.randint(VOCABULARY, (1, LENGTH)).to("cuda")
    with loss_parallel():
        logits = model(tokens)
        F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture(scope="module", params=DEPTHS)
def layers(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def recording(layers: int, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    numbers = (4096, 14336, layers, 32, 8, 128256, LENGTH, TP)
    return recorded(SCRIPT.replace("NUMBERS", str(numbers)), tmp_path_factory.mktemp("tensor"))


@pytest.fixture(scope="module")
def closed(layers: int, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    folder = tmp_path_factory.mktemp("model")
    plan = {"global_batch": WORLD // TP, "tp": TP, "sequence_parallel": True, "zero": 3}
    return planned(folder, layers=layers, **plan)


def test_products_and_attention_are_equal(recording: Recording, closed: Scenario) -> None:
    own = [kernel_of(operator) for operator in recording.operators]
    here = sums(Counter(own[e.operator] for e in recording.events if e.kind == "kernel"))
    job = from_scenario(closed).job
    there = sums(sum((Counter({k: n}) for k, n in stage_kernels(job, 0)), Counter()))
    for kind in ("gemm", "attention"):
        assert here[kind][0] == there[kind][0], kind
        assert here[kind][1] == pytest.approx(there[kind][1], rel=1e-12), kind


def test_tensor_parallel_ranks_gather_and_scatter_activations(
    recording: Recording, closed: Scenario, layers: int
) -> None:
    axes = next(every_axes([recording]))
    assert dict(axes.mesh) == {"axis1": TP, "dp": WORLD // TP}
    whole = 2 * LENGTH * CONFIG["hidden_size"]  # one sequence in half precision
    calls = Counter(
        (event.name, event.phase)
        for event in recording.events
        if event.kind == "collective" and axes.of[event.group] == ("axis1",)
        if event.bytes == whole
    )
    # Twice a layer, and once at either end; backward nothing is gathered again, as it was kept.
    each = 2 * layers + 1
    assert calls == {
        (kind, phase): each
        for kind in ("all_gather", "reduce_scatter")
        for phase in ("forward", "backward")
    }
    job = from_scenario(closed).job
    blocks = [block for chunk in job.chunks[0] for block in job.blocks(chunk)]
    planned = Counter(
        (item.kind, phase)
        for block in blocks
        for phase, items in (("forward", block.forward), ("backward", block.backward))
        for item in items
        if isinstance(item, Collective) and item.bytes == whole
    )
    assert planned == calls
    # Each rank's share of the sequence becomes one piece in front of what is scattered.
    copies = sum(
        k.name == "shares in order" for b in blocks for k in kernels_of((*b.forward, *b.backward))
    )
    seen = Counter(
        recording.operators[e.operator].name for e in recording.events if e.operator >= 0
    )
    assert copies == seen["aten.cat"] == 2 * each


def test_the_step_is_the_same_within_five_percent(recording: Recording, closed: Scenario) -> None:
    played = sim.run(sim.RecordedScenario(record=(recording,), topology=CLUSTER, stack=STACK))
    computed = sim.run(closed)
    # A recording also has what is launched before the first layer, for which the device waits.
    here, there = (one.step_time - one.breakdown["host"] for one in (played, computed))
    assert here == pytest.approx(there, rel=0.05)
    assert played.parameters == computed.parameters
    for cause in ("tensor communication", "data communication"):
        here, there = (one.breakdown[cause] for one in (played, computed))
        assert here == pytest.approx(there, rel=0.05), cause
