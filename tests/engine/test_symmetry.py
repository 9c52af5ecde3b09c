"""The partition is equitable, and as coarse as can be."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sim.engine.fold import Edges, equitable_partition


def graph(edges) -> Edges:
    """Every edge seen from both ends, alike."""
    return Edges.of([row for a, b in edges for row in ((a, b, 0, 1), (b, a, 0, 1))])


def partition(colours, edges: Edges) -> list[int]:
    return equitable_partition(colours, edges).tolist()


def test_a_ring_has_one_class():
    ring = graph([(i, (i + 1) % 6) for i in range(6)])
    assert partition(["x"] * 6, ring) == [0] * 6


def test_one_odd_vertex_of_a_ring_makes_classes_by_distance():
    ring = graph([(i, (i + 1) % 6) for i in range(6)])
    assert partition(["odd", *["x"] * 5], ring) == [0, 1, 2, 3, 2, 1]


def test_labels_tell_edges_apart():
    left_and_right = Edges.of([(0, 2, 1, 1), (1, 2, 2, 1)])
    assert partition(["x", "x", "y"], left_and_right) == [0, 1, 2]


def test_counts_add_up():
    # Seeing one vertex twice is like seeing two of its class.
    edges = Edges.of([(0, 2, 0, 2), (1, 2, 0, 1), (1, 3, 0, 1)])
    assert partition(["x", "x", "y", "y"], edges) == [0, 0, 1, 1]


def test_colours_that_differ_are_kept_apart():
    assert partition(["x", "y", "x"], Edges.of([])) == [0, 1, 0]


rows = st.integers(2, 9).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(
            st.tuples(
                st.integers(0, n - 1), st.integers(0, n - 1), st.integers(0, 1), st.integers(1, 2)
            ),
            max_size=14,
        ),
    )
)


def seen_by(vertex: int, edges, classes) -> Counter:
    """How many vertices of each class a vertex sees, in each capacity."""
    counts: Counter = Counter()
    for source, target, label, copies in edges:
        if source == vertex:
            counts[label, classes[target]] += copies
    return counts


@given(rows)
def test_members_of_a_class_see_the_same(case):
    size, edges = case
    classes = partition(["x"] * size, Edges.of(edges))
    views = {}
    for vertex, number in enumerate(classes):
        seen = seen_by(vertex, edges, classes)
        assert views.setdefault(number, seen) == seen


@given(rows)
def test_no_coarser_partition_is_equitable(case):
    """It is the one that plain colour refinement ends with."""
    size, edges = case
    refined = [0] * size
    for _ in range(size):
        views = [(refined[v], frozenset(seen_by(v, edges, refined).items())) for v in range(size)]
        numbers = {view: number for number, view in enumerate(dict.fromkeys(views))}
        refined = [numbers[view] for view in views]
    assert partition(["x"] * size, Edges.of(edges)) == refined
