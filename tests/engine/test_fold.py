"""Folding is exact: simulating every role once gives what simulating every rank gives."""

import pytest

from sim.engine.clock import play
from sim.engine.clock_transfers import ClockDesk
from sim.engine.fold import Folding, fold
from sim.engine.folded import ComputeStep
from sim.engine.lowering import Lowering
from sim.engine.outline import outlines
from sim.kind import load
from sim.scenario.setup import from_scenario
from tests.engine.programs import machine, training

ORDERS = [("tp", "dp", "pp"), ("tp", "pp", "dp")]

# (name, layout, machine): 3-D layouts of up to 64 ranks.
LAYOUTS = [
    ("tensor in a node", dict(tp=8, pp=2, dp=4), dict(gpus=64)),
    ("half a node each", dict(tp=4, pp=2, dp=8, style="overlapped"), dict(gpus=64)),
    ("deep pipeline", dict(tp=2, pp=8, dp=4, style="async-send"), dict(gpus=64)),
    ("interleaved", dict(tp=8, pp=4, dp=2, chunks=2, style="overlapped"), dict(gpus=64)),
    ("tensor over nodes", dict(tp=16, pp=2, dp=2), dict(gpus=64)),
    ("data and tensor in a node", dict(tp=2, pp=2, dp=4, style="overlapped"), dict(gpus=16)),
    ("no overlap of gradients", dict(tp=4, pp=4, dp=4, overlap=False), dict(gpus=64)),
    ("bound by the host", dict(tp=4, pp=2, dp=2, host=3e-3), dict(gpus=16)),
    ("a slow rank", dict(tp=8, pp=2, dp=4), dict(gpus=64, slowdown={13: 1.5})),
    (
        "a slow rank in a deep pipeline",
        dict(tp=2, pp=4, dp=8, style="async-send"),
        dict(gpus=64, slowdown={5: 1.3}),
    ),
    ("a slow link", dict(tp=4, pp=4, dp=4, chunks=2), dict(gpus=64, slow_link="node2.nic0")),
    ("a slow port", dict(tp=4, pp=4, dp=4), dict(gpus=64, slow_link="gpu9.port")),
    (
        "ranks sharing a NIC",
        dict(tp=1, pp=4, dp=16, style="overlapped"),
        {"gpus": 64, "network.nics": 2},
    ),
    (
        "ranks sharing a NIC, one of them slow",
        dict(tp=2, pp=2, dp=16, style="overlapped"),
        {"gpus": 64, "network.nics": 4, "slowdown": {33: 2.0}},
    ),
]


def both(layout: dict, where: dict, order: tuple[str, ...]):
    program = training(order=order, **layout)
    on = machine("dgx-a100-hdr", **where)
    return fold(program, on), fold(program, on, unfold=True)


@pytest.mark.few(10)
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize(("layout", "where"), [x[1:] for x in LAYOUTS], ids=[x[0] for x in LAYOUTS])
def test_folded_equals_unfolded(layout, where, order):
    folded, unfolded = both(layout, where, order)
    short, long = play(folded), play(unfolded)
    assert len(folded.roles) < len(unfolded.roles) == where["gpus"]
    assert short.end == pytest.approx(long.end, rel=1e-9)
    assert sum(role.ranks for role in short.roles) == where["gpus"]


@pytest.mark.few(8)
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize(("layout", "where"), [x[1:] for x in LAYOUTS], ids=[x[0] for x in LAYOUTS])
def test_every_step_ends_when_it_does_unfolded(layout, where, order):
    folded, unfolded = both(layout, where, order)
    ends: dict[int, dict[tuple[str, str], float]] = {}
    long = play(unfolded)
    for span in long.timeline.spans:
        rank = long.roles[span.role].first_rank
        ends.setdefault(rank, {})[span.stream, span.name] = span.end
    short = play(folded)
    compared = 0
    for span in short.timeline.spans:
        alone = ends[short.roles[span.role].first_rank]
        if (span.stream, span.name) in alone:
            assert span.end == pytest.approx(alone[span.stream, span.name], rel=1e-9)
            compared += 1
    # Tensor collectives inside a pass have no step of their own where it is folded in time.
    assert compared >= 0.5 * len(short.timeline.spans)


def test_equal_replicas_are_one_role_a_stage():
    folded = fold(training(tp=8, pp=4, dp=2), machine("dgx-a100-hdr", 64))
    assert [own.role.ranks for own in folded.roles] == [16] * 4


def test_a_slow_rank_splits_its_stage_and_its_replicas_only():
    folded = fold(training(tp=8, pp=2, dp=4), machine("dgx-a100-hdr", 64, slowdown={0: 2.0}))
    # Slow rank, its tensor peers; in healthy replicas, the slow rank's data peers and the others.
    assert sorted(own.role.ranks for own in folded.roles if own.role.stage == 0) == [1, 3, 7, 21]


def test_roles_do_not_grow_with_replicas():
    small = fold(training(tp=8, pp=4, dp=2), machine("dgx-h100-ndr", 64))
    large = fold(training(tp=8, pp=4, dp=128), machine("dgx-h100-ndr", 4096))
    assert len(large.roles) == len(small.roles)
    assert len(large.transfers) == len(small.transfers)


def test_oversubscribed_pods_slow_what_crosses_them():
    crossing = training(tp=8, pp=2, dp=4, boundary=5e8, style="overlapped")
    pods = {
        "network.nodes_per_pod": 4,
        "network.oversubscription": 8.0,
        "network.shape": "fat-tree",
    }
    open_, narrow = (machine("dgx-a100-hdr", 64, **extra) for extra in ({}, pods))
    folded = play(fold(crossing, narrow)).end
    assert folded > 1.5 * play(fold(crossing, open_)).end
    assert folded == pytest.approx(play(fold(crossing, narrow, unfold=True)).end, rel=1e-9)


PODS = {
    "network.shape": "fat-tree",
    "network.nodes_per_pod": 2,
    "network.oversubscription": 4.0,
}


@pytest.mark.few(8)
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize(
    "sick", [{}, {"slowdown": {9: 1.5}}, {"slow_link": "pod1"}, {"slow_link": "node3.nic0"}]
)
@pytest.mark.parametrize("dp", [4, 6, 8])
def test_pods_fold_exactly(order, sick, dp):
    program = training(tp=4, pp=2, dp=dp, boundary=1e8, style="overlapped", order=order)
    on = machine("dgx-a100-hdr", 8 * dp, **PODS, **sick)
    folded, unfolded = fold(program, on), fold(program, on, unfold=True)
    assert play(folded).end == pytest.approx(play(unfolded).end, rel=1e-9)


def test_roles_do_not_grow_with_pods():
    program = training(tp=8, pp=2, dp=256, order=("tp", "pp", "dp"))
    assert len(fold(program, machine("h100-grand-teton-roce", 4096)).roles) == 2


def test_network_traffic_of_pcie_nodes_passes_their_ports():
    program = training(tp=1, pp=1, dp=8, layers=1)
    on = machine("example-pcie", 8)
    folded, unfolded = fold(program, on), fold(program, on, unfold=True)
    assert play(folded).end == pytest.approx(play(unfolded).end, rel=1e-9)
    ports = [link for link in unfolded.links if link.name.startswith("port")]
    assert len(ports) == 16


def test_what_unlike_roles_share_costs_each_what_it_costs_by_itself():
    """Gradients beside kernels cost more seconds on a node with a slow NIC."""
    small = {"gpus": 64, "plan.dp": 8, "plan.dp_replicate": 8, "model.layers": 2}
    slow = {"straggler": [{"link": "node1.nic0", "factor": 8.0}], "plan.global_batch": 64}
    setup = from_scenario(load("llama2-70b-fsdp", small | slow))
    program = setup.program
    folding, distinct = Folding(program, setup.machine), set()
    for lowered, (role, index) in zip(folding.folded().roles, folding.roles, strict=True):
        own = Lowering(ClockDesk(folding.desk).at(index), role.stage, role.slowdown)
        own.lower(outlines(program).of(role.stage, own.cut))
        for stream, steps in own.streams.items():
            for step, alike in zip(steps, lowered.streams[stream], strict=True):
                if isinstance(step, ComputeStep):
                    assert step.cost == alike.cost
                    distinct.add((step.name, step.cost.duration))
    assert len(distinct) > len({name for name, _ in distinct})
