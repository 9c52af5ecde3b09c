"""A script that is compiled is recorded as inductor fuses it."""

from collections import Counter
from math import prod
from typing import Any

import pytest

import sim
from sim.config.errors import InputError
from sim.jobs.recorded.memory import Memory
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.work import work_of
from tests.jobs.capturing.conftest import Capture
from tests.lazy import torch

EAGER = """
dist.init_process_group("nccl")
model = nn.parallel.DistributedDataParallel(Model().to("cuda"), device_ids=[0])
train(model)
"""
COMPILED = EAGER.replace("Model()", "torch.compile(Model())")


def launched(own: Recording) -> Counter[str]:
    return Counter(own.operators[e.operator].name for e in own.events if e.kind == "kernel")


def test_a_compiled_script_has_fewer_kernels_and_the_same_products(captured: Capture) -> None:
    eager, compiled = captured(EAGER), captured(COMPILED)
    assert work_of(compiled) == work_of(eager)
    assert compiled.notes == ()
    before, after = launched(eager), launched(compiled)
    assert after.total() < before.total()
    same = {"aten.mm", "aten._scaled_dot_product_flash_attention", "aten._fused_adamw_"}
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert not {"aten.gelu", "aten.native_layer_norm", "aten.embedding"} & {*after}
    played = [
        sim.run(sim.RecordedScenario(record=(one,), topology="dgx-h100-ndr"))
        for one in (compiled, eager)
    ]
    assert played[0].step_time < played[1].step_time
    assert [one.inputs.stack for one in played] == [
        "PyTorch eager and torch.compile",
        "PyTorch eager",
    ]


def test_what_is_fused_moves_its_ends_alone(captured: Capture) -> None:
    """GELU behind a product: reads what the product made, writes what the next one reads."""
    own = captured(COMPILED)
    (gelu,) = (one for one in own.operators if one.name.endswith("__unsafe_view_gelu"))
    (read,), (written,) = gelu.inputs, gelu.outputs
    assert read.dtype == written.dtype == "bfloat16"
    assert prod(read.shape) == prod(written.shape) == 4 * 128 * 4 * 256


def test_ddp_reduces_the_gradients_of_a_compiled_model(captured: Capture) -> None:
    """In as many buckets, filled in another order: a compiled graph has all gradients at once."""

    def reduced(own: Recording) -> list[float]:
        return [e.bytes for e in own.events if e.kind == "collective"]

    compiled, eager = reduced(captured(COMPILED)), reduced(captured(EAGER))
    assert len(compiled) == len(eager) > 1
    assert sum(compiled) == sum(eager)


BUCKETS = "LAYERS = 4\n" + COMPILED.replace("[0])", "[0], bucket_cap_mb=3)")


@pytest.mark.long
def test_layers_that_are_alike_are_compiled_once(
    captured: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDP cuts the graph at its buckets, here one a layer; each is recorded as if it were alone."""
    from torch._inductor.graph import GraphLowering

    lowered: list[str] = []
    codegen = GraphLowering.codegen

    def counted(graph: Any) -> Any:
        lowered.append(graph.name)
        return codegen(graph)

    monkeypatch.setattr(GraphLowering, "codegen", counted)
    own, often = captured(BUCKETS), len(lowered)
    monkeypatch.setattr("sim.jobs.capturing.compiled.compiled_once", lambda _, compile, __: compile)
    each = captured(BUCKETS + "\n")
    assert own == each
    assert often < len(lowered) - often


def test_a_compiled_model_keeps_less_for_its_backward_pass(captured: Capture) -> None:
    kept = [Memory(captured(end)).peak().allocated for end in (COMPILED, EAGER)]
    assert kept[0] < kept[1]


BLOCKS = """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("nccl")
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
model = Model().to("cuda")
for number, layer in enumerate(model.layers):
    layer = checkpoint_wrapper(layer, preserve_rng_state=False)
    layer.compile(fullgraph=True)
    model.layers[number] = layer
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
train(model)
"""


def test_blocks_are_compiled_one_by_one_under_fsdp2_and_run_again(captured: Capture) -> None:
    own, plain = captured(BLOCKS), captured(BLOCKS.replace("layer.compile(fullgraph=True)", ""))
    names, before = launched(own), launched(plain)
    assert names["aten.mm"] == before["aten.mm"]
    assert names["inductor.poi_fused__unsafe_view_gelu"] == before["aten.gelu"] // 2
    moved = [
        [(e.name, e.bytes) for e in one.events if e.kind == "collective"] for one in (own, plain)
    ]
    assert moved[0] == moved[1]
    work = [work_of(one) for one in (own, plain)]
    assert work[0] == work[1]


BREAKS = """
class Broken(Model):
    def forward(self, tokens):
        x = self.layers[0](self.embedding(tokens))
        print(x.float().mean().item())
        return self.head(self.layers[1](x))

train(torch.compile(Broken().to("cuda")))
"""


def test_a_graph_that_breaks_is_two_and_the_host_waits_between_them(captured: Capture) -> None:
    own = captured(BREAKS)
    waits = [n for n, event in enumerate(own.events) if event.kind == "sync"]
    _, read = waits  # the copy of the tokens to the device, and item()
    for part in (own.events[:read], own.events[read:]):
        assert any(
            own.operators[e.operator].name.endswith("_gelu") for e in part if e.operator >= 0
        )
    assert work_of(own) == work_of(captured(EAGER))


GRAPHS = """
train(torch.compile(Model().to("cuda"), mode="reduce-overhead"))
"""


@pytest.mark.long
def test_a_cuda_graph_is_launched_at_once(captured: Capture) -> None:
    own, without = captured(GRAPHS), captured(GRAPHS.replace("reduce-overhead", "default"))
    assert launched(own) == launched(without)
    graphs = {(event.phase, event.graph) for event in own.events if event.graph}
    assert [phase for phase, _ in sorted(graphs)] == ["backward", "forward"]
    assert not any(event.graph for event in without.events)
    steps = [
        sim.run(sim.RecordedScenario(record=(one,), topology="dgx-h100-ndr")).step_time
        for one in (own, without)
    ]
    assert steps[0] < steps[1]
    assert "CUDA graphs" in own.notes[0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_another_backend_runs_is_recorded(captured: Capture, backend: str) -> None:
    own = captured(EAGER.replace("Model()", f"torch.compile(Model(), backend='{backend}')"))
    assert launched(own) == launched(captured(EAGER))


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_what_inductor_cannot_compile_is_recorded_as_it_is_and_named(
    captured: Capture, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    from torch._inductor.graph import GraphLowering

    codegen = GraphLowering.codegen

    def fails(graph: Any) -> Any:
        if graph.is_backward == (way == "backward"):
            raise NotImplementedError("no such lowering")
        return codegen(graph)

    monkeypatch.setattr(GraphLowering, "codegen", fails)
    own = captured(COMPILED + f"# and fails {way}")
    (note,) = own.notes
    assert note.startswith("train.py:")
    assert "recorded without torch.compile" in note
    assert "no such lowering" in note
    assert launched(own) == launched(captured(EAGER))


FLEX = """
from torch.nn.attention.flex_attention import flex_attention
q = torch.ones(1, 2, 128, 64, device="cuda", requires_grad=True)
flex_attention(q, q, q)
"""


def test_flex_attention_that_is_not_compiled_is_refused(captured: Capture) -> None:
    with pytest.raises(InputError, match=r"train\.py:\d+.*torch\.compile it"):
        captured(FLEX)


def test_torch_compile_works_as_ever_afterwards(captured: Capture) -> None:
    captured(COMPILED)
    x = torch.ones(3, requires_grad=True)
    torch.compile(lambda x: (x * x).sum(), backend="aot_eager")(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
