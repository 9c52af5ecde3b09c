"""Straggler samples: held to the clock rank by rank, reproducible, and their parts add up."""

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from sim.analysis.samples.rank_slowdowns import Draws, RankPlacement
from sim.analysis.samples.replica_columns import ReplicaColumns
from sim.analysis.samples.samples import samples
from sim.config.errors import InputError
from sim.engine.clock import play
from sim.engine.fold import fold
from sim.interface.cli.main import main
from sim.interface.plots import samples as plot
from sim.interface.plots.picture import save
from sim.kind import load
from sim.parallel.step import training_step
from sim.scenario.scenario import Scenario
from sim.scenario.setup import from_scenario
from sim.variability.laws import Constant, Jitter, JitterCause, Lognormal, OnOff

SMALL = {"plan.tp": 2, "plan.pp": 4, "plan.interleave": 1, "plan.schedule": "1f1b",
         "plan.global_batch": 32, "gpus": 32, "model.layers": 8}  # fmt: skip
SICK = Constant(factor=1.3)
NODES = JitterCause(name="sick nodes", law=SICK, each="node", lasts="job", share=0.3)
KERNELS = JitterCause(name="kernels", law=Lognormal(sigma=0.02))


def scenario(*causes: JitterCause, seed: int = 0, **settings: object) -> Scenario:
    small = load("gpt3-175b-megatron", {**SMALL, **settings})
    return replace(small, jitter=Jitter(seed=seed, cause=causes)) if causes else small


def test_samples_equal_the_clock_with_a_slowdown_of_its_own_for_every_group():
    setup = from_scenario(scenario())
    columns, rng = ReplicaColumns.of(setup), np.random.default_rng(5)
    groups = rng.uniform(1.0, 1.3, (3, columns.replicas, columns.stages))
    for sample, step in zip(groups, columns.steps(groups), strict=True):
        slowdown = {
            int(rank): float(sample[replica, stage])
            for replica in range(columns.replicas)
            for stage in range(columns.stages)
            for rank in columns.placement.ranks[replica, stage]
        }
        slowed = replace(setup.machine, slowdown=slowdown)
        played = play(fold(training_step(setup.job), slowed, unfold=True)).end
        assert step == pytest.approx(played, rel=2e-3)  # contention is taken from a healthy run


def test_a_group_is_as_slow_as_its_slowest_member():
    setup = from_scenario(scenario())
    columns = ReplicaColumns.of(setup)
    slow = np.ones((1, 32))
    slow[0, 5] = 1.5
    slowed = replace(setup.machine, slowdown={5: 1.5})
    played = play(fold(training_step(setup.job), slowed)).end
    assert columns.steps(columns.placement.groups(slow))[0] == pytest.approx(played, rel=2e-3)


def test_without_variation_every_sample_is_the_healthy_step():
    drawn = samples(scenario(JitterCause(name="none", law=Constant(factor=1.0))), 5)
    assert drawn.step_times.tolist() == [drawn.healthy] * 5
    assert drawn.loss == pytest.approx(0.0, abs=1e-12)


def test_one_seed_gives_one_answer():
    first, second, other = (samples(scenario(KERNELS, seed=n), 50).to_dict() for n in (4, 4, 5))
    assert first.pop("wall_seconds") != second.pop("wall_seconds")
    assert json.dumps(first) == json.dumps(second)
    assert first["mean"] != other["mean"]


def test_more_samples_begin_with_the_same_ones():
    few, many = (samples(scenario(KERNELS), n).step_times for n in (7, 40))
    assert few.tolist() == many[:7].tolist()


def test_who_has_a_trouble_does_not_depend_on_how_many_steps_are_drawn():
    now_and_then = replace(KERNELS, share=0.4)
    few, many = (samples(scenario(now_and_then), n).step_times for n in (7, 40))
    assert few.tolist() == many[:7].tolist()


def test_blocks_of_samples_give_the_answer_of_all_at_once(monkeypatch):
    spells = JitterCause(name="spells", law=OnOff(factor=1.2, slow=3.0, well=9.0), each="stage")
    job = scenario(KERNELS, spells, NODES)
    whole = samples(job, 50).to_dict()
    monkeypatch.setattr("sim.analysis.samples.rank_slowdowns._AT_ONCE", 32 * 7)
    blocks = samples(job, 50).to_dict()
    assert whole.pop("wall_seconds") != blocks.pop("wall_seconds")
    assert json.dumps(whole) == json.dumps(blocks)


@pytest.mark.long
def test_memory_does_not_grow_with_the_number_of_samples(monkeypatch):
    monkeypatch.setattr("sim.analysis.samples.rank_slowdowns._AT_ONCE", 32 * 100)
    monkeypatch.setattr("sim.analysis.samples.samples._CLOSER", 400)
    few, many = (_peak(lambda n=n: samples(scenario(KERNELS), n)) for n in (100, 4000))
    assert many < few + 8 * 4000 + 100_000  # a step time each; all factors would be 1 MB


def _peak(act: Callable[[], object]) -> int:
    """Bytes at the peak, once all that is made once is there."""
    act()
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_waits_add_up_to_the_mean_loss():
    drawn = samples(scenario(KERNELS, NODES), 30)
    assert sum(drawn.by_meeting.values()) == pytest.approx(drawn.loss, rel=1e-9)
    assert drawn.quantile(0.5) <= drawn.quantile(0.95) <= drawn.quantile(0.99)


def test_a_bigger_jitter_loses_more():
    causes = [JitterCause(name="k", law=Lognormal(sigma=s)) for s in (0.01, 0.03, 0.1)]
    losses = [samples(scenario(cause), 30).loss for cause in causes]
    assert losses == sorted(losses)


def test_taking_sick_nodes_away_gains_what_they_cost():
    drawn = samples(scenario(KERNELS, NODES, seed=3, **{"plan.global_batch": 64}), 20)
    sick = drawn.by_cause["sick nodes"]
    assert sick > 5 * drawn.by_cause["kernels"]
    assert drawn.removed[1]["gain"] > 0.0
    gains = [row["gain"] for row in drawn.removed]
    assert gains == sorted(gains)
    assert max(gains) <= sick * 1.05


def test_the_scenarios_own_stragglers_are_among_the_causes():
    slow = {"straggler": [{"rank": 0, "factor": 1.5}]}
    drawn = samples(load("gpt3-175b-megatron", {**SMALL, **slow}), 10)
    assert drawn.by_cause["stragglers named in the scenario"] > drawn.by_cause["kernels"]
    assert np.unravel_index(drawn.owed.argmax(), drawn.owed.shape) == (0, 0)


def test_what_is_owed_is_the_last_replicas_loss():
    drawn = samples(scenario(NODES, seed=3), 10)
    assert drawn.owed.shape == (4, 4)
    assert (drawn.owed >= 0.0).all()
    assert drawn.owed.sum() == pytest.approx(drawn.loss, rel=0.05)


def test_an_unknown_jitter_is_assumed_and_said():
    drawn = samples(scenario(), 3)
    assert any("sigma 0.02" in note for note in drawn.notes)
    assert "assumed" in str(drawn)


def test_a_slow_link_is_refused():
    slow = {"straggler": [{"link": "node0.nic0", "factor": 4.0}]}
    with pytest.raises(InputError, match="makes replicas differ"):
        samples(load("gpt3-175b-megatron", {**SMALL, **slow}), 3)


# --- Placement and draws ------------------------------------------------------------------------


def test_places_follow_the_order_of_the_mesh():
    setup = from_scenario(scenario(**{"plan.order": "tp-pp-dp-cp"}))
    placement = RankPlacement.of(setup.job.plan.mesh, setup.machine.topology)
    assert placement.ranks[1, 2].tolist() == [12, 13]
    setup = from_scenario(scenario())  # tp-cp-dp-pp
    placement = RankPlacement.of(setup.job.plan.mesh, setup.machine.topology)
    assert placement.ranks[1, 2].tolist() == [18, 19]
    assert placement.unit("node").tolist() == [rank // 8 for rank in range(32)]
    assert placement.unit("stage").tolist() == [rank // 8 for rank in range(32)]
    assert placement.unit("replica").tolist() == [rank // 2 % 4 for rank in range(32)]


def test_lasting_causes_hold_for_all_steps_and_share_picks_some():
    setup = from_scenario(scenario())
    placement = RankPlacement.of(setup.job.plan.mesh, setup.machine.topology)
    jitter = Jitter(seed=1, cause=(replace(NODES, share=0.5),))
    total = Draws(jitter=jitter, placement=placement, steps=6, slowdown={}).first(6).total
    assert (total == total[0]).all()
    per_node = total[0].reshape(4, 8)
    assert (per_node == per_node[:, :1]).all()
    assert set(per_node[:, 0]) == {1.0, 1.3}


# --- The command ----------------------------------------------------------------------------------


def sampled(*words: str):
    return CliRunner().invoke(main, ["run", "gpt2-one-gpu", "--samples", *words])


def test_the_command_prints_json():
    done = sampled("20", "--json", "--set", "jitter.seed=3")
    answer = json.loads(done.stdout.splitlines()[-1])
    assert (answer["samples"], answer["seed"]) == (20, 3)
    assert answer["median"] <= answer["p95"] <= answer["p99"]


def test_the_picture_is_the_same_bytes_for_the_same_samples(tmp_path):
    drawn = samples(scenario(KERNELS), 20)
    for name in ("first.png", "second.png", "first.svg"):
        save(plot.figure(drawn), tmp_path / name)
    assert (tmp_path / "first.png").read_bytes() == (tmp_path / "second.png").read_bytes()
    assert (tmp_path / "first.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("0",), "is not in the range"),
        (("3", "--engine", "clock"), "--engine clock"),
        (("3", "--unfold"), "--unfold"),
        (("3", "--set", "jitter.sed=1"), "did you mean 'seed'"),
        (("3", "--set", 'jitter.cause=[{name="x", kind="pareto"}]'), "alpha is missing"),
        (("3", "--set", 'jitter.cause=[{name="x", kind="trace", file="no.csv"}]'), "no such file"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(words, what):
    done = sampled(*words)
    assert done.exit_code == 2
    assert what in done.stderr
    assert done.stderr.count("\n") == 1


def test_contention_unlike_the_healthy_steps_is_taken_from_slowed_runs(monkeypatch):
    busy = scenario(KERNELS, **{"plan.interleave": 2, "plan.schedule": "interleaved"})
    usual = samples(busy, 5)
    assert usual.contended
    assert usual.worst_error > 0.0
    monkeypatch.setattr("sim.engine.columns.contention.TOLERANCE", usual.worst_error / 1e3)
    with pytest.raises(InputError, match="off by"):
        samples(busy, 5)
