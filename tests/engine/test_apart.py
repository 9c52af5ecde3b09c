"""Stages that end a step apart: the next one begins on each as soon as it is done."""

from dataclasses import replace

import pytest

from sim import run
from sim.analysis.samples.samples import samples
from sim.config.errors import InputError
from sim.engine.accounts import accounts
from sim.engine.play import play
from sim.kind import load
from sim.parallel.schedule import table
from sim.program.operations import PassOps
from sim.program.program import Program
from tests.engine.programs import machine, training, undisturbed

ON = undisturbed(machine("example-hosts", 4))
FORWARD, LAYERS, STAGES, COUNT = 1e-3, 2, 4, 12
SPLIT = sorted(name for name, own in table().items() if own.splits_backward)


def program(name: str) -> Program:
    """Equal stages without anything that they would wait for at the end."""
    own = table()[name]
    made = training(
        pp=STAGES, microbatches=COUNT, schedule=name, chunks=own.chunks or 2, style="overlapped",
        forward=FORWARD, layers=LAYERS, boundary=0.0, host=0.0, overlap=False,
    )  # fmt: skip
    stages = tuple(replace(stage, closing=PassOps()) for stage in made.stages)
    return replace(made, stages=stages, apart=True)


def test_zb_h2_takes_its_work_apart_and_the_way_to_the_last_stage_more_together():
    own = program("zb-h2")
    work = 3 * COUNT * FORWARD * LAYERS
    assert play(own, ON).step_time == pytest.approx(work, rel=1e-2)
    together = play(replace(own, apart=False), ON)
    assert together.step_time == together.end
    assert together.step_time == pytest.approx(work + (STAGES - 1) * FORWARD * LAYERS, rel=1e-2)


@pytest.mark.parametrize("name", SPLIT)
def test_accounts_add_up_to_the_step_and_both_engines_agree(name):
    own = program(name)
    records = [play(own, ON, engine=engine) for engine in ("clock", "replay")]
    assert records[0].step_time == pytest.approx(records[1].step_time, rel=1e-9)
    for record in records:
        assert record.step_time <= record.end
        for account in accounts(record):
            assert sum(account.values()) == pytest.approx(record.step_time, rel=1e-9)
            assert min(account.values()) >= 0.0


def changed(**more: object):
    plan = {"schedule": "zb-h2", "recompute": "none", "interleave": 1, **more}
    return {
        **{f"plan.{key}": value for key, value in plan.items()},
        "stack.post_validation": True,
    }


def test_post_validation_spares_split_backward_passes_the_wait_for_the_norm():
    name = "gpt3-175b-megatron"
    own = run(load(name, changed()))
    blocking = run(load(name, {**changed(), "stack.post_validation": False}))
    assert own.step_time < blocking.step_time
    assert sum(own.breakdown.values()) == pytest.approx(own.step_time, rel=1e-9)
    whole = run(load(name, changed(schedule="1f1b")))
    assert whole.step_time == run(load(name, {"plan.recompute": "none",
        "plan.schedule": "1f1b", "plan.interleave": 1})).step_time  # fmt: skip


def test_samples_of_a_step_without_a_single_end_are_refused():
    with pytest.raises(InputError, match="stages end a step at different times"):
        samples(load("gpt3-175b-megatron", changed()), 10)
