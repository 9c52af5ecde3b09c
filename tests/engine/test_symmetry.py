"""The partition is equitable, and as coarse as can be."""

from hypothesis import given
from hypothesis import strategies as st

from sim.engine.symmetry import Neighbour, equitable_partition


def graph(edges, size):
    neighbours = [[] for _ in range(size)]
    for a, b in edges:
        neighbours[a].append(Neighbour(b, ""))
        neighbours[b].append(Neighbour(a, ""))
    return neighbours


def test_a_ring_has_one_class():
    ring = graph([(i, (i + 1) % 6) for i in range(6)], 6)
    assert equitable_partition(["x"] * 6, ring) == [0] * 6


def test_one_odd_vertex_of_a_ring_makes_classes_by_distance():
    ring = graph([(i, (i + 1) % 6) for i in range(6)], 6)
    assert equitable_partition(["odd", *["x"] * 5], ring) == [0, 1, 2, 3, 2, 1]


def test_labels_tell_edges_apart():
    neighbours = [[Neighbour(2, "left")], [Neighbour(2, "right")], []]
    assert equitable_partition(["x", "x", "y"], neighbours) == [0, 1, 2]


def test_counts_add_up():
    # Seeing one vertex twice is like seeing two of its class.
    neighbours = [[Neighbour(2, "", 2)], [Neighbour(2, ""), Neighbour(3, "")], [], []]
    assert equitable_partition(["x", "x", "y", "y"], neighbours) == [0, 0, 1, 1]


@given(
    st.integers(2, 9).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=14),
        )
    )
)
def test_members_of_a_class_see_the_same(case):
    size, edges = case
    neighbours = graph([(a, b) for a, b in edges if a != b], size)
    classes = equitable_partition(["x"] * size, neighbours)
    views = {}
    for vertex, number in enumerate(classes):
        seen = sorted(classes[n.vertex] for n in neighbours[vertex])
        assert views.setdefault(number, seen) == seen
