"""Graphs: doubly stochastic weights, known eigenvalues, connectedness."""

from math import cos, pi

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.jobs.sharing.graphs import NAMED, exponential_hops, graph
from sim.jobs.sharing.methods.gossip import Gossip
from tests.jobs.sharing.mixing import metropolis, second_eigenvalue

PRIMES = (5, 7, 11, 13, 17, 19)


@given(kind=st.sampled_from(sorted(NAMED)), n=st.integers(2, 20))
def test_mixing_weights_add_up_by_row_and_column(kind, n):
    assume(kind != "torus" or n not in PRIMES)
    weights = metropolis(graph(kind, n))
    assert np.allclose(weights.sum(axis=0), 1.0)
    assert np.allclose(weights, weights.T)
    assert (weights > -1e-15).all()


@pytest.mark.parametrize("n", [5, 8, 16])
def test_a_rings_second_eigenvalue_is_known(n):
    expected = 1 / 3 + 2 / 3 * cos(2 * pi / n)
    assert second_eigenvalue(metropolis(graph("ring", n))) == pytest.approx(expected)


def test_more_edges_mix_faster():
    kinds = ("ring", "torus", "complete")
    eigenvalues = [second_eigenvalue(metropolis(graph(kind, 16))) for kind in kinds]
    assert eigenvalues == sorted(eigenvalues, reverse=True)
    assert eigenvalues[-1] == pytest.approx(0.0, abs=1e-12)


def test_exponential_hops_reach_everyone():
    hops = exponential_hops(16)
    reached = {0}
    for hop in hops:
        reached |= {(i + hop) % 16 for i in reached}
    assert reached == set(range(16))


def test_a_graph_in_two_parts_is_refused():
    with pytest.raises(InputError, match="not connected: no path leads from worker 0 to worker 2"):
        graph([(0, 1), (2, 3)], 4)


@pytest.mark.parametrize("edge", [(0, 0), (0, 4), (1,)])
def test_an_edge_that_leads_nowhere_is_refused(edge):
    with pytest.raises(InputError, match="is not an edge"):
        graph([(0, 1), edge], 4)


def test_a_torus_of_a_prime_is_refused_as_the_ring_that_it_would_be():
    with pytest.raises(InputError, match=r'a torus of 7 workers is a ring, .*set graph = "ring"'):
        graph("torus", 7)
    assert graph("torus", 3) == graph("ring", 3)


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(ValueError, match="no graph named 'pentagram'; known: ring"):
        Gossip(graph="pentagram")
