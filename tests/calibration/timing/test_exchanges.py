"""What is timed: each kind, size and group that the machines distinguish, once."""

from sim.calibration.timing.exchanges import exchanges, layouts, left, shuffled, sizes
from sim.collectives.schedule import KINDS
from sim.formats.operation_times import OperationTime


def test_every_world_size_that_divides_is_timed_alone_and_at_once() -> None:
    found = [(len(groups[0]), len(groups)) for groups in layouts(6, 6)]
    assert found == [(2, 1), (2, 3), (3, 1), (3, 2), (6, 1)]


def test_groups_across_nodes_take_one_rank_of_each() -> None:
    assert ((0, 4), (1, 5), (2, 6), (3, 7)) in layouts(8, 4)
    assert all(
        len({rank for group in groups for rank in group}) == 8 for groups in layouts(8, 4)[1::2]
    )


def test_one_rank_a_node_is_told_as_neighbours_only() -> None:
    assert layouts(2, 1) == [((0, 1),)]


def test_sizes_divide_among_the_ranks_and_end_at_the_memory() -> None:
    found = sizes(6, "full", 2.0 * 2**20)
    assert all(size % 24 == 0 for size in found)
    assert 2**19 < found[-1] <= 2**20
    assert len(found) == len(set(found))


def test_all_kinds_are_timed_and_point_to_point_in_pairs() -> None:
    found = list(exchanges(4, 4, "quick", 1e3))
    assert {one.kind for one in found} == set(KINDS)
    assert {one.ranks for one in found if one.kind == "point_to_point"} == {2}
    assert len({one.key(4) for one in found}) == len(found)


def test_passes_have_all_of_them_in_orders_of_their_own() -> None:
    wanted = list(exchanges(2, 2, "quick", 1e3))
    found = shuffled(wanted, 2)
    first, second = found[: len(wanted)], found[len(wanted) :]
    assert first != second
    assert set(first) == set(second) == set(wanted)
    assert found == shuffled(wanted, 2)


def test_what_was_read_is_not_timed_again() -> None:
    wanted = list(exchanges(2, 2, "quick", 1e3))
    done = [
        OperationTime(operation=one.kind, seconds=1.0, ranks=2, bytes=float(one.size))
        for one in wanted[3:]
    ]
    assert left(wanted, done, 2) == wanted[:3]
    assert left(2 * wanted, done, 2) == [*wanted[:3], *wanted]
