"""A collective is written once: what it computes, its bytes, its time and its formula agree."""

from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.collectives import binary_trees, readings
from sim.collectives.algorithms import halving_doubling, ring, tree
from sim.collectives.composed import placed, together
from sim.collectives.readings import messages
from sim.collectives.schedule import (
    KINDS,
    ChunkSend,
    CollectiveKind,
    CollectiveSchedule,
    algorithms,
    offered,
    schedule,
)
from sim.engine.messages import play_messages
from sim.hardware.cluster import topology
from tests.collectives.execute import execute

RANKS = [2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16]
OFFERED = [(a, k) for a, module in algorithms().items() for k in offered(module)]
SIZE, ALPHA = 5040.0 * 1024, 3e-6

every = pytest.mark.parametrize(("algorithm", "kind"), OFFERED)


def made(algorithm: str, kind: CollectiveKind, ranks: int) -> tuple[ModuleType, CollectiveSchedule]:
    module = algorithms()[algorithm]
    return module, getattr(module, kind)(ranks)


def ranks_for(kind: CollectiveKind) -> list[int]:
    return [2] if kind == "point_to_point" else RANKS


def test_the_five_algorithms_are_found() -> None:
    assert set(algorithms()) >= {"ring", "tree", "halving_doubling", "direct", "hierarchical"}


def test_every_collective_is_offered_by_some_algorithm() -> None:
    assert {kind for _, kind in OFFERED} == set(KINDS)


def inputs_and_result(plan: CollectiveSchedule) -> tuple[np.ndarray, np.ndarray]:
    """Random integers (so that sums are exact in any order), and what NumPy says they become."""
    n, size = plan.ranks, plan.chunks * plan.ranks
    random = np.random.default_rng(n)
    whole = random.integers(-99, 99, (n, size)).astype(float)
    match plan.kind:
        case "all_reduce":
            return whole, np.tile(whole.sum(axis=0), (n, 1))
        case "reduce_scatter":
            return whole, whole.sum(axis=0).reshape(n, -1)
        case "reduce":
            return whole, whole.sum(axis=0)
        case "all_gather":
            parts = whole[:, : size // n]
            return parts, np.tile(parts.ravel(), (n, 1))
        case "gather":
            parts = whole[:, : size // n]
            return parts, parts.ravel()
        case "scatter":
            return whole[0], whole[0].reshape(n, -1)
        case "sendrecv":
            return whole, np.roll(whole, 1, axis=0)
        case "all_to_all":
            blocks = random.integers(-99, 99, (n, n, 3)).astype(float)
            return blocks, blocks.transpose(1, 0, 2)
        case "broadcast":
            return whole[0], np.tile(whole[0], (n, 1))
    return whole[0], whole[0]


@every
def test_every_rank_ends_with_what_the_collective_promises(
    algorithm: str, kind: CollectiveKind
) -> None:
    for ranks in ranks_for(kind):
        _, plan = made(algorithm, kind, ranks)
        inputs, result = inputs_and_result(plan)
        np.testing.assert_array_equal(execute(plan, inputs), result)


def test_sending_what_one_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="round 0: rank 1 has no chunk 0"):
        execute(schedule("broadcast", 2, 1, [[ChunkSend(1, 0, 0)]]), np.ones(1))


@every
def test_closed_form_equals_what_the_rounds_send(algorithm: str, kind: CollectiveKind) -> None:
    for ranks in ranks_for(kind):
        module, plan = made(algorithm, kind, ranks)
        stated, counted = module.cost(kind, ranks), readings.condense(plan)
        assert stated.rounds == counted.rounds
        assert stated.bytes == pytest.approx(counted.bytes, rel=1e-12)
        assert stated.fill == pytest.approx(counted.fill, rel=1e-12, abs=1e-12)


NODE = topology.load("dgx-a100-hdr").with_gpus(8)
PORT = NODE.capacity(("port-up", 0))
STEP = ALPHA + sum(NODE.latency(link) for link in NODE.route(0, 1))


def played(plan: CollectiveSchedule, *, lockstep: bool = True) -> float:
    """End of the last message on the clock, in a node where all ports are alike."""
    sent = messages(plan, SIZE, lockstep=lockstep)
    return play_messages(sent, NODE, overhead=ALPHA)


@every
@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_clock_and_closed_form_agree(algorithm: str, kind: CollectiveKind, ranks: int) -> None:
    ranks = 2 if kind == "point_to_point" else ranks
    module, plan = made(algorithm, kind, ranks)
    formula = module.cost(kind, ranks).time(SIZE, alpha=STEP, bandwidth=PORT)
    condensed = readings.condense(plan).time(SIZE, alpha=STEP, bandwidth=PORT)
    assert condensed == pytest.approx(formula, rel=1e-9)
    assert played(plan) == pytest.approx(formula, rel=1e-9)


@every
def test_waiting_only_for_what_is_needed_is_never_later(
    algorithm: str, kind: CollectiveKind
) -> None:
    ranks = 2 if kind == "point_to_point" else 6
    _, plan = made(algorithm, kind, ranks)
    assert played(plan, lockstep=False) <= played(plan) * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
def test_rings_gain_nothing_from_loose_rounds(kind: CollectiveKind) -> None:
    _, plan = made("ring", kind, 5)
    formula = ring.cost(kind, 5).time(SIZE, alpha=STEP, bandwidth=PORT)
    assert played(plan, lockstep=False) == pytest.approx(formula, rel=1e-9)


@every
def test_no_algorithm_beats_the_lower_bounds(algorithm: str, kind: CollectiveKind) -> None:
    """Chan et al. 2007, table 1: ceil(log2 n) rounds (with one port), and these bytes."""
    parts = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    bounds = {"all_reduce": 2.0, **dict.fromkeys(parts, 1.0)}
    for ranks in ranks_for(kind):
        least = bounds.get(kind, 1.0) * ((ranks - 1) / ranks if kind in bounds else 1.0)
        assert algorithms()[algorithm].cost(kind, ranks).bytes >= least - 1e-12


@given(ranks=st.integers(2, 300))
def test_trees_are_balanced_and_their_inner_ranks_differ(ranks: int) -> None:
    first, second = binary_trees.parents(ranks)
    assert max(binary_trees.depths(first)) == max(binary_trees.depths(second)) == tree.height(ranks)
    inner = [
        {parent for rank, parent in enumerate(parents) if parent != rank}
        for parents in (first, second)
    ]
    # Only the first root may be inner in both, where the ranks are odd in number.
    assert inner[0] & inner[1] <= ({0} if ranks % 2 else set())


@given(ranks=st.integers(4, 300))
def test_busiest_rank_of_the_double_tree_moves_the_data_twice(ranks: int) -> None:
    out = [0.0] * ranks
    for parents in binary_trees.parents(ranks):
        for rank, parent in enumerate(parents):
            if rank != parent:
                out[rank] += 0.5
                out[parent] += 0.5
    assert max(out) == tree.between_nodes("all_reduce", ranks) == 2.0


def test_more_pieces_make_a_long_broadcast_faster() -> None:
    times = [
        ring.cost("broadcast", 8, pieces).time(1e9, alpha=1e-6, bandwidth=1e9)
        for pieces in (1, 2, 4, 8, 64)
    ]
    assert all(after < before for before, after in pairwise(times))


def test_doubling_needs_fewer_rounds_than_the_ring_for_the_same_bytes() -> None:
    few, many = halving_doubling.cost("all_reduce", 64), ring.cost("all_reduce", 64)
    assert few.bytes == many.bytes
    assert (few.rounds, many.rounds) == (12, 126)


def test_groups_side_by_side_finish_together() -> None:
    pairs = [placed(ring.all_gather(2), [a, a + 1], [[a], [a + 1]]) for a in (0, 2)]
    assert [len(round_) for round_ in together(pairs)] == [4]


def test_two_levels_take_the_sum_of_their_times() -> None:
    """2(g-1) rounds of S/g through ports, then 2(N-1) of S/(g N) through NICs, on the clock."""
    nodes, g = 2, 8
    cluster = topology.load("dgx-a100-hdr").with_gpus(nodes * g)
    port, nic = cluster.capacity(("port-up", 0)), cluster.capacity(("nic-up", 0, 0))
    inside = sum(cluster.latency(link) for link in cluster.route(0, 1))
    across = sum(cluster.latency(link) for link in cluster.route(0, g))
    formula = 2 * (g - 1) * (inside + SIZE / (g * port))
    formula += 2 * (nodes - 1) * (across + SIZE / (g * nodes * nic))
    plan = messages(algorithms()["hierarchical"].all_reduce(nodes * g, g), SIZE)
    assert play_messages(plan, cluster) == pytest.approx(formula, rel=1e-9)


def test_a_new_collective_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sim.collectives import algorithms as package

    (tmp_path / "star.py").write_text(
        "from sim.collectives.schedule import ClosedForm, ChunkSend, schedule\n"
        "def broadcast(ranks):\n"
        "    sends = [[ChunkSend(0, r, 0)] for r in range(1, ranks)]\n"
        "    return schedule('broadcast', ranks, 1, sends)\n"
        "def cost(kind, ranks):\n"
        "    return ClosedForm(rounds=ranks - 1, bytes=ranks - 1.0)\n"
    )
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    star = algorithms()["star"]
    assert offered(star) == ["broadcast"]
    assert readings.condense(star.broadcast(5)).bytes == star.cost("broadcast", 5).bytes
