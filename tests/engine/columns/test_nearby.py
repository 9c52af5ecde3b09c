"""Columns near a reference: the same step times as of the whole graph, but for single precision."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.columns.nearby import Nearby
from sim.engine.columns.program import ColumnProgram
from tests.engine.precision import LOST
from tests.engine.random_programs import random_program


def moved(replay: ColumnProgram, spread: float, seed: int, columns: int = 12):
    """Every parameter along one of four coordinates, by its own size; columns of coordinates."""
    moves = {p: (p % 4, float(own)) for p, own in enumerate(replay.parameters)}
    coordinates = np.random.default_rng(seed).uniform(-spread, spread, (4, columns))
    full = replay.parameters[:, None] * (1.0 + coordinates[np.arange(len(moves)) % 4])
    return moves, coordinates, full


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), spread=st.sampled_from((0.001, 0.05, 0.8)))
def test_columns_are_replays_to_a_millionth_of_what_they_differ_by(seed, spread):
    replay = ColumnProgram(random_program(seed))
    moves, coordinates, full = moved(replay, spread, seed)
    near, exact = Nearby(replay, moves).times(coordinates), replay.times(full)
    most = float(np.abs(replay.parameters).sum())
    assert near == pytest.approx(exact, rel=1e-9, abs=LOST * spread * most + 1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_replicas_meet_as_they_do_in_replay(seed):
    program = random_program(seed, shared=False)
    replay = ColumnProgram(program, joint=frozenset(range(0, len(program.transfers), 3)))
    moves, coordinates, full = moved(replay, 0.1, seed)
    near = Nearby(replay, moves).times(coordinates, group=3)
    assert near == pytest.approx(replay.times(full, group=3), rel=1e-6)


def test_no_deviation_is_the_reference_itself():
    replay = ColumnProgram(random_program(7))
    moves, coordinates, _ = moved(replay, 0.1, 7)
    assert Nearby(replay, moves).times(0.0 * coordinates).tolist() == [replay.time()] * 12


def test_deviations_too_large_for_the_graph_get_another_one():
    replay = ColumnProgram(random_program(11))
    near = Nearby(replay, {p: (0, float(own)) for p, own in enumerate(replay.parameters)})
    assert near.times(np.array([[0.0, 9.0]])) == pytest.approx(
        [replay.time(), 10.0 * replay.time()], rel=1e-6
    )
