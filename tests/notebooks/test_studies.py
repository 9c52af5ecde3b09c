"""What the papers show, the studies show: orders, signs and optima; a figure each."""

from statistics import median

import pytest

from notebooks.studies import async_local_sgd, compression, graphs, staleness
from notebooks.studies.async_local_sgd import DELAYED, DYNAMIC, NAIVE, PLAIN, SYNCHRONOUS
from notebooks.studies.compression import NONE, POWER
from notebooks.studies.graphs import HEALTHY, PAIRS, REDUCE, RING, SERVER, STRAGGLER
from notebooks.studies.staleness import BACKUP, BOUND
from notebooks.studies.study import Study


def between(study: Study, way: str) -> int:
    """The place of the best setting, of which the neighbours on both sides only get worse."""
    times = [study.time(way, setting) for setting in study.settings]
    best = times.index(min(times))
    assert times[: best + 1] == sorted(times[: best + 1], reverse=True)
    assert times[best:] == sorted(times[best:])
    assert 0 < best < len(times) - 1
    return best


def falls(values: list[float]) -> bool:
    return values == sorted(values, reverse=True)


@pytest.mark.long
def test_delayed_nesterov_with_dynamic_updates_wins_and_naive_nesterov_diverges() -> None:
    """Liu et al. 2024 (arXiv 2401.09135): two of four workers twice as slow."""
    study = async_local_sgd.unlike_workers()
    after = {way: study.loss(way, "20", seconds=study.end) for way in study.ways}
    assert sorted(after, key=lambda way: after[way]) == [
        DYNAMIC,
        DELAYED,
        PLAIN,
        SYNCHRONOUS,
        NAIVE,
    ]
    assert after[NAIVE] > 2.0 * study.outcomes[NAIVE, "20"][0].curve[0].loss
    assert study.time(NAIVE, "20") == float("inf")
    per_sample = {way: study.loss(way, "20", samples=study.alike) for way in study.ways}
    assert per_sample[SYNCHRONOUS] < per_sample[DYNAMIC] < 1.25 * per_sample[SYNCHRONOUS]
    assert per_sample[DYNAMIC] < per_sample[DELAYED] < per_sample[PLAIN]  # by the update
    assert f"slow: {DYNAMIC} " in study.conclusion
    assert study.pace(DYNAMIC, "20")[0] > 1.4 * study.pace(SYNCHRONOUS, "20")[0]  # 30 : 20 steps


@pytest.mark.long
def test_fewer_averages_cost_samples_and_save_time_up_to_a_point() -> None:
    """Stich 2019; Wang et al. 2020 (SlowMo)."""
    study = async_local_sgd.how_often()
    between(study, "local SGD")
    losses = [study.loss("local SGD", h, samples=study.alike) for h in study.settings]
    assert losses == sorted(losses)
    paces = [study.pace("local SGD", h)[0] for h in study.settings]
    assert paces == sorted(paces)


@pytest.mark.long
def test_a_bound_between_is_best_less_network_against_staler_weights() -> None:
    """Ho et al. 2013: iterations a second rise with the bound, and a large one
    loses more by staleness than it gains."""
    study = staleness.bounds()
    between(study, BOUND)
    waits = [study.outcomes[BOUND, b][0].shares for b in study.settings]
    assert falls([shares["communication"] + shares["waiting"] for shares in waits])
    late = [study.outcomes[BOUND, b][0].staleness["mean"] for b in study.settings]
    assert late == sorted(late)
    assert study.time(BOUND, "32") == float("inf")


@pytest.mark.long
def test_some_backup_workers_are_best_under_heavy_tails() -> None:
    """Chen et al. 2016: a few of 100 machines in reserve converge first."""
    study = staleness.backup_workers()
    best = between(study, BACKUP)
    assert 1 <= int(study.settings[best]) <= 6
    seconds = [own[0].time / own[0].updates for own in study.outcomes.values()]
    assert falls(seconds)


@pytest.mark.long
def test_a_ring_wins_on_a_slow_network_and_not_on_a_fast_one() -> None:
    """Lian et al. 2017: decentralised is faster where bandwidth is low; where it is high
    it is not, for it needs more samples."""
    study = graphs.networks()
    slow, middle, fast = study.settings
    for way in (REDUCE, SERVER):
        assert study.time(RING, slow) < study.time(way, slow)
        assert study.time(RING, middle) < study.time(way, middle)
    assert study.time(REDUCE, fast) < study.time(RING, fast)
    assert study.time(SERVER, slow) > 5.0 * study.time(RING, slow)
    assert min(study.samples(RING, fast)) > min(study.samples(REDUCE, fast))


@pytest.mark.long
def test_one_worker_ten_times_as_slow_costs_pairs_little_and_all_reduce_all() -> None:
    """Lian et al. 2018: AD-PSGD keeps its pace, all-reduce takes the
    straggler's."""
    study = graphs.one_straggler()
    kept = {way: study.pace(way, STRAGGLER)[0] / study.pace(way, HEALTHY)[0] for way in study.ways}
    assert kept[PAIRS] > (16 - 1) / 16 - 0.03  # all but the straggler's own
    assert kept[REDUCE] < 0.15 > kept[RING]
    assert study.time(PAIRS, STRAGGLER) < 1.2 * study.time(PAIRS, HEALTHY)
    assert study.time(REDUCE, STRAGGLER) > 5.0 * study.time(REDUCE, HEALTHY)


@pytest.mark.long
def test_a_low_rank_saves_bytes_and_time_and_a_very_low_one_costs_loss() -> None:
    """Vogels et al. 2019: time a batch and data sent grow with the rank, rank 1 learns
    less; the best is neither rank 1 nor the gradient itself."""
    pytest.importorskip("torch", reason="digits are learnt by a torch module")
    study = compression.ranks()
    *_, whole = study.settings
    assert whole == NONE
    best = study.fastest(POWER)
    assert best not in ("1", NONE)
    assert study.time(POWER, best) < 0.8 * study.time(POWER, "1")
    assert study.time(POWER, best) < 0.5 * study.time(POWER, NONE)
    sent = [study.outcomes[POWER, rank][0].bytes for rank in study.settings]
    assert sent == sorted(sent)
    assert falls([study.pace(POWER, rank)[0] for rank in study.settings])
    needed = {rank: median(study.samples(POWER, rank)) for rank in study.settings}
    assert needed["1"] > 1.2 * needed[NONE]
    assert needed["8"] < 1.1 * needed[NONE]


@pytest.mark.long
def test_what_oscillates_past_the_target_has_not_reached_it() -> None:
    study = staleness.bounds(rate=0.1, seeds=1)
    wild = study.outcomes[BOUND, "32"][0]
    assert min(point.loss for point in wild.curve) < study.target < wild.curve[-1].loss
    assert study.seconds(BOUND, "32") == [float("inf")]
