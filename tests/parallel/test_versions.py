"""Pipelines that do not drain: how many versions of weights there are, and how late gradients."""

import pytest

from sim import run
from sim.config.errors import InputError
from sim.kind import load
from sim.parallel.memory import memory, resident
from sim.parallel.schedule import entry, undrained
from sim.parallel.step import training_step
from sim.program.memory_levels import levels_of
from sim.program.operations import Collective, Communicate
from sim.program.unrolled import operations
from sim.scenario.setup import from_scenario

SCENARIO = "zero-bubble-6.2b"
SIZES = [(p, m) for p in (2, 3, 4, 8) for m in (1, 2, 3, p - 1, p, 2 * p) if m]


def forward(p: int, stage: int, m: int) -> list[int]:
    """How many updates a stage has made when each microbatch goes forward through it."""
    back, updates = 0, []
    for action in undrained("pipedream", p, m).orders[stage]:
        if action.kind == "F":
            updates.append(back // m)
        else:
            back += 1
    return updates


def kept(p: int, m: int, stage: int, used: list[int]) -> int:
    """The most versions from that of the oldest microbatch under way to the newest."""
    return max(number // m - used[number] + 1 for number in range(p, len(used)))


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_versions_are_those_that_microbatches_under_way_went_forward_through(p, m):
    first = forward(p, 0, m)
    for stage in range(p):
        own = forward(p, stage, m)
        assert entry("pipedream").versions(stage, p, m) == kept(p, m, stage, own)
        assert entry("pipedream-vertical").versions(stage, p, m) == kept(p, m, stage, first)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_with_as_many_microbatches_as_stages_two_buffers_suffice(p):
    """Narayanan et al. 2021, arXiv 2006.09503, section 3.1: a step uses the weights of the last but
    one, which its first microbatch finds on every stage, and which none behind it needs."""
    assert entry("pipedream-2bw").least(p) == p
    for stage in range(p):
        assert entry("pipedream-2bw").versions(stage, p, p) == 2
        for m in (p, 2 * p):
            steps = [number // m - made for number, made in enumerate(forward(p, stage, m))]
            assert set(steps) <= {0, 1}
    few = p // 2
    assert p == 2 or max(n // few - made for n, made in enumerate(forward(p, 0, few))) > 1


def changed(name: str, microbatches: int, **more: object):
    plan = {"schedule": name, "global_batch": 3 * microbatches, "schedule_memory": 1.0}
    return load(SCENARIO, {**{f"plan.{key}": value for key, value in plan.items()}, **more})


@pytest.mark.parametrize(
    ("name", "m", "staleness"),
    [
        ("pipedream", 1, (7, 6, 5, 4, 3, 2, 1, 0)),
        ("pipedream", 4, (2, 2, 2, 1, 1, 1, 1, 0)),
        ("pipedream-vertical", 1, (7,) * 8),
        ("pipedream-2bw", 16, (1,) * 8),
    ],
)
def test_memory_of_versions_and_staleness_are_closed_form(name, m, staleness):
    job = from_scenario(changed(name, m)).job
    program = training_step(job)
    plain = training_step(from_scenario(changed("1f1b", 32)).job)
    for stage, late in enumerate(staleness):
        own = memory(job, program, stage).parts
        assert own.get("weight versions", 0.0) == late * own["weights"]
    for stage in range(8):
        own, other = levels_of(program, stage), levels_of(plain, stage)
        assert own.during[:, own.parts.index("activations")].max() == pytest.approx(
            other.during[:, other.parts.index("activations")].max(), rel=1e-12
        )
    result = run(changed(name, m))
    assert result.staleness == staleness
    assert result.memory_per_gpu["weight versions"] > 0
    assert "staleness" in str(result)


@pytest.mark.parametrize(("name", "m"), [("pipedream", 1), ("pipedream", 3), ("pipedream-2bw", 8)])
def test_every_update_sums_the_gradients_of_its_stage_once(name, m):
    job = from_scenario(changed(name, 2 * m, gpus=16)).job
    program = training_step(job)
    for stage in range(8):
        moved = sum(
            call.bytes
            for operation, _ in operations(program, stage)
            if isinstance(operation, Communicate)
            for call in operation.calls
            if isinstance(call, Collective) and call.axes == ("dp",)
        )
        held = sum(job.parameters(job.chunks[stage]).values())
        each = held * job.stack.reduced_bytes("fp16")
        assert moved == pytest.approx(each * program.schedule.steps)


@pytest.mark.parametrize("stack", ["megatron-lm-zero-bubble", "megatron-core"])
@pytest.mark.parametrize(("name", "m"), [("pipedream", 2), ("pipedream-2bw", 8)])
def test_shards_of_states_leave_versions_whole_and_come_once_an_update(name, m, stack):
    sizes = {"gpus": 16, "stack": stack}
    whole, shards = (
        from_scenario(changed(name, 2 * m, **sizes, **{"plan.zero": zero})).job for zero in (0, 1)
    )
    program = training_step(shards)
    for stage in range(8):
        kept = [resident(job, stage) for job in (whole, shards)]
        assert kept[1]["optimizer"] == pytest.approx(kept[0]["optimizer"] / 2)
        assert kept[1].get("weight versions") == kept[0].get("weight versions")
        come = sum(
            call.bytes
            for operation, _ in operations(program, stage)
            if isinstance(operation, Communicate)
            for call in operation.calls
            if isinstance(call, Collective) and "weights" in call.name
        )
        weights = sum(shards.parameters(shards.chunks[stage]).values()) * 2
        assert come == pytest.approx(weights * program.schedule.steps)


def test_a_step_that_drains_has_no_versions():
    result = run(changed("1f1b", 32))
    assert result.staleness == ()
    assert "weight versions" not in result.memory_per_gpu


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"plan.zero": 2, "gpus": 16}, r"excludes shards of gradients \(zero = 2\); set zero = 1"),
        ({"plan.offload.optimizer": 1.0, "topology": "dgx-a100-hdr"}, "excludes offload"),
        ({"plan.overlap_experts": True, "model": "mixtral-8x7b"}, "excludes passes in pairs"),
        ({"model.tied_embeddings": True}, "excludes a word embedding that stages share"),
        (
            {"plan.schedule": "pipedream-2bw", "plan.global_batch": 12},
            "'pipedream-2bw' needs at least 8 microbatches on 8 stages, but there are 4; "
            "set global_batch = 24",
        ),
        ({"plan.schedule": "pipedream-3bw"}, "no schedule named 'pipedream-3bw'"),
    ],
)
def test_what_versions_do_not_go_with_is_refused(changes, said):
    plan = {"plan.schedule": "pipedream", "plan.schedule_memory": 1.0, "plan.global_batch": 6}
    with pytest.raises(InputError, match=said):
        from_scenario(load(SCENARIO, {**plan, **changes}))
