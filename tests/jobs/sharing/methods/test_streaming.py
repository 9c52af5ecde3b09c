"""Averages in pieces, beside the passes, within sites: Streaming DiLoCo, hierarchical local SGD."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim
from sim import run
from sim.collectives.compression import Compression
from sim.config.errors import InputError
from sim.engine.routes import Regions
from sim.jobs.sharing.learning.numpy_tasks import Quadratic
from sim.jobs.sharing.methods.local_sgd import Calendar
from sim.jobs.sharing.run import build
from tests.jobs.sharing.pools import (
    JITTER,
    QUADRATIC,
    RATE,
    SIZE,
    STEP,
    fast,
    hosts,
    outcome,
    plan,
    setup,
    trained,
)

TASK = Quadratic(size=6, noise=0.3, unlike=0.5, workers=4, batch=32)
RING = 2 * 3 / 4 * SIZE / RATE  # s of an all-reduce of everything among four
NESTEROV = {"nesterov": True, "outer_rate": 0.7, "outer_momentum": 0.9}


@given(
    stretch=st.integers(1, 9),
    fragments=st.integers(1, 6),
    share=st.floats(0.0, 0.99),
)
def test_every_fragment_leaves_and_comes_back_once_a_period(stretch, fragments, share):
    period = stretch * fragments
    overlap = int(share * period)
    calendar = Calendar(period=period, fragments=fragments, overlap=overlap)
    last = 4 * period
    left = [(t, p) for t in range(1, last + 1) if (p := calendar.leaving(t)) is not None]
    back = [(t, p) for t in range(1, last + 1) if (p := calendar.arriving(t)) is not None]
    assert back == [(t + overlap, p) for t, p in left if t + overlap <= last]
    for number in range(fragments):
        own = [t for t, p in left if p == number]
        assert own == list(range((number + 1) * stretch, last + 1, period))


@pytest.mark.parametrize("overlap", [0, 3])
def test_the_curve_has_each_update_when_all_workers_have_merged_it(overlap):
    """The first worker counts the update, in the moment in which the others merge it, too."""
    options = {"period": 4, "fragments": 2, "overlap": overlap, "learning": QUADRATIC}
    result = outcome("local_sgd", **options)
    assert result.curve[-1].seconds == result.time
    assert result.curve[-1].loss == result.loss


def test_one_fragment_without_overlap_is_diloco():
    """As written out: H steps on one's own, then the outer step with the mean of what all came."""
    pool = trained("local_sgd", period=5, learning=QUADRATIC, task=TASK, **NESTEROV)
    weights, moment = TASK.start, np.zeros(6)
    for turn in range(4):
        gone = []
        for rank in range(4):
            local = weights
            for step in range(5 * turn, 5 * turn + 5):
                local = local - QUADRATIC.rate * TASK.gradient(local, rank, step)
            gone.append(weights - local)
        outer = sum(gone) / 4
        moment = 0.9 * moment + outer
        weights = weights - 0.7 * (outer + 0.9 * moment)
    assert pool.workers[3].weights == pytest.approx(weights, rel=1e-12)


def written_out(
    period: int, fragments: int, overlap: int, keep: float, steps: int
) -> list[np.ndarray]:
    """Algorithm 2 of Douillard et al. 2025 for all workers, step by step."""
    local = [TASK.start.copy() for _ in range(4)]
    agreed = TASK.start.copy()
    moment, away = np.zeros(6), {}
    for t in range(1, steps + 1):
        for rank in range(4):
            local[rank] = local[rank] - QUADRATIC.rate * TASK.gradient(local[rank], rank, t - 1)
        for p in range(fragments):
            own = slice(p, None, fragments)
            if (
                t >= (p + 1) * period // fragments
                and (t - (p + 1) * period // fragments) % period == 0
            ):
                away[p] = (t, sum(agreed[own] - weights[own] for weights in local) / 4)
            if p in away and away[p][0] + overlap == t:
                outer = away.pop(p)[1]
                moment[own] = 0.9 * moment[own] + outer
                agreed[own] = agreed[own] - 0.7 * (outer + 0.9 * moment[own])
                for weights in local:
                    weights[own] = keep * weights[own] + (1 - keep) * agreed[own]
    return local


@pytest.mark.parametrize(
    ("period", "fragments", "overlap", "keep"),
    [(4, 2, 0, 0.0), (6, 3, 1, 0.5), (6, 3, 5, 0.5), (4, 1, 3, 0.0), (4, 4, 2, 0.9)],
)
def test_streaming_is_the_algorithm_of_the_paper(period, fragments, overlap, keep):
    keys = dict(period=period, fragments=fragments, overlap=overlap, keep=keep)
    pool = trained(
        "local_sgd",
        learning=QUADRATIC,
        task=TASK,
        until=24.5 * STEP,
        machine=fast(),
        **keys,
        **NESTEROV,
    )
    expected = written_out(period, fragments, overlap, keep, 24)
    for worker, weights in zip(pool.workers, expected, strict=True):
        assert worker.steps == 24
        assert worker.weights == pytest.approx(weights, rel=1e-9)


@pytest.mark.parametrize("fragments", [1, 2, 5, 10])
def test_fragments_carry_the_bytes_of_the_whole_a_piece_at_a_time(fragments):
    whole, pieces = (outcome("local_sgd", period=10, fragments=p) for p in (1, fragments))
    assert pieces.bytes == pytest.approx(whole.bytes, rel=1e-9)
    assert pieces.samples == whole.samples
    assert pieces.updates == fragments * whole.updates


@pytest.mark.parametrize("overlap", [0, 1, 2, 4])
@pytest.mark.parametrize("slower", [1.0, 20.0])
def test_what_is_waited_for_is_what_the_overlap_does_not_hide(overlap, slower):
    """max(0, T / P - tau x step) for each fragment while one is on its way at a time."""
    network = replace(hosts().topology.network, bandwidth=RATE / slower)
    machine = replace(hosts(), topology=replace(hosts().topology, network=network))
    keys = dict(period=20, fragments=4, steps=20, machine=machine)
    each = (outcome("local_sgd", **keys).time - 20 * STEP) / 4
    assert each == pytest.approx(slower * RING / 4, rel=0.15)  # and the library's flags
    run = outcome("local_sgd", overlap=overlap, **keys)
    spent = sum(run.workers[0][cause] for cause in ("communication", "waiting")) * run.time
    waited = 4 * max(0.0, each - overlap * STEP)
    assert spent == pytest.approx(waited, rel=1e-6, abs=1e-9)
    assert run.time == pytest.approx((20 + overlap) * STEP + waited, rel=1e-6)


def test_with_overlap_nobody_waits_for_jitter():
    keys = dict(period=10, steps=100, straggler=JITTER)
    at_once, beside = (outcome("local_sgd", overlap=o, **keys) for o in (0, 5))
    assert beside.shares["waiting"] < 0.5 * at_once.shares["waiting"]


@settings(max_examples=20, deadline=None)
@given(fragments=st.sampled_from((1, 2, 3)), overlap=st.integers(0, 5), seed=st.integers(0, 20))
def test_plain_averages_keep_the_mean_of_all_workers(fragments, overlap, seed):
    """Outer rate 1, no momentum: what is merged is the mean of what left, so without gradients
    nothing changes it. Weights are scattered first; all have agreed on their mean."""

    class Still(Quadratic):
        def gradient(self, weights, rank, step):
            return np.zeros_like(weights)

    keys = dict(period=6, fragments=fragments, overlap=overlap, steps=24, learning=QUADRATIC)
    built = setup("local_sgd", task=Still(size=6, noise=0.0), **keys)
    pool = build(built)
    draws = np.random.default_rng(seed).standard_normal((4, 6))
    built.plan.start(pool)
    for worker, weights in zip(pool.workers, draws - draws.mean(axis=0), strict=True):
        worker.weights = weights
    pool.run()
    for worker in pool.workers:
        assert worker.weights == pytest.approx(np.zeros(6), abs=1e-12)


def test_sites_average_often_and_all_seldom():
    """In-site traffic stays inside; across goes as often as without sites."""
    wide = Regions(nodes=2, bandwidth=RATE / 10, latency=0.0)
    keys = dict(period=10, regions=wide, learning=QUADRATIC, task=TASK)
    plain = outcome("local_sgd", **keys)
    often = outcome("local_sgd", site=2, site_period=2, **keys)
    across = [
        sum(way["bytes"] for way in run.links if way["link"].startswith("region"))
        for run in (plain, often)
    ]
    assert across[0] == pytest.approx(across[1], rel=1e-9)
    pair = outcome("local_sgd", workers=2, steps=1)  # one average of two, of which there are
    assert often.bytes - plain.bytes == pytest.approx(2 * 8 * pair.bytes, rel=1e-9)
    assert often.time - plain.time == pytest.approx(8 * (pair.time - STEP), rel=0.01)


def test_a_site_of_all_workers_is_local_sgd_with_its_period():
    keys = dict(learning=QUADRATIC, task=TASK, steps=12)
    sites = trained("local_sgd", period=6, site=4, site_period=2, **keys)
    plain = trained("local_sgd", period=2, **keys)
    assert sites.workers[1].weights == pytest.approx(plain.workers[1].weights, rel=1e-12)


def test_sites_come_closer_than_without():
    keys = dict(
        period=12, learning=QUADRATIC, task=TASK, until=11.5 * STEP, steps=1000, machine=fast()
    )
    apart, near = (
        outcome("local_sgd", **keys, **more).spread["distance"]
        for more in ({}, {"site": 2, "site_period": 2})
    )
    assert near < 0.8 * apart


def test_memory_has_what_is_on_its_way():
    own = SIZE / 4
    streaming = plan("local_sgd", period=20, fragments=4, overlap=6, outer_momentum=0.9)
    kept = streaming.kept(own, 4.0, 8)
    assert kept == {"outer state": 2 * SIZE, "on their way": 2 / 4 * SIZE}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"period": 10, "fragments": 3}, "multiple of fragments"),
        ({"period": 4, "overlap": 4}, "below the period"),
        ({"period": 4, "keep": 0.5}, "without overlap"),
        ({"period": 4, "site_period": 2}, "without site"),
        ({"period": 4, "site": 2, "site_period": 3}, "does not divide"),
    ],
)
def test_what_does_not_fit_together_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        plan("local_sgd", **options)


def test_workers_that_fill_no_sites_are_refused():
    with pytest.raises(InputError, match="site = 3 does not divide"):
        outcome("local_sgd", period=4, site=3)


@pytest.mark.long
def test_streaming_diloco_of_70b_hides_what_diloco_waits_for():
    """Four sites at 10 Gb/s: a fragment of bf16 takes less than five steps."""
    whole, streaming = (run(sim.load(name)) for name in ("diloco-70b", "streaming-diloco-70b"))
    inner = 200 * sum(whole.step.values())
    assert whole.shares["communication"] > 0.15
    assert streaming.shares["communication"] + streaming.shares["waiting"] < 1e-3
    assert streaming.time == pytest.approx(inner * 205 / 200, rel=0.005)
    assert streaming.bytes < 0.3 * whole.bytes


@pytest.mark.long
def test_four_bits_hide_what_sixteen_do_not():
    """At 1 Gb/s a fragment of bf16 takes longer than the five steps until the next one."""
    slow = {"sharing.regions.bandwidth": "1 Gb/s"}
    wide, narrow = (
        run(sim.load("streaming-diloco-70b", {**slow, **more}))
        for more in ({"sharing.compression": {"kind": "none"}}, {})
    )
    assert wide.shares["communication"] > 0.4
    assert narrow.shares["communication"] + narrow.shares["waiting"] < 0.01


def test_streaming_learns_as_well_as_diloco():
    keys = dict(
        period=10,
        learning=QUADRATIC,
        task=TASK,
        steps=400,
        outer_rate=0.7,
        outer_momentum=0.5,
        nesterov=True,
    )
    whole = outcome("local_sgd", **keys)
    coarse = Compression(kind="fp4")
    streaming = outcome("local_sgd", fragments=2, overlap=1, keep=0.5, compression=coarse, **keys)
    start = TASK.loss(TASK.start)
    assert whole.loss < 0.01 * start
    assert streaming.loss < 0.01 * start
