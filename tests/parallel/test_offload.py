"""Offload: copies over the links to the host, hidden or not, and what they free and fill."""

from dataclasses import replace
from typing import Any

import pytest

from sim import run
from sim.collectives.compression import Compression
from sim.config.errors import InputError
from sim.engine.play import play
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.slow_links import slowed
from sim.kind import load
from sim.model.kinds import is_layer
from sim.parallel.plan import Offload
from sim.parallel.step import training_step
from sim.program.causes import DATA
from sim.program.operations import Collective, Communicate, Compute, Copy
from sim.program.unrolled import operations
from sim.scenario.scenario import Scenario
from sim.scenario.setup import PlanSetup, from_scenario


def scenario(offload: Offload, *, gpus: int = 8, change: Any = None, **plan: object) -> Scenario:
    """GPT 1.7B on A100s whose PCIe links pairs share."""
    base = load("megatron-1.7b")
    settings = {"dp": None, "tp": 1, "global_batch": 64, "microbatch": 4, "offload": offload} | plan
    whole = replace(base, gpus=gpus, topology="dgx-a100-hdr", stack="megatron-deepspeed")
    return replace(whole, plan=replace(base.plan, **settings), change=change or {})


def setup(offload: Offload, **plan: Any) -> PlanSetup:
    return from_scenario(scenario(offload, **plan))


def copies(own: PlanSetup, stage: int = 0) -> list[Copy]:
    """The copies of a rank in one step."""
    done = (op for op, _ in operations(training_step(own.job), stage))
    calls = (call for op in done if isinstance(op, Communicate) for call in op.calls)
    return [call for call in calls if isinstance(call, Copy)]


def moved(own: PlanSetup, first: str) -> float:
    """Bytes over paths that begin with this link."""
    return sum(call.bytes for call in copies(own) if call.path[0] == first)


def step(offload: Offload, **plan: Any) -> float:
    return run(scenario(offload, **plan)).step_time


def parameters(own: PlanSetup) -> float:
    return sum(own.job.parameters(own.job.chunks[0]).values())


# --- Bytes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("share", [0.25, 1.0])
def test_an_update_on_the_host_moves_its_gradients_out_and_its_weights_back(zero, share, overlap):
    own = setup(Offload(optimizer=share, overlap=overlap), zero=zero)
    updated = share * parameters(own) / (8 if zero else 1)
    reductions = own.job.plan.microbatches if zero >= 2 and overlap else 1
    assert moved(own, "pcie-up") == pytest.approx(2 * updated * reductions)
    assert moved(own, "pcie-down") == pytest.approx(2 * updated)
    # Adam reads gradient, weight and moments, writes three; casts and clips before, writes behind.
    assert moved(own, "memory") == pytest.approx((6 + 8 + 4 + 8 + 28 + 6) * updated)


@pytest.mark.parametrize("overlap", [False, True])
def test_what_a_layer_keeps_goes_out_and_comes_back_once_a_pass(overlap):
    own = setup(Offload(activations=1.0, overlap=overlap))
    layers = [own.job.block(kind) for kind in own.job.chunks[0][0].kinds if is_layer(kind)]
    kept = own.job.plan.microbatches * sum(block.saved for block in layers)
    assert moved(own, "pcie-up") == pytest.approx(kept)
    assert moved(own, "pcie-down") == pytest.approx(kept)


def test_shards_of_parameters_come_before_each_gather_and_need_not_go_back():
    own = setup(Offload(parameters=1.0, optimizer=1.0), zero=3)
    passes = 2 * own.job.plan.microbatches
    assert moved(own, "pcie-down") == pytest.approx(passes * 2 * parameters(own) / 8)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_shards_go_back_to_the_host_where_the_device_updates_them(share, overlap):
    own = setup(Offload(parameters=0.5, optimizer=share, overlap=overlap), zero=3)
    held = parameters(own) / 8
    updates = own.job.plan.microbatches if overlap else 1
    back = 2 * held * 0.5 * (1.0 - share)
    assert moved(own, "pcie-up") == pytest.approx(back + 2 * share * held * updates)


def reductions(own: PlanSetup) -> list[Collective]:
    """The sums of gradients in one step, in the order of their issue."""
    done = (op for op, _ in operations(training_step(own.job), 0))
    calls = (call for op in done if isinstance(op, Communicate) for call in op.calls)
    sums = (call for call in calls if isinstance(call, Collective) and call.cause == DATA)
    return [call for call in sums if "gradients" in call.name]


@pytest.mark.parametrize("compression", [None, Compression(kind="int8")])
@pytest.mark.parametrize("zero", [0, 1])
def test_gradients_are_reduced_in_the_same_buckets_wherever_activations_are(zero, compression):
    plan = {"zero": zero, "recompute": "full", "gradients": compression, "global_batch": 32}
    change = {"model.layers": 4}
    kept, gone = (
        scenario(Offload(activations=share), change=change, **plan) for share in (0.0, 1.0)
    )
    here, away = (
        reductions(from_scenario(replace(own, stack="megatron-core"))) for own in (kept, gone)
    )
    assert here == away
    assert len(here) > 1


def test_without_overlap_the_device_waits_for_the_shards_of_parameters():
    alone = Offload(parameters=1.0, optimizer=1.0, overlap=False)
    own = setup(alone, zero=3)
    result = run(scenario(alone, zero=3))
    waited = moved(own, "pcie-down") / own.machine.topology.host.bandwidth_of("pcie-down")
    assert result.step_time > step(Offload(parameters=1.0, optimizer=1.0), zero=3)
    assert result.breakdown["offload"] >= 0.999 * waited


def test_drives_hold_states_between_updates():
    own = setup(Offload(optimizer=1.0, nvme=True), zero=1)
    states = 12 * parameters(own) / 8
    assert moved(own, "nvme-down") == pytest.approx(states)
    assert sum(c.bytes for c in copies(own) if c.path[-1] == "nvme-up") == pytest.approx(states)


# --- Time ----------------------------------------------------------------------------------------


KINDS = [
    {"offload": Offload(optimizer=1.0), "zero": 2},
    {"offload": Offload(optimizer=0.5), "zero": 1},
    {"offload": Offload(activations=1.0), "zero": 0},
    {"offload": Offload(activations=0.5), "pp": 2},
    {"offload": Offload(parameters=1.0, optimizer=1.0, nvme=True), "zero": 3},
]


@pytest.mark.parametrize("kind", KINDS)
def test_offload_is_never_faster_than_its_links(kind):
    own = setup(**kind)
    busy: dict[object, float] = {}
    for call in copies(own):
        for link in call.path:
            ranks = {"pcie-up": 2, "pcie-down": 2}.get(link, 8)
            busy[link] = busy.get(link, 0.0) + ranks * call.bytes
    topology = own.machine.topology
    names = {"pcie-up": ("pcie-up", 0, 0), "pcie-down": ("pcie-down", 0, 0)}
    least = max(size / topology.capacity(names.get(link, (link, 0))) for link, size in busy.items())
    assert step(**kind) > least


@pytest.mark.parametrize("kind", KINDS)
def test_copies_beside_the_layers_cost_less_than_waiting_for_them(kind):
    naive = {**kind, "offload": replace(kind["offload"], overlap=False)}
    none = {**kind, "offload": Offload()}
    assert step(**none) * (1 - 1e-12) <= step(**kind) < step(**naive)


def test_prefetched_activations_are_hidden_where_links_are_fast_enough():
    none, hidden = step(Offload()), step(Offload(activations=1.0))
    assert hidden == pytest.approx(none, rel=1e-3)
    slow = {"topology.host.lanes": 1}
    waits = run(scenario(Offload(activations=1.0), change=slow)).breakdown["offload"]
    assert waits > 0.2 * none


def test_pairs_that_share_a_link_wait_twice_as_long():
    naive = Offload(activations=1.0, overlap=False)
    shared = run(scenario(naive)).breakdown["offload"]
    own = {"topology.host.devices_per_link": 1}
    alone = run(scenario(naive, change=own)).breakdown["offload"]
    latency = 2 * 24 * 2 * from_scenario(scenario(naive)).machine.topology.host.latency
    assert shared - latency == pytest.approx(2 * (alone - latency), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("overlap", [False, True])
def test_folded_and_unfolded_clock_and_replay_agree(kind, overlap):
    own = {**kind, "offload": replace(kind["offload"], overlap=overlap)}
    built = setup(**own, gpus=16, global_batch=128)
    program = training_step(built.job)
    clocked = play(program, built.machine, engine="clock").end
    assert play(program, built.machine).end == pytest.approx(clocked, rel=1e-9)
    unfolded = play(program, built.machine, engine="clock", unfold=True).end
    assert unfolded == pytest.approx(clocked, rel=1e-9)


def test_no_share_is_no_offload():
    none = run(replace(scenario(Offload()), plan=replace(scenario(Offload()).plan)))
    zero = run(scenario(Offload(optimizer=0.0, activations=0.0)))
    assert zero.step_time == none.step_time
    assert zero.memory_per_gpu == none.memory_per_gpu
    assert zero.host_memory == 0.0


# --- Memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_states_leave_the_device_and_fill_the_host(share):
    plain = run(scenario(Offload(), zero=1)).memory_per_gpu["optimizer"]
    own = run(scenario(Offload(optimizer=share), zero=1))
    assert own.memory_per_gpu.get("optimizer", 0.0) == pytest.approx((1 - share) * plain)
    # 12 bytes of states and 2 of gradients a parameter, of each of eight ranks.
    assert own.host_memory == pytest.approx(8 * share * plain * 14 / 12)


def test_activations_on_the_host_are_those_of_all_passes_under_way():
    own = setup(Offload(activations=1.0), pp=2, recompute="none")
    layers = [own.job.block(kind) for kind in own.job.chunks[0][0].kinds if is_layer(kind)]
    each = sum(block.saved for block in layers)
    result = run(scenario(Offload(activations=1.0), pp=2, recompute="none"))
    # Ranks of the first stage have two microbatches under way, those of the second one.
    assert result.host_memory == pytest.approx(4 * each * (2 + 1))
    plain = run(scenario(Offload(), pp=2, recompute="none")).memory_per_gpu["activations"]
    assert result.memory_per_gpu["activations"] < 0.4 * plain


def test_of_half_the_layers_each_has_twice_as_long_to_leave():
    """TransformerEngine, cpu_offload.py: layer_window_map[i] = layers // saved * (i + 1) - 1."""
    own = setup(Offload(activations=0.5), recompute="none")
    layers = sum(is_layer(kind) for kind in own.job.chunks[0][0].kinds)
    ops = next(op for variant, op in training_step(own.job).stages[0].ops_by_variant.items()
                   if variant.kind == "F")  # fmt: skip
    waits = [name for op in ops if isinstance(op, Compute) for name in op.after
             if str(name).startswith("save")]  # fmt: skip
    count = layers // 2
    # Behind the embedding (0) layers are 1 to n; the k-th leaves while 2 k of them compute.
    assert waits[:4] == ["save 1", "save 1", "save 2", "save 2"]
    assert waits[-1] == f"save {count - 1}"
    assert not [op for op in ops if op.name == f"save {count + 1}"]


def test_a_stack_may_leave_the_inputs_of_layers_that_run_again_on_the_host():
    own = from_scenario(replace(scenario(Offload(), recompute="full", tp=2, zero=3),
                                stack="megatron-deepspeed-zero3"))  # fmt: skip
    layers = [own.job.block(kind) for kind in own.job.chunks[0][0].kinds if is_layer(kind)]
    # A share of each from both tensor-parallel ranks, out and back in every micro-step.
    each = sum(block.saved for block in layers) / 2
    assert moved(own, "pcie-up") == pytest.approx(own.job.plan.microbatches * each)
    assert moved(own, "pcie-down") == pytest.approx(own.job.plan.microbatches * each)


# --- Mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offload", "change", "said"),
    [
        (Offload(optimizer=1.0), {"host.memory": "1 GB"}, "but a host has"),
        (Offload(parameters=1.0), {}, "without ZeRO-3"),
    ],
)
def test_what_the_host_cannot_do_is_refused(offload, change, said):
    changed = {f"topology.{key}": value for key, value in change.items()}
    with pytest.raises(InputError, match=said):
        from_scenario(scenario(offload, change=changed))


def test_drives_that_the_hosts_lack_are_refused():
    own = replace(scenario(Offload(optimizer=1.0, nvme=True)), topology="jz-v100-32gb-opa")
    with pytest.raises(InputError, match="have none"):
        from_scenario(own)


def test_a_cluster_without_links_to_its_hosts_is_refused():
    own = replace(scenario(Offload(activations=1.0)), topology="example-pcie", gpus=None)
    with pytest.raises(InputError, match="add a \\[host\\] table"):
        from_scenario(own)


def test_links_to_hosts_have_names_and_can_be_slow():
    cluster = topologies.load("dgx-a100-hdr").with_gpus(8)
    for text in ("node0.pcie3.up", "node0.memory", "node0.nvme.down"):
        (link,) = cluster.parse_link(text)
        assert slowed(cluster, text, 2.0).capacity(link) == pytest.approx(
            cluster.capacity(link) / 2
        )
    with pytest.raises(InputError, match="no such link"):
        cluster.parse_link("node0.pcie4")


def test_an_update_in_single_operations_moves_what_torchs_adam_does_on_the_host():
    fused, single = (
        from_scenario(scenario(Offload(optimizer=1.0), zero=1, change=change))
        for change in ({}, {"stack.fused_host_optimizer": False})
    )
    more = moved(single, "memory") - moved(fused, "memory")
    assert more == pytest.approx((80 - 28) * parameters(fused) / 8)
