"""Shortest paths on any graph."""

from sim.hardware.cluster.route import reachable, shortest_path


def test_shortest_path_goes_by_the_smallest_neighbour() -> None:
    square = {0: (1, 2), 1: (0, 3), 2: (0, 3), 3: (1, 2)}
    assert shortest_path(0, 3, square.__getitem__) == (0, 1, 3)


def test_no_path_leads_to_another_island() -> None:
    islands = {0: (1,), 1: (0,), 2: ()}
    assert shortest_path(0, 2, islands.__getitem__) == ()
    assert reachable(0, islands.__getitem__) == {0, 1}
