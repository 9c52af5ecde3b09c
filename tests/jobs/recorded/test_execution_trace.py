"""PyTorch's execution traces as recordings: the kernels of a capture of the same step."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sim
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.jobs.recorded.file import read
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import Group, Recording
from sim.jobs.recorded.work import work_of
from sim.model.kernels import Attention, Gemm, Kernel

DDP = Path(__file__).parent / "traces" / "ddp-0.json.gz"  # made by ddp.py beside it
WORLD, BATCH, INNER = 2, 16, 128


def kernels(own: Recording) -> Iterator[tuple[str, bool, Kernel]]:
    for event in own.events:
        if event.kind == "kernel":
            operator = own.operators[event.operator]
            yield event.phase, event.again, kernel_of(operator)


def products(own: Recording) -> Counter[Any]:
    """Phase and shape of each product and attention."""
    found: Counter[Any] = Counter()
    for phase, again, kernel in kernels(own):
        if isinstance(kernel, Gemm):
            found[phase, again, kernel.m, kernel.n, kernel.k, kernel.batch] += 1
        elif isinstance(kernel, Attention):
            found[phase, again, kernel.batch, kernel.heads, kernel.q, kernel.causal] += 1
    return found


def moved(own: Recording) -> float:
    """Bytes of kernels that only move some."""
    return sum(getattr(kernel, "bytes", 0.0) for *_, kernel in kernels(own))


# --- A trace that ships --------------------------------------------------------------------------


def test_whether_a_trace_without_memory_fits_is_unknown() -> None:
    result = sim.run(sim.RecordedScenario(record=str(DDP), topology="dgx-h100-ndr"))
    assert result.fits is None
    assert "unknown" in str(result)
    asked = CliRunner().invoke(main, ["run", str(DDP), "--topology", "dgx-h100-ndr", "--json"])
    assert (asked.exit_code, json.loads(asked.stdout)["fits"]) == (5, None)


def test_a_trace_of_data_parallel_training_is_a_recording() -> None:
    (own,) = read(DDP)
    assert (own.world, own.rank, own.groups) == (WORLD, 0, (Group(first=0, axes=((1, WORLD),)),))
    forward = {
        ("forward", False, BATCH, INNER, 64, 1): 1,
        ("forward", False, BATCH, 8, INNER, 1): 1,
    }
    assert {key: n for key, n in products(own).items() if key[0] == "forward"} == forward
    inputs, outputs = 2 * BATCH * 64 * INNER, 2 * BATCH * INNER * 8
    assert work_of(own).model_flops == 2 * inputs + 3 * outputs  # data needs no gradient
    weights = 64 * INNER + INNER + INNER * 8 + 8
    (reduced,) = (event for event in own.events if event.kind == "collective")
    assert (reduced.name, reduced.bytes, reduced.blocking) == ("all_reduce", 4.0 * weights, False)
    readers = [event for event in own.events if reduced.mark in event.reads]
    assert len(readers) == 1  # what copies the first gradient back out of its bucket
    phases = [event.phase for event in own.events]
    assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)


def test_it_plays_on_any_cluster_as_recordings_do() -> None:
    near = sim.run(sim.load(DDP, {"topology": "dgx-h100-ndr"}))
    slow = {"network.bandwidth": "1 Gb/s"}  # the host hides a faster one
    wide = sim.run(sim.load(DDP, {"topology": "dgx-h100-ndr", "gpus": 64, **slow}))
    assert near.ranks == WORLD
    assert wide.step_time > near.step_time
    assert {"compute", "optimizer", "data communication"} <= near.breakdown.keys()
    assert any("says nothing of memory" in warning for warning in near.warnings)
    shown = {span.args.get("phase") for span in near.timeline.spans}
    assert {"F", "B", "optimizer"} <= shown
    command = ["run", str(DDP), "--topology", "dgx-h100-ndr", "--json"]
    answer = CliRunner().invoke(main, command)
    assert json.loads(answer.stdout)["step_time"] == near.step_time


# --- Traces that are made here -------------------------------------------------------------------

torch_there = pytest.mark.skipif(
    not pytest.importorskip("importlib.util").find_spec("torch"), reason="needs torch"
)


def train(device: str, steps: int = 2, again: bool = False, micro: int = 1) -> None:
    """A layer of a language model."""
    import torch
    from torch import nn
    from torch.nn import functional as f
    from torch.utils.checkpoint import checkpoint

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv = nn.LayerNorm(64), nn.Linear(64, 192, bias=False)
            self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

        def forward(self, x: Any) -> Any:
            heads = self.qkv(self.norm(x)).unflatten(-1, (12, 16)).transpose(1, 2)
            q, k, v = heads.chunk(3, 1)
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + y.transpose(1, 2).flatten(2)
            return x + self.down(f.gelu(self.up(x)))

    embedding, layer, head = nn.Embedding(100, 64), Layer(), nn.Linear(64, 100, bias=False)
    model = nn.ModuleList([embedding, layer, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for _ in range(steps):
        for _ in range(micro):
            tokens = torch.zeros(2, 32, dtype=torch.long, device=device)
            x = embedding(tokens)
            x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
            f.cross_entropy(head(x).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def observed(path: str, again: bool, micro: int) -> None:
    """Train on a CPU, and trace it."""
    from torch.profiler import ExecutionTraceObserver

    observer = ExecutionTraceObserver().register_callback(path)
    observer.start()
    train("cpu", again=again, micro=micro)
    observer.stop()
    observer.unregister_callback()


@torch_there
@pytest.mark.parametrize(
    ("again", "micro"), [pytest.param(False, 1, marks=pytest.mark.long), (True, 2)]
)
def test_a_trace_has_the_kernels_of_a_capture(tmp_path: Path, again: bool, micro: int) -> None:
    path = tmp_path / "trace.json"
    # A process that has run a backward pass cannot be forked, as captures of stages are.
    watch = get_context("spawn").Process(target=observed, args=(str(path), again, micro))
    watch.start()
    watch.join()
    (traced,) = read(path)
    (captured,) = sim.capture(lambda: train("cuda", again=again, micro=micro), world=1)
    assert products(traced) == products(captured)
    theirs, ours = work_of(traced), work_of(captured)
    assert (theirs.model_flops, theirs.executed_flops) == (ours.model_flops, ours.executed_flops)
    assert (theirs.samples, theirs.tokens) == (ours.samples, ours.tokens) == (2 * micro, 64 * micro)
    assert moved(traced) == pytest.approx(moved(captured), rel=0.1)


# --- Other files ---------------------------------------------------------------------------------


def small(**changes: Any) -> dict[str, Any]:
    """A trace of one product."""
    tensor = [1, 2, 0, 16, 4, "cpu"]
    side = {"values": [tensor] * 2, "shapes": [[4, 4]] * 2, "types": ["Tensor(float)"] * 2}
    made = {"values": [tensor], "shapes": [[4, 4]], "types": ["Tensor(float)"]}
    schema = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
    node = {"id": 2, "ctrl_deps": 1, "name": "aten::mm", "inputs": side, "outputs": made,
            "attrs": [{"name": "op_schema", "value": schema}]}  # fmt: skip
    return {"schema": "1.1.1-chakra.0.0.4", "nodes": [node | changes]}


def test_a_kernel_of_triton_moves_what_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    backend = [{"name": "kernel_backend", "value": "triton"}]
    path.write_text(json.dumps(small(name="triton_poi_fused_0", attrs=backend)))
    (own,) = read(path)
    assert [operator.name for operator in own.operators] == ["inductor.triton_poi_fused_0"]
    assert kernel_of(own.operators[0]).bytes == 2 * 4 * 16  # type: ignore[union-attr]


def test_what_trained_on_one_gpu_is_not_played_on_more(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(small()))
    with pytest.raises(InputError, match=r"on 1 GPUs without data parallelism; take --gpus 1"):
        sim.run(sim.load(path, {"topology": "dgx-h100-ndr", "gpus": 8}))


def test_an_operator_that_is_not_torchs_is_told(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    schema = [{"name": "op_schema", "value": "mine::twist(Tensor x, Tensor y) -> Tensor"}]
    path.write_text(json.dumps(small(attrs=schema)))
    (own,) = read(path)
    assert any("mine.twist (1 times) is no operator of torch" in note for note in own.notes)


TENSOR, SHAPE = [1, 2, 0, 16, 4, "cpu"], [4, 4]


def of_job(*calls: list[Any]) -> dict[str, Any]:
    """A product, and all-reduces of which NCCL's nodes have these arguments behind the tensor."""
    document = small()
    side = {"values": [[TENSOR]], "shapes": [[SHAPE]], "types": ["GenericList[Tensor(float)]"]}
    schema = [{"name": "op_schema", "value": "c10d::allreduce_(Tensor[] x, Object g) -> Tensor[]"}]
    for number, rest in enumerate(calls):
        node = {"id": 10 + 2 * number, "ctrl_deps": 1, "attrs": schema, "outputs": side,
                "name": "c10d::allreduce_", "inputs": side}  # fmt: skip
        lists = {"values": [[TENSOR], *rest], "shapes": [[SHAPE], *([] for _ in rest)],
                 "types": ["GenericList[Tensor(float)]", *("Int" for _ in rest)]}  # fmt: skip
        inner = {"id": 11 + 2 * number, "ctrl_deps": 10 + 2 * number, "attrs": [],
                 "name": "record_param_comms", "inputs": lists, "outputs": side}  # fmt: skip
        document["nodes"] += [node, inner]
    return document


def of_1_0_1(document: dict[str, Any]) -> dict[str, Any]:
    """The same trace in the layout of schema 1.0.1."""
    nodes = []
    for node in document["nodes"]:
        old = {"name": node["name"], "id": node["id"], "parent": node["ctrl_deps"], "op_schema": ""}
        for side in ("input", "output"):
            given = node[f"{side}s"]
            old[f"{side}s"] = given["values"]
            old |= {f"{side}_{name}": given[name] for name in ("shapes", "types")}
        nodes.append(old | {attribute["name"]: attribute["value"] for attribute in node["attrs"]})
    return {"schema": "1.0.1", "nodes": nodes}


def test_schema_1_0_1_has_what_later_schemas_have(tmp_path: Path) -> None:
    paths = [tmp_path / "new" / "trace.json", tmp_path / "old" / "trace.json"]
    document = of_job([7, ["0", "default_pg"], 1, "allreduce", [], [], 0, 1, 2])
    for path, each in zip(paths, [document, of_1_0_1(document)], strict=True):
        path.parent.mkdir()
        path.write_text(json.dumps(each))
    (new,), (old,) = map(read, paths)
    assert replace(old, torch=new.torch) == new
    assert [event.kind for event in old.events] == ["kernel", "collective"]


def test_a_tensor_of_schema_1_0_1_may_have_no_device(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    document = of_1_0_1(small())
    for side in ("inputs", "outputs"):
        document["nodes"][0][side] = [tensor[:5] for tensor in document["nodes"][0][side]]
    path.write_text(json.dumps(document))
    (own,) = read(path)
    assert [operator.name for operator in own.operators] == ["aten.mm"]


@pytest.mark.parametrize(
    ("calls", "world", "rank", "groups"),
    [
        ([[7, ["0", "all"], 0, "broadcast", [], [], 0, 1, 4],  # from root 0
          [8, ["0", "all"], 3, "allreduce", [], [], 0, 1, 4],
          [9, ["1", "tp"], 1, "allreduce", [], [], 2, 1, 2]],
         4, 3, [((1, 4),), ((1, 4),), ((1, 2),)]),  # of 1.0.2
        ([[7, 94594108284448, 2, "all_to_allv", [1, 2, 3, 4], [4, 3, 2, 1]],
          [8, 94594108284448, 2, "allreduce", [], []],
          [9, 11, 2, "allreduce", [], []]],
         4, 2, [((1, 4),)] * 3),  # of 1.0.1: the sizes by rank tell how many ranks there are
    ],
)  # fmt: skip
def test_groups_are_those_of_collectives_where_none_is_declared(
    tmp_path: Path, calls: list[list[Any]], world: int, rank: int, groups: list[Any]
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(of_job(*calls)))
    (own,) = read(path)
    events = [event for event in own.events if event.kind == "collective"]
    assert (own.world, own.rank) == (world, rank)
    assert [own.groups[event.group].axes for event in events] == groups


@pytest.mark.parametrize(
    "rest",
    [
        [7, 11, 2, "allreduce", [], []],  # nobody tells the size
        [7, ["0", "all"], 0, "allreduce", [], [], 0, 1, 1 << 40],
        [7, ["0", "all"], 0, "wait", [], [], -1, -1, 1],
        ["allreduce"],
    ],
)
def test_a_group_of_no_known_size_is_refused(tmp_path: Path, rest: list[Any]) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(of_job(rest)))
    with pytest.raises(InputError, match="does not say in which of 0 process groups"):
        read(path)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"schema": "0.9", "nodes": []}, "has schema '0.9', which is not known"),
        ({"schema": "1.1.1", "nodes": []}, "holds no operator that computes"),
        ({"schema": "1.1.1", "nodes": 3}, "node 0: is no node of an execution trace"),
        (small(id=-1), "node 0: is no node of an execution trace"),
        (small(inputs={"values": [[1]], "shapes": [[4]], "types": ["Tensor(float)"]}), "node 0"),
        (small(inputs={"values": [[1, 2, 0, 1, 4, "cpu"]] * 2, "shapes": [[1 << 49, 9]] * 2,
                       "types": ["Tensor(float)"] * 2}), "node 0"),
        (small(inputs={"values": [[1, 2, 0, 1, 4, "cpu"]] * 2, "shapes": [[4], [4]],
                       "types": ["Tensor(float)"] * 2}), "has tensors that aten.mm does not take"),
        (small(attrs=[{"name": "op_schema", "value": "c10d::allreduce_(Tensor[] x) -> Tensor"}]),
         "does not say in which of 0 process groups"),
        (small(name="## process_group:init ##",
               inputs={"values": ["[3]"], "shapes": [[]], "types": ["String"]}),
         "process groups that cannot be read"),
    ],
)  # fmt: skip
def test_other_traces_are_refused_in_one_line(
    tmp_path: Path, document: dict[str, Any], said: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=said):
        read(path)
    answer = CliRunner().invoke(main, ["run", str(path), "--topology", "dgx-h100-ndr"])
    assert answer.exit_code == 2
    assert answer.stderr.count("\n") == 1
