"""Gloo: its schedules do what they say, and their fluid reading is the rounds' own."""

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import get_args

import numpy as np
import pytest

from sim.collectives.interconnect import CollectiveCall, Interconnect
from sim.collectives.libraries import backend, gloo
from sim.collectives.readings import condense, messages
from sim.collectives.schedule import CollectiveKind, GroupShape
from sim.config.errors import InputError
from sim.engine.live_cluster import Endpoint, LiveCluster
from sim.engine.machine import Machine
from sim.engine.messages import play_messages
from sim.hardware.cluster import topology
from sim.model.fusion import Dispatcher
from sim.program.routed import Routed
from tests.collectives.execute import execute

HOSTS = [2, 3, 4, 5, 8]
TESTBED = topology.load("testbed-8")
B1 = 100e6 / 8 * 3948 / 4014  # data one way
B2 = 100e6 / 8 * 3948 / (4014 + 33)  # data both ways, half an ACK beside each packet


def seconds(kind: str, size: float, ranks: int) -> float:
    """A call on idle links, fixed cost included."""
    machine = Machine(TESTBED.with_gpus(ranks), backend.load("gloo"))
    cost = machine.call_cost(kind, size, GroupShape.of(ranks, 1))
    return cost.latency + cost.nic / machine.topology.capacity(("nic-up", 0, 0))


@pytest.mark.parametrize("ranks", HOSTS)
@pytest.mark.parametrize("pieces", [2, 3])
def test_the_ring_leaves_the_sum_everywhere(ranks: int, pieces: int) -> None:
    inputs = np.arange(ranks * ranks * pieces * 2.0).reshape(ranks, -1)
    assert np.array_equal(
        execute(gloo.all_reduce(ranks, pieces), inputs), np.tile(inputs.sum(0), (ranks, 1))
    )


@pytest.mark.parametrize("ranks", HOSTS)
def test_the_tree_reaches_everyone_once(ranks: int) -> None:
    schedule = gloo.broadcast(ranks)
    assert np.array_equal(execute(schedule, np.arange(3.0)), np.tile(np.arange(3.0), (ranks, 1)))
    assert sum(len(round_) for round_ in schedule.rounds) == ranks - 1


@pytest.mark.parametrize("ranks", HOSTS)
def test_the_ring_sends_every_byte_2_n_less_1_over_n_times(ranks: int) -> None:
    assert condense(gloo.all_reduce(ranks)).bytes == pytest.approx(2 * (ranks - 1) / ranks)


@pytest.mark.parametrize("ranks", HOSTS)
def test_the_trees_closed_form_is_what_its_messages_take(ranks: int) -> None:
    played = play_messages(
        messages(gloo.broadcast(ranks), 1e6, lockstep=False), TESTBED.with_gpus(ranks)
    )
    cost = seconds("broadcast", 1e6, ranks) - (ranks - 1).bit_length() * 50e-6
    assert cost == pytest.approx(played, rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "ranks", "expected"),
    [
        ("all_reduce", 4, 100e-6 + 1.5 * 2**20 / B2),
        ("reduce_scatter", 8, 100e-6 + 1.75 * 2**20 / B2),
        ("all_gather", 4, 50e-6 + 0.75 * 2**20 / B2),
        ("broadcast", 4, 100e-6 + 3 * 2**20 / B1),
        ("send", 2, 50e-6 + 2**20 / B1),
        ("reduce", 4, 100e-6 + 0.75 * 2**20 * (1 / B1 + 1 / B2)),
    ],
)
def test_calls_take_what_headers_and_acknowledgements_leave(
    kind: str, ranks: int, expected: float
) -> None:
    assert seconds(kind, 2**20, ranks) == pytest.approx(expected, rel=1e-5)


def test_a_swap_pays_for_acknowledgements_and_a_message_does_not() -> None:
    source, target = Endpoint((0,)), Endpoint((1,))
    cluster = LiveCluster(Machine(TESTBED, backend.load("gloo")))
    cluster.send(2**20, source, {target: 1.0})
    cluster.run()
    sent = cluster.now
    cluster.swap(2**20, source, target)
    cluster.run()
    assert (sent, cluster.now - sent) == pytest.approx((2**20 / B1, 2**20 / B2), rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "ranks", "sent"),
    [
        ("all_reduce", 8, (2 * 7 / 8, 0.0)),
        ("all_reduce", 16, (2 * 15 / 16 * 7 / 8, 2 * 15 / 16)),
        ("all_gather", 2, (1 / 2, 0.0)),
        ("broadcast", 2, (1 / 2, 0.0)),  # the last rank sends nothing
        ("broadcast", 8, (7 / 8, 0.0)),
        ("broadcast", 16, (7 / 16, 4.0)),  # each rank of the root's node serves one in the other
        ("all_to_all", 16, (7 / 16, 8 * 8 / 16)),
        ("sendrecv", 2, (1.0, 0.0)),
    ],
)
def test_links_carry_what_each_rank_sends(
    kind: CollectiveKind, ranks: int, sent: tuple[float, float]
) -> None:
    host = Interconnect(generation="cpu", gpus_per_node=8, port_bandwidth=1e10, nics_per_node=1,
                        nic_bandwidth=1e9, network="ethernet", efficiency=0.95)  # fmt: skip
    found = backend.load("gloo").call_cost(CollectiveCall(kind, 1.0, GroupShape.of(ranks, 8), host))
    assert (found.sent_port, found.sent_nic) == pytest.approx(sent)


@pytest.mark.parametrize("per_node", [1, 2, 5, 8, 12, 32, 48])
@pytest.mark.parametrize("shared", [True, False])
def test_no_link_carries_a_broadcast_faster_than_its_bandwidth(per_node: int, shared: bool) -> None:
    """The bytes of the tree's sends through each port and each NIC, in each direction."""
    host = Interconnect(generation="cpu", gpus_per_node=per_node, port_bandwidth=4e9,
                        nics_per_node=1 if shared else per_node, nic_bandwidth=1e9)  # fmt: skip
    for ranks in (2, 3, 5, 8, 9, 13, 16, 24, 33, 40, 48, 63, 64):
        call = CollectiveCall("broadcast", 1.0, GroupShape.of(ranks, per_node), host)
        taken = call.duration(
            gloo.Gloo(message=0.0, segment=1e6, acknowledgements=0).call_cost(call)
        )
        used: Counter[tuple[str, str, int]] = Counter()
        for send in chain.from_iterable(gloo.broadcast(ranks).rounds):
            away = send.src // per_node != send.dst // per_node
            for way, rank in (("out", send.src), ("in", send.dst)):
                place = rank // per_node if shared and away else rank
                used["nic" if away else "port", way, place] += 1
        least = max(n / (1e9 if link == "nic" else 4e9) for (link, _, _), n in used.items())
        assert taken >= least * (1 - 1e-9), ranks


def test_short_segments_wait_for_each_others_messages() -> None:
    """Two in flight: 6 segments a turn take 3 times a message's cost and a segment's bytes."""
    tiny = 16 * 4 * 2  # 16 bytes a segment: 1.3 us
    assert seconds("all_reduce", tiny, 4) == pytest.approx(2 * 3 * (50e-6 + 16 / B2), rel=1e-2)


def paced(kind: CollectiveKind, size: float, shape: GroupShape, hardware: Interconnect) -> float:
    pace = {"all_reduce": gloo.HostRates(message=1e-4, near=4e9, far=1e9, cache=4e6)}
    library = gloo.Gloo(message=5e-5, segment=2**20, acknowledgements=0.5, pace=pace)
    call = CollectiveCall(kind, size, shape, hardware)
    return call.duration(library.call_cost(call))


HOST = Interconnect(generation="cpu", gpus_per_node=8, port_bandwidth=100e9)
LOOPBACK = Interconnect(
    generation="cpu", gpus_per_node=1, port_bandwidth=1.0, nics_per_node=1, nic_bandwidth=100e9
)


@pytest.mark.parametrize(
    ("shape", "interconnect"),
    [(GroupShape(ranks=2), HOST), (GroupShape(ranks=2, nodes=2), LOOPBACK)],
)
def test_where_the_pace_was_measured_bytes_beyond_the_caches_take_longer(
    shape: GroupShape, interconnect: Interconnect
) -> None:
    assert paced("all_reduce", 4e6, shape, interconnect) == pytest.approx(2e-4 + 1e-3)
    assert paced("all_reduce", 6e6, shape, interconnect) == pytest.approx(2e-4 + 3e-3)


def test_four_ranks_send_half_as_much_again_as_two() -> None:
    two, four = (paced("all_reduce", 4e8, GroupShape(ranks=n), HOST) - 2e-4 for n in (2, 4))
    assert four / two == pytest.approx(1.5)


def test_a_slow_wire_hides_the_pace_of_processors() -> None:
    slow = replace(LOOPBACK, nic_bandwidth=1e8)
    assert paced("all_reduce", 1e6, GroupShape(ranks=2, nodes=2), slow) == pytest.approx(
        1e-2 + 2e-4
    )


def test_calls_without_a_measured_pace_keep_the_message_of_the_library() -> None:
    assert paced("broadcast", 1e6, GroupShape(ranks=2), HOST) == pytest.approx(5e-5 + 1e-5)


def test_a_group_of_one_sends_nothing() -> None:
    call = CollectiveCall("all_reduce", 1e6, GroupShape(ranks=1), HOST)
    assert backend.load("gloo").call_cost(call).nic == 0.0


def test_items_are_not_routed_and_the_remedy_is_a_dispatcher_that_exists() -> None:
    shape, hardware = (
        GroupShape.of(8, 4),
        Interconnect(
            generation="cpu",
            gpus_per_node=4,
            port_bandwidth=1e9,
            nics_per_node=1,
            nic_bandwidth=1e9,
        ),
    )
    call = CollectiveCall("all_to_all", 1e6, shape, hardware, Routed(choices=2, among=8))
    with pytest.raises(InputError, match="does not route") as refused:
        backend.load("gloo").call_cost(call)
    assert any(f'"{name}"' in str(refused.value) for name in get_args(Dispatcher))


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(InputError, match="no collective named 'exchange'"):
        seconds("exchange", 1e6, 2)
