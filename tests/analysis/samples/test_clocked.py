"""Straggler samples of recordings: held to the clock rank by rank; what a plan's have, too."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import sim
from sim.analysis.samples.answer import Samples
from sim.analysis.samples.clocked import ClockedSteps
from sim.config.errors import InputError
from sim.config.limit import TooLongError, allow, allowed
from sim.interface.cli.main import main
from sim.jobs.recorded.file import write
from sim.jobs.recorded.kind import answer
from sim.jobs.recorded.recording import Event, Group, Recording
from sim.jobs.recorded.setup import RecordedScenario, from_scenario
from sim.kind import load
from sim.variability.laws import Constant, Jitter, JitterCause, Lognormal
from tests.jobs.recorded.test_play import LAUNCH, REDUCE, WORLD, recorded

CAPTURED = Path("tests/jobs/capturing/recordings")
KERNELS = JitterCause(name="kernels", law=Lognormal(sigma=0.05))
WORK = [*[LAUNCH] * 9, REDUCE, *[LAUNCH] * 9, replace(LAUNCH, reads=(7,))]


def scenario(
    *causes: JitterCause, own: tuple[Recording, ...] = (), seed: int = 0, **settings: object
) -> RecordedScenario:
    job = RecordedScenario(
        record=own or (recorded(*WORK),),
        topology="dgx-h100-ndr",
        jitter=Jitter(seed=seed, cause=causes) if causes else None,
    )
    changed = load(job, settings)
    assert isinstance(changed, RecordedScenario)
    return changed


def piped() -> tuple[Recording, ...]:
    """Two stages of eight ranks; the first sends, both reduce."""
    sent = Event(kind="send", group=1, peer=8, bytes=1e6, mark=3)
    got = Event(kind="recv", group=1, peer=0, bytes=1e6, mark=3)
    both = (Group(first=0, axes=((1, 8),)), Group(first=0, axes=((8, 2),)))
    first = recorded(LAUNCH, sent, *[LAUNCH] * 5, REDUCE, groups=both)
    groups = (Group(first=8, axes=((1, 8),)), both[1])
    second = recorded(got, replace(LAUNCH, reads=(3,)), *[LAUNCH] * 8, REDUCE, groups=groups)
    return first, replace(second, rank=8)


def drawn(job: RecordedScenario, count: int) -> Samples:
    answer = sim.run(job, samples=count)
    assert isinstance(answer, Samples)
    return answer


def test_without_variation_every_sample_is_the_step() -> None:
    job = scenario(JitterCause(name="none", law=Constant(factor=1.0)))
    own = drawn(job, 4)
    assert own.step_times.tolist() == [own.healthy] * 4
    assert own.healthy == pytest.approx(sim.run(job).step_time, rel=1e-12)


def test_a_rank_that_is_always_slow_makes_every_step_that_of_its_straggler() -> None:
    still = JitterCause(name="none", law=Constant(factor=1.0))
    job = scenario(still, straggler=[{"rank": 3, "factor": 1.4}])
    own = drawn(job, 3)
    assert own.step_times == pytest.approx(sim.run(job).step_time, rel=1e-6)
    assert own.by_cause["stragglers named in the scenario"] == pytest.approx(own.loss)
    assert own.by_cause["none"] == pytest.approx(0.0, abs=1e-12)


def test_a_seed_says_what_is_drawn_and_more_samples_begin_with_the_same_ones() -> None:
    few, many, other = (
        drawn(scenario(KERNELS, seed=seed), count).step_times.tolist()
        for seed, count in ((1, 5), (1, 8), (2, 5))
    )
    assert few == many[:5]
    assert few != other


def test_of_more_ranks_the_slowest_is_slower() -> None:
    means = [drawn(scenario(KERNELS, gpus=gpus), 12) for gpus in (16, 64, 512)]
    losses = [own.loss / own.healthy for own in means]
    assert losses == sorted(losses)
    assert losses[2] > 1.3 * losses[0]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "gpus"),
    [("ddp-2.12", 16), ("fsdp2-2.12", 16), ("torchtitan-8b-131072-cp4", 16)],
)
def test_ranks_that_are_alike_take_as_long_as_the_slowest_of_them(name: str, gpus: int) -> None:
    """Kernels vary far more than jitter does, so that the host does not hide them."""
    settings = {"topology": "dgx-h100-ndr", "gpus": gpus}
    own = from_scenario(load(CAPTURED / f"{name}.json.gz", settings))  # type: ignore[arg-type]
    folded = ClockedSteps.of(own.program, own.machine)
    apart = ClockedSteps.of(own.program, own.machine, unfold=True)
    assert (folded.roles, apart.roles) == (1, gpus)
    slowdowns = np.random.default_rng(5).lognormal(0.0, 0.3, (2, gpus))
    assert folded.steps(slowdowns) == pytest.approx(apart.steps(slowdowns), rel=1e-3)
    assert folded.steps(slowdowns).min() > folded.step(np.ones(gpus))


def test_stages_of_a_pipeline_are_played_rank_by_rank() -> None:
    job = scenario(KERNELS, own=piped())
    own = drawn(job, 3)
    factors = own_factors(job, 3)
    setup = from_scenario(job)
    for seconds, slowdown in zip(own.step_times, factors, strict=True):
        slow = dict(enumerate(slowdown.tolist()))
        on = replace(setup, machine=replace(setup.machine, slowdown=slow))
        assert seconds == pytest.approx(answer(on, engine="clock").step_time, rel=1e-9)


def own_factors(job: RecordedScenario, count: int) -> np.ndarray:
    from sim.analysis.samples.rank_slowdowns import Draws, RankPlacement

    setup, jitter = from_scenario(job), job.jitter
    assert jitter is not None
    placement = RankPlacement.of(setup.program.mesh, setup.machine.topology)
    draws = Draws(jitter=jitter, placement=placement, steps=count, slowdown={})
    return draws.first(count).total


def test_waits_and_nodes_add_up() -> None:
    sick = JitterCause(
        name="sick node", law=Constant(factor=1.5), each="node", lasts="job", share=0.3
    )
    own = drawn(scenario(KERNELS, sick, gpus=8 * WORLD, seed=4), 6)
    assert sum(own.by_meeting.values()) == pytest.approx(own.loss, rel=1e-9)
    assert own.by_cause["sick node"] > own.by_cause["kernels"] > 0.0
    gains = [row["gain"] for row in own.removed]
    assert gains[0] == 0.0 < gains[-1]


def test_stages_that_share_a_draw_are_those_of_the_recording() -> None:
    by_stage = JitterCause(name="stage", law=Lognormal(sigma=0.1), each="stage")
    (factors,) = own_factors(scenario(by_stage, own=piped()), 1)
    assert len(set(factors[:8])) == len(set(factors[8:])) == 1
    assert factors[0] != factors[8]


def test_the_command_prints_and_draws_what_there_is(tmp_path: Path) -> None:
    path, picture = tmp_path / "record.json.gz", tmp_path / "drawn.png"
    write([recorded(*WORK)], path)
    words = ["run", str(path), "--topology", "dgx-h100-ndr", "--samples", "5"]
    shown = CliRunner().invoke(main, [*words, "--picture", str(picture)])
    assert shown.exit_code == 0, shown.output
    assert picture.stat().st_size
    for said in ("5 steps sampled", "p99", "Mean loss by cause", "sigma 0.02 per rank"):
        assert said in shown.stdout
    assert "tensor-parallel" not in shown.stdout


def test_what_would_take_long_is_refused_before_it_is_played() -> None:
    usual = allowed()
    allow(1.0)
    try:
        with pytest.raises(TooLongError, match=r"100,000,000 steps of 16 GPUs would take"):
            drawn(scenario(), 100_000_000)
    finally:
        allow(usual)
    with pytest.raises(InputError, match="0 is not a number of samples"):
        drawn(scenario(), 0)
