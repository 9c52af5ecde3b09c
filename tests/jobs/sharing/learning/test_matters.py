"""What the tasks show: on which of them graphs, drift and staleness matter, and by which rate."""

import pytest

import sim
from notebooks.studies.nine_ways import nine_ways
from sim import run
from sim.jobs.sharing.tables import Learning
from tests.jobs.sharing.pools import outcome, plan

UNLIKE = Learning(task="perceptron", size=16, rate=0.5, unlike=1.0)
GRAPHS = ("ring", "torus", "complete")


def on(graph: str, learning: Learning, steps: int = 200):
    return outcome("gossip", graph=graph, workers=16, steps=steps, learning=learning)


@pytest.mark.long
def test_sparser_graphs_learn_slower_where_data_are_unlike():
    """Lian et al. 2017: the term of the data's variance grows with 1 / (1 - rho)."""
    ring, torus, complete = (on(graph, UNLIKE) for graph in GRAPHS)
    assert ring.loss > 1.1 * torus.loss > 1.1 * complete.loss
    for key in ("worker", "worst", "distance"):
        assert ring.spread[key] > torus.spread[key] > complete.spread[key], key
    assert ring.spread["worst"] > ring.spread["worker"] > ring.loss


def test_on_a_quadratic_the_mean_of_all_workers_cannot_tell_graphs_apart():
    learning = Learning(task="quadratic", rate=0.05, unlike=0.5)
    results = [on(graph, learning, steps=40) for graph in GRAPHS]
    for result in results[1:]:
        assert result.loss == pytest.approx(results[0].loss, rel=1e-9)
    assert results[0].spread["distance"] > 2 * results[2].spread["distance"]


@pytest.mark.long
def test_drift_grows_with_the_period():
    losses = [
        outcome("local_sgd", period=period, workers=16, steps=200, learning=UNLIKE).loss
        for period in (1, 10, 50)
    ]
    assert losses == sorted(losses)
    assert losses[-1] > 1.3 * losses[0]


def test_stale_updates_overshoot_where_fresh_ones_do_not():
    learning = Learning(task="quadratic", rate=0.9, noise=0.0, condition=1.0)
    fresh, stale = (
        outcome("parameter_server", mode=mode, workers=8, steps=20, learning=learning).loss
        for mode in ("bsp", "async")
    )
    assert stale > 1e3 * fresh


@pytest.mark.parametrize(
    ("method", "options", "averaged"),
    [
        ("all_reduce", {}, 8),
        ("data_parallel", {}, 8),
        ("gossip", {}, 8),
        ("local_sgd", {"period": 5}, 8),
        ("parameter_server", {"mode": "bsp"}, 8),
        ("parameter_server", {"mode": "async"}, 1),
        ("parameter_server", {"mode": "ssp", "bound": 2}, 1),
        ("parameter_server", {"mode": "backup", "backup": 3}, 5),
        ("async_local_sgd", {"delay": 4, "outer_momentum": 0.5}, 4),
        ("federated", {"fraction": 0.5}, 4),
    ],
)
def test_linear_scaling_multiplies_by_the_gradients_that_are_averaged(method, options, averaged):
    linear = Learning(rate=0.01, scaling="linear")
    assert plan(method, learning=linear, **options).rate(8) == pytest.approx(0.01 * averaged)
    assert plan(method, learning=Learning(rate=0.01), **options).rate(8) == 0.01


def test_compare_and_run_have_the_same_rates():
    compared = nine_ways(workers=4, seconds=1.0).outcomes["server, synchronous"]
    keys = {"method": "parameter_server", "shards": 2, "mode": "bsp", "worker": "node"}
    keys |= {"workers": 4, "until": "1 s", "straggler": [{"kind": "lognormal", "sigma": 0.3}]}
    learning = {"task": "perceptron", "size": 16, "unlike": 1.0, "rate": 0.05, "scaling": "linear"}
    network = {"network.bandwidth": "10.0 Gb/s", "model": "resnet50"}
    ran = run(sim.load("gossip-sgp", {"sharing": {**keys, "learning": learning}} | network))
    assert compared.rate == ran.rate == "0.2 = 0.05 x 4 for 4 gradients averaged (linear scaling)"
    assert compared.loss == ran.loss
