"""The cases: each kind, size and grouping that machines can distinguish, once."""

from sim.analysis.calibration.timing.collective_suite import (
    TIMED,
    collective_cases,
    groupings,
    remaining,
    shuffled,
    sizes,
)
from sim.jobs.traces.operation_times import OperationTime


def test_every_group_size_that_divides_is_timed_alone_and_at_once() -> None:
    shapes = [(len(groups[0]), len(groups)) for groups in groupings(6, 6)]
    assert shapes == [(2, 1), (2, 3), (3, 1), (3, 2), (6, 1)]


def test_groups_across_nodes_take_one_rank_of_each() -> None:
    assert ((0, 4), (1, 5), (2, 6), (3, 7)) in groupings(8, 4)
    assert all(
        len({rank for group in groups for rank in group}) == 8 for groups in groupings(8, 4)[1::2]
    )


def test_with_one_rank_a_node_groups_are_of_neighbours_only() -> None:
    assert groupings(2, 1) == [((0, 1),)]


def test_sizes_divide_among_the_ranks_and_end_at_the_memory() -> None:
    chosen = sizes(6, "full", 2.0 * 2**20)
    assert all(size % 24 == 0 for size in chosen)
    assert 2**19 < chosen[-1] <= 2**20
    assert len(chosen) == len(set(chosen))


def test_all_kinds_of_a_training_step_are_timed_and_point_to_point_in_pairs() -> None:
    cases = list(collective_cases(4, 4, "quick", 1e3))
    assert {case.kind for case in cases} == set(TIMED)
    assert {case.ranks for case in cases if case.kind == "point_to_point"} == {2}
    assert len({case.key(4) for case in cases}) == len(cases)


def test_each_pass_has_all_cases_in_its_own_order() -> None:
    cases = list(collective_cases(2, 2, "quick", 1e3))
    ordered = shuffled(cases, 2)
    first, second = ordered[: len(cases)], ordered[len(cases) :]
    assert first != second
    assert set(first) == set(second) == set(cases)
    assert ordered == shuffled(cases, 2)


def test_what_was_read_is_not_timed_again() -> None:
    cases = list(collective_cases(2, 2, "quick", 1e3))
    done = [
        OperationTime(operation=case.kind, seconds=1.0, ranks=2, bytes=float(case.size))
        for case in cases[3:]
    ]
    assert remaining(cases, done, 2) == cases[:3]
    assert remaining(2 * cases, done, 2) == [*cases[:3], *cases]
