"""FSDP, HSDP, accumulation and recomputation, recorded from the model of `conftest`."""

from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

import sim
from sim.jobs.recorded.axes import every_axes
from sim.jobs.recorded.edits.sharding import shard_calls
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.kind import pace, set_up
from sim.jobs.recorded.recording import PARTS, Recording
from sim.jobs.recorded.scaled import STATES, scaled, sharded_states
from sim.jobs.recorded.setup import RecordedScenario
from sim.jobs.recorded.work import work_of
from tests.jobs.capturing.conftest import DDP, Capture
from tests.jobs.capturing.test_capture import BATCH, LAYERS, LENGTH, PARAMETERS, WIDTH

SHARD = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("nccl")
world = dist.get_world_size()
with torch.device("cuda"):
    model = Model()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.layers:
    fully_shard(layer, mesh=mesh(), mp_policy=policy)
fully_shard(model, mesh=mesh(), mp_policy=policy)
"""
FSDP2 = f"mesh = lambda: init_device_mesh('cuda', (world,))\n{SHARD}train(model)\n"
HSDP = (
    "mesh = lambda: init_device_mesh('cuda', (world // 8, 8), mesh_dim_names=('r', 's'))\n"
    f"{SHARD}train(model)\n"
)
ACCUMULATED = FSDP2.replace("train(model)", "train(model, micro=2)")
FSDP1 = """
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

dist.init_process_group("nccl")
mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
train(FullyShardedDataParallel(Model().to("cuda"), mixed_precision=mixed, device_id=0))
"""
CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint


class Again(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=False)


model = Model().to("cuda")
model.layers = nn.ModuleList(Again(layer) for layer in model.layers)
train(model)
"""
SAVED = f"""mesh = lambda: init_device_mesh('cuda', (world,))
{SHARD}
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    model(torch.randint(VOCABULARY, (BATCH, LENGTH), device="cuda")).square().mean().backward()
    optimizer.step()
    weights, states = get_state_dict(model, optimizer)
    dcp.save(dict(weights=weights, states=states), checkpoint_id="shards")
    dcp.async_save(weights, checkpoint_id="shards").result()
"""
OPTIMIZER = PARTS.index("optimizer")
LOSSES = """
def gathered(loss):
    losses = [torch.empty_like(loss) for _ in range(dist.get_world_size())]
    dist.all_gather(losses, loss.detach())
    return loss


once, F.cross_entropy = F.cross_entropy, lambda *of: gathered(once(*of))
try:
    train(model)
finally:
    F.cross_entropy = once
"""
LOGGED = DDP.replace("train(model)\n", LOSSES)
WHOLE = "train(Model().to('cuda'))\n"


def played(own: Recording) -> sim.Result:
    scenario = RecordedScenario(record=(own,), topology="dgx-h100-ndr", stack="torchtitan-eager")
    return sim.run(scenario)


def sent(own: Recording, kind: str) -> list[float]:
    return [event.bytes for event in own.events if event.name == kind]


def test_fsdp2_gathers_in_half_and_reduces_in_full_precision(captured: Capture) -> None:
    own = captured(FSDP2, world=64)
    assert own.parameters == PARAMETERS
    reduced = sum(sent(own, "reduce_scatter"))
    assert reduced == pytest.approx(4 * PARAMETERS, rel=0.1)  # rows are padded to the ranks
    # Layers are gathered once more for the backward pass; the root stays whole.
    assert len(sent(own, "all_gather")) == 1 + 2 * LAYERS
    assert len({event.stream for event in own.events}) > 3


def test_a_checkpoint_of_shards_is_said_not_to_be_written(
    captured: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = captured(SAVED, world=8)
    assert sum("a checkpoint is not written" in note for note in own.notes) == 2
    assert not (tmp_path / "shards").exists()
    assert len(sent(own, "all_gather")) == 1 + 2 * LAYERS  # of a step; a save gathers nothing
    checkpoint = import_module("torch.distributed.checkpoint")
    for name in ("save", "async_save"):  # those of torch again, once the script has been recorded
        assert getattr(checkpoint, name) is getattr(checkpoint.state_dict_saver, name)
        assert getattr(checkpoint, name).__name__ == name


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_fsdp1_moves_the_flat_parameters(captured: Capture, kind: str) -> None:
    width = {"all_gather": 2, "reduce_scatter": 4}[kind]
    assert captured(FSDP1, world=64).parameters == PARAMETERS
    assert max(sent(captured(FSDP1, world=64), kind)) == pytest.approx(width * PARAMETERS, rel=1e-3)


def test_axes_of_hsdp_are_both_of_data(captured: Capture) -> None:
    own = captured(HSDP, world=64)
    axes = next(every_axes([own]))
    assert dict(axes.mesh) == {"dp": 8, "dp_replicate": 8}
    scenario = RecordedScenario(record=(own,), topology="dgx-h100-ndr")
    assert pace(set_up(scenario)).replicas == 64
    assert axes.data_ranks == 64


def test_two_micro_steps_work_twice(captured: Capture) -> None:
    once, twice = (work_of(captured(end, world=64)) for end in (FSDP2, ACCUMULATED))
    assert twice.tokens == 2 * once.tokens
    assert twice.model_flops == pytest.approx(2 * once.model_flops)


def test_what_checkpointing_repeats_is_no_model_flop(captured: Capture) -> None:
    again, once = (work_of(captured(end, world=1)) for end in (CHECKPOINTED, WHOLE))
    assert again.model_flops == once.model_flops
    # The layers' products but the last, where recomputation stops early, and causal attention.
    products, attention = 2 * 8 * WIDTH**2, 4 * LENGTH / 2 * WIDTH
    repeated = LAYERS * BATCH * LENGTH * (products + attention)
    assert again.executed_flops == once.executed_flops + repeated
    assert played(captured(CHECKPOINTED, world=1)).breakdown["recompute"] > 0.0
    assert "recompute" not in played(captured(WHOLE, world=1)).breakdown


@pytest.mark.parametrize(
    "end",
    [DDP, FSDP1, FSDP2, HSDP, LOGGED],
    ids=["ddp", "fsdp1", "fsdp2", "hsdp", "ddp that gathers losses"],
)
def test_a_recording_plays_in_another_world_as_one_that_was_captured_there(
    captured: Capture, end: str
) -> None:
    (scale,), fresh = scaled([captured(end, world=64)], 256), captured(end, world=256)
    here, there = played(scale), played(fresh)
    assert here.step_time == pytest.approx(there.step_time, rel=0.01)
    assert here.ranks == there.ranks == 256
    for part in ("activations", "optimizer", "parameters"):
        assert here.memory_per_gpu[part] == pytest.approx(there.memory_per_gpu[part], rel=0.05)


def test_a_gathered_loss_shards_no_states(captured: Capture) -> None:
    alone, logged = (captured(end, world=64) for end in (DDP, LOGGED))
    assert sent(logged, "all_gather") == [4.0 * 64]  # a loss of each rank
    moved = [*scaled([alone], 512), *scaled([logged], 512)]
    assert sent(moved[1], "all_gather") == [4.0 * 512]
    plain, with_losses = (played(own).memory_per_gpu for own in moved)
    for part in ("parameters", "optimizer"):
        assert with_losses[part] == plain[part] == played(alone).memory_per_gpu[part]
    assert not shard_calls(logged, next(every_axes([logged])))
    features = tuple(
        replace(event, bytes=1.5e6) if event.name == "all_gather" else event
        for event in logged.events
    )
    (larger,) = scaled([replace(logged, events=features)], 512)
    assert sent(larger, "all_gather") == [1.2e7]
    assert "gathers a tensor of each rank" in larger.notes[-1]
    assert moved[1].notes == logged.notes  # losses are too small for a note


def test_states_are_shards_if_all_weights_are_gathered_and_a_rank_holds_its_share(
    captured: Capture,
) -> None:
    own = captured(LOGGED, world=64)
    axes = next(every_axes([own]))
    large = tuple(
        replace(event, bytes=2.0 * PARAMETERS) if event.name == "all_gather" else event
        for event in own.events
    )
    moments = tuple(
        replace(row, bytes=max(row.bytes // 64, 1)) if row.part == OPTIMIZER and row.bytes else row
        for row in own.memory
    )
    assert sharded_states(own, axes, "dp") == ()
    assert sharded_states(replace(own, events=large), axes, "dp") == ()  # of outputs, not weights
    zero = replace(own, events=large, memory=moments)
    assert sharded_states(zero, axes, "dp") == ("optimizer",)  # as ZeRO-1 does
    fsdp = captured(FSDP2, world=64)
    assert sharded_states(fsdp, next(every_axes([fsdp])), "dp") == STATES


def test_fewer_ranks_have_larger_shares(captured: Capture) -> None:
    own = captured(FSDP2, world=64)
    small, large = played(*scaled([own], 16)), played(own)
    assert small.memory_per_gpu["optimizer"] == pytest.approx(
        4 * large.memory_per_gpu["optimizer"], rel=0.1
    )


def test_one_that_shares_batches_refuses_other_worlds(captured: Capture) -> None:
    with pytest.raises(sim.InputError, match="take a multiple of 8"):
        scaled([captured(HSDP, world=64)], 60)


def test_weights_that_fsdp2_gathers_are_given_back(captured: Capture) -> None:
    own, live = captured(FSDP2, world=64), {}
    for one in own.memory:
        live[one.block] = one.bytes if PARTS[one.part] not in STATES else 0
    assert sum(live.values()) < 2 * 12 * WIDTH**2  # less than one layer in half precision


CONTEXT = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (dist.get_world_size() // 4, 4), mesh_dim_names=("dp", "cp"))
set_rotate_method(METHOD)
model = fully_shard(Model().to("cuda"), mesh=mesh._flatten("all"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for _ in range(2):
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH)).to("cuda")
    with context_parallel(mesh["cp"], buffers=[tokens], buffer_seq_dims=[1]):
        with torch.amp.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens)
        F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_ring_of_four_divides_causal_attention_equally(captured: Capture) -> None:
    own = captured(CONTEXT.replace("METHOD", "'alltoall'"), world=8)
    whole = captured(WHOLE, world=1)
    assert (
        4 * attention(own) == attention(whole) == LAYERS * 3.5 * 4 * BATCH * LENGTH**2 / 2 * WIDTH
    )
    ring = [e for e in own.events if e.name == "all_to_all" and e.phase == "forward"]
    keys_and_values = 2 * 2 * BATCH * LENGTH // 4 * WIDTH
    assert [call.bytes for call in ring] == [keys_and_values] * LAYERS * 3
    assert {own.groups[call.group].ranks for call in ring} == {(0, 1, 2, 3)}


def test_what_a_ring_sends_is_awaited_behind_the_kernel_beside_it(captured: Capture) -> None:
    own = captured(CONTEXT.replace("METHOD", "'allgather'"), world=8)
    for name, beside in (("all_gather", 1), ("all_to_all", 3 / 4)):  # the last shift has no kernel
        sent = [
            i for i, e in enumerate(own.events) if e.name == name and e.bytes and not e.blocking
        ]
        ends = {e.mark: i for i, e in enumerate(own.events) if e.kind == "done"}
        hidden = [
            any(
                "attention" in own.operators[e.operator].name
                for e in own.events[i : ends[own.events[i].mark]]
                if e.kind == "kernel"
            )
            for i in sent
        ]
        assert sum(hidden) == beside * len(sent) > 0


def test_outputs_of_a_ring_are_cast_to_fp32_before_they_are_merged(captured: Capture) -> None:
    own = captured(CONTEXT.replace("METHOD", "'allgather'"), world=8)
    kernels = [e for e in own.events if e.kind == "kernel" and e.phase == "forward"]
    names = [own.operators[event.operator].name for event in kernels]
    behind = [then for one, then in pairwise(names) if "attention" in one]
    assert behind == ["aten._to_copy"] * LAYERS * 4


@pytest.mark.parametrize("method", ["alltoall", "allgather"])
def test_the_axis_that_keys_and_values_move_along_is_context_parallel(
    captured: Capture, method: str
) -> None:
    own = captured(CONTEXT.replace("METHOD", repr(method)), world=8)
    assert dict(next(every_axes([own])).mesh) == {"cp": 4, "dp": 2}
    result = played(own)
    assert result.breakdown["context communication"] > 0.0
    assert "tensor communication" not in result.breakdown
    assert result.tokens_per_second * result.step_time == pytest.approx(2 * BATCH * LENGTH)
    assert result.samples_per_second * result.step_time == pytest.approx(2 * BATCH)


def attention(own: Recording) -> float:
    """Its FLOPs."""
    kernels = [kernel_of(own.operators[e.operator]) for e in own.events if e.kind == "kernel"]
    return sum(kernel.flops for kernel in kernels if kernel.family == "attention")


def test_fsdp1_moves_a_model_of_the_host_to_the_device_itself(captured: Capture) -> None:
    moved = captured(FSDP1.replace('Model().to("cuda")', "Model()"), world=64)
    there = captured(FSDP1, world=64)
    assert moved.parameters == there.parameters
    assert moved.operators == there.operators
    assert sent(moved, "all_gather") == sent(there, "all_gather")
