"""What a user says of algorithms reaches the library, and nothing else changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.collectives.algorithms import halving_doubling, hierarchical, ring
from sim.collectives.interconnect import CollectiveCall, selectable
from sim.collectives.libraries import backend as backends
from sim.collectives.schedule import KINDS, CollectiveKind, GroupShape, offered
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware.cluster.topology import load

KB, MB = 1e3, 1e6
SIXTEEN = GroupShape.of(128, 8)
TABLE = [
    {"use": "halving_doubling", "kinds": "all_reduce", "up_to": "256 KB"},
    {"use": ["tree", "hierarchical"], "kinds": ["all_reduce"]},
    {"use": "ring", "kinds": ["all_gather", "reduce_scatter"]},
]


def machine(choice: object, level: str = "network", backend: str = "nccl") -> Machine:
    topology = load("dgx-h100-ndr", {f"{level}.algorithm": choice})
    return Machine(topology, backends.load(backend))


def taken(on: Machine, kind: str, size: float, shape: GroupShape = SIXTEEN) -> str:
    return on.call_cost(kind, size, shape).algorithm


@pytest.mark.parametrize(
    ("kind", "size", "algorithms"),
    [
        ("all_reduce", 256 * KB, {"halving_doubling"}),
        ("all_reduce", 257 * KB, {"tree", "hierarchical"}),
        ("all_reduce", 10_000 * MB, {"hierarchical"}),
        ("all_gather", 1 * KB, {"ring"}),
        ("broadcast", 1 * MB, {"ring"}),
        ("all_to_all", 1 * MB, {"direct"}),
    ],
)
def test_the_first_rule_that_fits_a_call_counts(kind: str, size: float, algorithms: set) -> None:
    assert taken(machine(TABLE), kind, size) in algorithms


def test_a_network_says_nothing_of_groups_within_a_node_nor_a_node_of_others() -> None:
    inside = GroupShape.of(8, 8)
    assert taken(machine("tree"), "all_reduce", 1e9, inside) == "nvls"
    assert taken(machine("tree", "node"), "all_reduce", 1e9, inside) == "tree"
    assert taken(machine("ring", "node"), "all_reduce", 64 * MB) == "nvls_tree"


def test_collectives_that_an_algorithm_does_not_offer_are_the_library_s_to_choose() -> None:
    assert taken(machine("tree"), "all_gather", 64 * MB) == "ring"


@pytest.mark.parametrize("name", sorted(selectable()))
@pytest.mark.parametrize("kind", KINDS)
def test_an_algorithm_that_is_named_is_taken(name: str, kind: CollectiveKind) -> None:
    across = name != "nvls" or kind == "all_reduce"  # switches gather and scatter in one node only
    if kind in offered(selectable()[name]) and across:
        assert taken(machine(name), kind, 1 * MB).removesuffix("_tree") == name


@given(size=st.floats(1.0, 1e10), nodes=st.integers(2, 64))
def test_one_more_algorithm_to_choose_from_is_never_slower(size: float, nodes: int) -> None:
    shape = GroupShape.of(8 * nodes, 8)
    machines = machine(()), machine(["auto", "hierarchical", "halving_doubling"])
    calls = [on.call("all_reduce", size, shape) for on in machines]
    usual, more = (
        call.duration(on.backend.call_cost(call)) for on, call in zip(machines, calls, strict=True)
    )
    assert more <= usual


@given(size=st.floats(1.0, 1e10), nodes=st.integers(2, 64))
def test_auto_is_what_is_said_by_saying_nothing(size: float, nodes: int) -> None:
    shape = GroupShape.of(8 * nodes, 8)
    silent, auto = machine(()), machine("auto")
    assert auto.call_cost("all_reduce", size, shape) == silent.call_cost("all_reduce", size, shape)


def test_bytes_of_a_hierarchical_all_reduce_over_gloo_are_the_closed_form() -> None:
    call = CollectiveCall(
        "all_reduce", 1e9, SIXTEEN, machine(()).interconnect, algorithms=("hierarchical",)
    )
    library = backends.load("gloo")
    cost, stated = library.call_cost(call), hierarchical.loads("all_reduce", SIXTEEN)
    assert cost.port == pytest.approx(1e9 * stated.port)
    assert cost.nic >= 1e9 * stated.nic
    assert cost.latency == pytest.approx(2 * (7 + 15) * library.message)


def test_few_rounds_win_small_calls_and_few_bytes_large_ones() -> None:
    """128 ranks: 14 rounds of halving and doubling against 254 of the ring; 16 times its bytes."""
    ways = (halving_doubling, ring)
    rounds = [way.cost("all_reduce", 128).rounds for way in ways]
    assert rounds == [14, 254]
    both = machine(["ring", "halving_doubling"])
    assert taken(both, "all_reduce", 8.0) == "halving_doubling"
    assert taken(both, "all_reduce", 1e9) == "ring"


@pytest.mark.parametrize(("name", "backend"), [("nvls", "gloo"), ("ring", "xla")])
def test_what_a_library_cannot_do_is_refused(name: str, backend: str) -> None:
    with pytest.raises(InputError, match=f"algorithm '{name}'.*; choose another algorithm"):
        machine(name, backend=backend).call_cost("all_reduce", 1e6, SIXTEEN)


def test_a_group_that_an_algorithm_does_not_fit_is_refused() -> None:
    uneven = GroupShape(ranks=12, nodes=2, per_node=8)
    with pytest.raises(InputError, match="equally many members on each node, not 12 on 2 nodes"):
        machine("halving_doubling").call_cost("all_reduce", 1e6, uneven)
