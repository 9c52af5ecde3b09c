"""NCCL's choices: what it takes when, and laws that no fitted constant may break."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.collectives.algorithms import nvls, ring
from sim.collectives.cable_rings import DGX1
from sim.collectives.interconnect import CallCost, CollectiveCall, Interconnect
from sim.collectives.libraries import backend
from sim.collectives.libraries.nccl import Nccl
from sim.collectives.schedule import KINDS, CollectiveKind, GroupShape, kind_named
from sim.config.errors import InputError
from sim.program.routed import Routed

NCCL = backend.load("nccl")
H100 = Interconnect(
    generation="hopper",
    gpus_per_node=8,
    port_bandwidth=450e9,
    nics_per_node=8,
    nic_bandwidth=50e9,
    network="infiniband",
    nvls=True,
)
A100 = Interconnect(
    generation="ampere",
    gpus_per_node=8,
    port_bandwidth=300e9,
    nics_per_node=8,
    nic_bandwidth=25e9,
    network="infiniband",
)
V100 = replace(
    A100,
    generation="volta",
    port_bandwidth=150e9,
    nic_bandwidth=12.5e9,
    mesh=DGX1,
    cable_bandwidth=25e9,
)
B200 = replace(H100, generation="blackwell", port_bandwidth=900e9)
FABRICS = [V100, A100, H100, B200]

groups = st.builds(GroupShape.of, st.integers(2, 4096), st.sampled_from([1, 2, 4, 8]))
sizes = st.floats(1.0, 1e11)


def cost(
    kind: CollectiveKind, size: float, shape: GroupShape, interconnect: Interconnect = H100
) -> CallCost:
    return NCCL.call_cost(CollectiveCall(kind, size, shape, interconnect))


def time(kind: CollectiveKind, size: float, shape: GroupShape, interconnect: Interconnect) -> float:
    call = CollectiveCall(kind, size, shape, interconnect)
    return call.duration(NCCL.call_cost(call))


@pytest.mark.parametrize(
    ("kind", "size", "ranks", "interconnect", "choice"),
    [
        ("all_reduce", 8.0, 8, H100, ("ring", "ll")),
        ("all_reduce", 1e6, 8, H100, ("ring", "ll128")),
        ("all_reduce", 1e9, 8, H100, ("nvls", "simple")),
        ("all_reduce", 8.0, 64, H100, ("tree", "ll")),
        ("all_reduce", 64e6, 64, H100, ("nvls_tree", "simple")),
        ("all_reduce", 1e9, 8, A100, ("ring", "simple")),
        ("all_reduce", 8.0, 512, A100, ("tree", "ll")),
        ("all_gather", 1e9, 8, H100, ("ring", "simple")),
        ("all_to_all", 1e9, 64, H100, ("direct", "simple")),
        ("point_to_point", 1e6, 2, H100, ("direct", "simple")),
    ],
)
def test_choice_is_the_one_nccl_is_known_to_make(
    kind: CollectiveKind,
    size: float,
    ranks: int,
    interconnect: Interconnect,
    choice: tuple[str, str],
) -> None:
    chosen = cost(kind, size, GroupShape.of(ranks, 8), interconnect)
    assert (chosen.algorithm, chosen.protocol) == choice


def test_bytes_of_a_large_ring_are_the_formula_over_the_achieved_fraction() -> None:
    node = NCCL.constants.node["hopper"]  # type: ignore[attr-defined]
    gathered = cost("all_gather", 1e9, GroupShape.of(8, 8))
    sent = ring.cost("all_gather", 8).bytes + node.touch / 8
    assert gathered.port == pytest.approx(sent * 1e9 / node.ring)
    assert gathered.nic == 0.0


def test_bytes_of_nvls_are_the_formula_over_the_achieved_fraction() -> None:
    node = NCCL.constants.node["hopper"]  # type: ignore[attr-defined]
    shape = GroupShape.of(8, 8)
    expected = nvls.loads("all_reduce", shape).port * 1e9 / node.nvls
    assert cost("all_reduce", 1e9, shape).port == pytest.approx(expected)


@pytest.mark.parametrize(
    ("interconnect", "measured"), [(H100, 480e9), (A100, 229e9), (V100, 134e9)]
)
def test_bus_bandwidth_of_a_node_is_the_published_one(
    interconnect: Interconnect, measured: float
) -> None:
    """Large all-reduces on 8 GPUs, nccl_tests.csv and vtrain_node_allreduce.csv."""
    size = 2.0**33
    busbw = 2 * 7 / 8 * size / time("all_reduce", size, GroupShape.of(8, 8), interconnect)
    assert busbw == pytest.approx(measured, rel=0.04)


@pytest.mark.parametrize(
    ("gpus", "size", "measured"),
    [(72, 2.0**29, 586e9), (72, 2.0**32, 839e9), (144, 2.0**29, 494e9), (144, 2.0**34, 811e9)],
)
def test_members_of_a_large_domain_take_turns_in_its_switch(
    gpus: int, size: float, measured: float
) -> None:
    """CoreWeave's GB200s (collectives/nccl_published_more.csv), to which nothing was fitted."""
    rack = replace(B200, gpus_per_node=72, nics_per_node=72)
    predicted = (
        2 * (gpus - 1) / gpus * size / time("all_reduce", size, GroupShape.of(gpus, 72), rack)
    )
    assert predicted == pytest.approx(measured, rel=0.1)


def test_adapters_on_the_cpu_carry_two_thirds_and_no_ll128() -> None:
    """Azure's A100s measured by Echo (collectives/nccl_published_more.csv): 127 GB/s a node."""
    through_host = replace(A100, network="infiniband-host")
    size, shape = 2.0**32, GroupShape.of(32, 8)
    call = CollectiveCall("all_reduce", size, shape, through_host)
    assert 1.94 * size / call.duration(NCCL.call_cost(call)) == pytest.approx(125e9, rel=0.05)
    assert {cost.protocol for cost in NCCL.candidates(call)} == {"ll", "simple"}


def test_without_nvls_the_switch_adds_nothing() -> None:
    plain = replace(H100, nvls=False)
    for ranks in (8, 64):
        assert "nvls" not in cost("all_reduce", 1e9, GroupShape.of(ranks, 8), plain).algorithm


def test_one_gpu_a_node_has_no_use_for_the_switch() -> None:
    shape = GroupShape(ranks=16, nodes=16)
    call = CollectiveCall("all_reduce", 1e9, shape, H100)
    assert all("nvls" not in candidate.algorithm for candidate in NCCL.candidates(call))  # type: ignore[attr-defined]


def test_one_rank_has_nothing_to_say() -> None:
    assert cost("all_reduce", 1e9, GroupShape(ranks=1)).latency == 0.0


def test_two_gpus_of_a_cube_mesh_have_one_cable() -> None:
    two, eight = (time("all_reduce", 1e9, GroupShape.of(n, 8), V100) for n in (2, 8))
    assert two / eight == pytest.approx((1.0 / 1) / (1.75 / 6), rel=0.01)


def test_a_longer_way_costs_its_latency_on_every_step_between_nodes() -> None:
    shape = GroupShape(ranks=2, nodes=2)
    near, far = (
        cost("point_to_point", 1e6, shape, replace(H100, latency=x)) for x in (1e-6, 11e-6)
    )
    assert far.latency - near.latency == pytest.approx(10e-6)


def test_latency_in_the_file_is_the_usual_one_of_the_network() -> None:
    usual = NCCL.constants.network["infiniband"].latency  # type: ignore[attr-defined]
    shape = GroupShape.of(64, 8)
    assert cost("all_reduce", 8.0, shape, replace(H100, latency=usual)) == cost(
        "all_reduce", 8.0, shape
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interconnect", FABRICS)
@settings(max_examples=30)
@given(shape=groups, size=sizes, factor=st.floats(1.0, 100.0))
def test_more_bytes_never_take_less_time(
    kind: CollectiveKind, interconnect: Interconnect, shape: GroupShape, size: float, factor: float
) -> None:
    assert (
        0 < time(kind, size, shape, interconnect) <= time(kind, size * factor, shape, interconnect)
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(shape=groups, size=sizes, factor=st.floats(1.0, 10.0))
def test_faster_links_are_never_slower(
    kind: CollectiveKind, shape: GroupShape, size: float, factor: float
) -> None:
    faster = replace(
        H100,
        port_bandwidth=H100.port_bandwidth * factor,
        nic_bandwidth=H100.nic_bandwidth * factor,
    )
    assert time(kind, size, shape, faster) <= time(kind, size, shape, H100) * (1 + 1e-12)


@settings(max_examples=50)
@given(shape=groups, size=sizes)
def test_the_choice_is_the_quickest_candidate(shape: GroupShape, size: float) -> None:
    assert isinstance(NCCL, Nccl)
    call = CollectiveCall("all_reduce", size, shape, H100)
    quickest = min(map(call.duration, NCCL.candidates(call)))
    assert time("all_reduce", size, shape, H100) == quickest


def test_no_call_moves_fewer_bytes_than_its_algorithm_needs() -> None:
    """Protocols only add: an all-gather brings (n-1)/n of the bytes to each of a node's GPUs."""
    for interconnect in FABRICS:
        assert cost("all_gather", 1e9, GroupShape.of(8, 8), interconnect).port >= 7 / 8 * 1e9


def by_hand(ranks: int) -> dict[CollectiveKind, tuple[float, float]]:
    """Bytes through a member's port and out of a node, for each byte of a ring of n ranks, or of
    sends to peers. 16 ranks are on 2 nodes: 7 of a node's 8 hops are inside, shared by 8 ports; all
    8 members send 8 of 16 parts away."""
    part = (ranks - 1) / ranks
    inside, away = (7 / 8, 1.0) if ranks == 16 else (1.0, 0.0)
    return {
        "all_reduce": (2 * part * inside, 2 * part * away),
        "all_gather": (part * inside, part * away),
        "reduce_scatter": (part * inside, part * away),
        "broadcast": (inside, away / 2) if ranks == 16 else (part, 0.0),
        "all_to_all": (7 / 16, 8 * 8 / 16) if ranks == 16 else (part, 0.0),
        "sendrecv": (1.0, away),
        "gather": (7 / 16, 8 / 16) if ranks == 16 else (part, 0.0),
        "point_to_point": (0.0, 1.0) if ranks == 16 else (1.0, 0.0),
    }


@pytest.mark.parametrize("ranks", [2, 8, 16])
def test_links_carry_the_bytes_of_a_call_whatever_time_its_copies_take(ranks: int) -> None:
    for interconnect in FABRICS:
        for kind, (port, nic) in by_hand(ranks).items():
            call = CollectiveCall(kind, 1e9, GroupShape.of(ranks, 8), interconnect)
            for found in NCCL.candidates(call):
                if found.algorithm in ("ring", "direct"):
                    sent = found.sent_port / 1e9, found.sent_nic / 1e9
                    assert sent == pytest.approx((port, nic)), kind
                    assert found.port >= found.sent_port
                    assert found.nic >= found.sent_nic


@pytest.mark.parametrize("sms", [20, 0])
def test_slow_relays_carry_the_bytes_of_their_items(sms: int) -> None:
    """One copy of an item for each other node: 8 members send to 15 of 16 nodes."""
    routed = Routed(choices=1, among=128, item=7168.0, sms=sms)
    shape, h800 = GroupShape.of(128, 8), replace(H100, port_bandwidth=200e9)
    found = NCCL.call_cost(CollectiveCall("all_to_all", 1e9, shape, h800, routed))
    assert (found.sent_port, found.sent_nic) == pytest.approx((7 / 8 * 1e9, 8 * 15 / 16 * 1e9))


def test_unknown_collective_is_named() -> None:
    with pytest.raises(InputError, match="no collective named 'all_sum'; known: all_reduce"):
        kind_named("all_sum", "readings")


def test_unknown_network_is_named() -> None:
    with pytest.raises(InputError, match="no network named 'token-ring'; known: infiniband"):
        cost("all_reduce", 1.0, GroupShape.of(16, 8), replace(H100, network="token-ring"))


def test_a_group_in_one_node_needs_no_known_network() -> None:
    assert cost("all_reduce", 1e6, GroupShape.of(8, 8), replace(H100, network="none")).nic == 0.0


def test_another_process_gets_the_same_choices() -> None:
    shape = GroupShape.of(16, 8)
    copy = pickle.loads(pickle.dumps(NCCL))
    call = CollectiveCall("all_reduce", 1e6, shape, H100)
    assert copy.call_cost(call) == NCCL.call_cost(call)


def test_unknown_backend_is_named() -> None:
    with pytest.raises(InputError, match="'ncll'"):
        backend.load("ncll")


@pytest.mark.parametrize(("nodes", "measured"), [(2, 220e9), (4, 230e9), (16, 125e9), (64, 43e9)])
def test_all_gather_over_efa_pays_its_proxies_at_every_step(nodes: int, measured: float) -> None:
    # The bandwidth that nanotron's jobs report of themselves (ag= in nanotron_h100.csv), of 1 GB.
    efa = replace(H100, network="efa")
    ranks = 8 * nodes
    busbw = 1e9 * (ranks - 1) / ranks / time("all_gather", 1e9, GroupShape.of(ranks, 8), efa)
    assert busbw == pytest.approx(measured, rel=0.2)


def test_all_reduce_over_omnipath_of_2021_is_as_fast_as_it_was_measured() -> None:
    # collectives_published.csv, jz-n16_32gb_all_reduce_bench: 4 GB, 16 nodes of four V100.
    node = replace(V100, gpus_per_node=4, nics_per_node=4, network="omnipath-2021", mesh=())
    seconds = time("all_reduce", 4e9, GroupShape.of(64, 4), node)
    assert 2 * 4e9 * 63 / 64 / seconds == pytest.approx(6.775e9, rel=0.02)


@given(shape=st.sampled_from([GroupShape.of(8, 8), GroupShape.of(32, 8)]), size=st.floats(1e3, 1e9))
def test_rings_offered_once_more_change_nothing(shape: GroupShape, size: float) -> None:
    """An algorithm of one's own is as good as its loads and steps, and has no head start."""
    for kind in KINDS[:3]:
        call = CollectiveCall(kind, size, shape, H100)
        assert NCCL.call_cost(replace(call, algorithms=("auto", "ring"))) == NCCL.call_cost(call)


@pytest.mark.parametrize(
    ("ranks", "measured", "error"),
    [(8, (153, 158), 0.03), (16, (43, 62), 0.15), (32, (58, 57), 0.06), (64, (51, 50), 0.06)],
)
def test_routed_tokens_go_as_fast_as_deepep_s_kernels(
    ranks: int, measured: tuple[float, float], error: float
) -> None:
    """DeepEP V1 on H800 with CX7 (its README; collectives/deepep_alltoall.csv), dispatch and
    combine of 8 of 256 experts in at most four nodes, in GB/s of what a rank sends: to nodes, or to
    ranks within one, its own counted (tests/test_internode.py, num_rdma_token_sent).

    EP16 spans all that was published of it, 43 to 62 GB/s. DeepEP's first version, which trained
    DeepSeek-V3, had 44 and 47 on EP32, 46 and 45 on EP64.
    """
    h800 = replace(H100, port_bandwidth=200e9)
    nodes = ranks // 8
    routed = Routed(choices=8, among=256, groups=max(nodes, 1), limit=min(max(nodes, 1), 4))
    size = 4096 * 7168 * 2.0
    shape = GroupShape.of(ranks, 8)
    call = CollectiveCall("all_to_all", size, shape, h800, routed=routed)
    seconds = call.duration(NCCL.call_cost(call))
    rate = routed.reached(nodes if nodes > 1 else ranks) * size / seconds / 1e9
    assert rate == pytest.approx(sum(measured) / 2, rel=error)


@pytest.mark.parametrize(
    ("node", "tokens", "sms", "dispatched", "combined"),
    [
        (H100, 8192, 20, 968e-6, 1845e-6),
        (H100, 1024, 8, 313e-6, 573e-6),
        (replace(H100, generation="blackwell", port_bandwidth=900e9), 8192, 16, 1187e-6, 1967e-6),
    ],
)
def test_kernels_that_pass_tokens_on_are_as_fast_as_their_sms_and_ports(
    node: Interconnect, tokens: int, sms: int, dispatched: float, combined: float
) -> None:
    """Hidden 7168, 8 of 256 experts on 8 GPUs (aiconfigurator_wideep_deepep_normal: h100_sxm,
    b200_sxm). More SMs are never slower, and no SMs can pass what the ports do not carry."""
    for measured, width in ((dispatched, 1.0 + 4 / 128), (combined, 2.0)):

        def seconds(on: int, width: float = width) -> float:
            item, summed = 7168 * width, width == 2.0
            routed = Routed(choices=8, among=256, item=item, summed=summed, sms=on)
            shape = GroupShape.of(8, 8)
            call = CollectiveCall("all_to_all", tokens * item, shape, node, routed=routed)
            return call.duration(NCCL.call_cost(call))

        assert seconds(sms) == pytest.approx(measured, rel=0.15)
        times = [seconds(on) for on in (1, 4, 8, 24, 10**6)]
        assert times == sorted(times, reverse=True)
        copies = tokens * 7168 * width * Routed(choices=8, among=256).reached(8) * 7 / 8
        assert times[-1] > copies / node.port_bandwidth


def message(size: float, among: int, interconnect: Interconnect = A100) -> float:
    """Bytes a second of a message in a node, over a communicator of so many ranks."""
    call = CollectiveCall("point_to_point", size, GroupShape.of(2, 8), interconnect, among=among)
    return size / NCCL.call_cost(call).port * interconnect.port_bandwidth


def test_channels_of_a_communicator_are_divided_among_its_ranks() -> None:
    """32 channels of at least 17.1 GB/s: 16, 8 and 4 for a message, each at most 16 MiB of it."""
    assert message(16e6, 2) == pytest.approx(240e9)  # all of what NVLinks carry
    assert message(16e6, 4) == pytest.approx(8 * 17.1e9)
    assert message(16e6, 8) == pytest.approx(4 * 17.1e9)
    assert message(100 * 2**20, 8) == pytest.approx(8 * 17.1e9)


def test_a_communicator_of_several_nodes_has_two_channels_for_each_peer() -> None:
    assert message(16e6, 16) == pytest.approx(2 * 17.1e9)


def test_messages_through_a_network_take_what_its_adapters_carry() -> None:
    shape = GroupShape(ranks=2, nodes=2, per_node=1)
    pair, many = (
        NCCL.call_cost(CollectiveCall("point_to_point", 16e6, shape, A100, among=n)) for n in (2, 8)
    )
    assert pair == many


@pytest.mark.parametrize("interconnect", FABRICS, ids=lambda one: one.generation)
@pytest.mark.parametrize(("ranks", "per_node", "most"), [(8, 8, 0), (16, 8, 1), (64, 8, 2)])
def test_ll_of_large_messages_has_the_bandwidth_that_nccl_expects_of_it(
    interconnect: Interconnect, ranks: int, per_node: int, most: int
) -> None:
    """tuning.cc: at most half of Simple's, 1/3.8 of a tree's, and llMaxBws; what was fitted to
    messages of a few KiB said 1.3 GB/s. A step longer is never a step shorter."""
    shape, node = GroupShape.of(ranks, per_node), NCCL.constants.node[interconnect.generation]
    sizes = [2.0**power for power in range(10, 33)]
    for algorithm in ("ring", "tree"):
        times = []
        for size in sizes:
            only = (algorithm,)
            call = CollectiveCall("all_reduce", size, shape, interconnect, algorithms=only)
            (ll,) = (one for one in NCCL.candidates(call) if one.protocol == "ll")
            times.append(call.duration(ll))
        assert times == sorted(times)
        turns = 2.0 if algorithm == "tree" else 2.0 * (ranks - 1) / ranks
        reached = turns * sizes[-1] / times[-1]
        cap = min(node.ll_most[most], 0.5 * interconnect.port_bandwidth)
        fitted = node.keeps.ll * interconnect.port_bandwidth  # where small messages show more
        assert 0.2 * cap < reached < max(1.2 * cap, fitted)
