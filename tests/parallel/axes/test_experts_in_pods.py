"""Experts on nodes of oversubscribed pods: folded is unfolded, also in what kernels lose."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim import kind
from sim.engine.fold import Folding
from sim.parallel.step import training_step
from sim.program.operations import Collective, Compute
from sim.program.program import Stage
from sim.scenario.setup import PlanSetup, from_scenario
from sim.simulate import answer

GPUS = 64
JOB = f"""
name = "experts in pods"
model = "qwen3-30b-a3b"
topology = "dgx-h100-ndr"
gpus = {GPUS}

[plan]
global_batch = {GPUS}
"""


def setup(folder: Path, seed: int) -> PlanSetup:
    """A small job of experts whose gradients are reduced beside passes, in pods of 1 to 3 nodes."""
    rng = random.Random(seed)
    changes = {
        "model.layers": rng.choice((4, 6, 8)),
        "plan.ep": rng.choice((4, 8, 16, 32)),
        "plan.global_batch": GPUS * rng.choice((1, 2)),
        "network.nodes_per_pod": rng.randint(1, 3),
        "network.oversubscription": rng.choice((1.5, 2.0, 4.0)),
    }
    return changed(folder, changes)


def changed(folder: Path, changes: dict[str, object]) -> PlanSetup:
    (folder / "job.toml").write_text(JOB)
    return from_scenario(kind.load(folder / "job.toml", changes))


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(14))
def test_folded_equals_unfolded(tmp_path: Path, seed: int) -> None:
    job = setup(tmp_path, seed)
    folded, unfolded = answer(job), answer(job, unfold=True)
    assert folded.roles < unfolded.roles == GPUS
    assert folded.step_time == pytest.approx(unfolded.step_time, rel=1e-9)


@pytest.mark.long
def test_ranks_that_are_alike_stay_so_unfolded(tmp_path: Path) -> None:
    """A symmetry that does not hold itself: half of the ranks slower by 1e-12 cost 1 % more."""
    pods = {"network.nodes_per_pod": 3, "network.oversubscription": 2.0}
    job = changed(tmp_path, {"plan.ep": 16, "plan.zero": 0, **pods})
    folded, unfolded = answer(job), answer(job, unfold=True)
    assert folded.step_time == pytest.approx(unfolded.step_time, rel=1e-9)


@pytest.mark.parametrize("seed", range(14, 34))
def test_kernels_lose_to_a_collective_what_they_lose_unfolded(tmp_path: Path, seed: int) -> None:
    job = setup(tmp_path, seed)
    program = training_step(job.job)
    folded, unfolded = (Folding(program, job.machine, unfold=own) for own in (False, True))
    compared = 0
    for role, place in folded.roles:
        short = folded.desk.at(place).links_of(role.stage)
        long = unfolded.desk.at(role.first_rank).links_of(role.stage)
        for call in beside(program.stages[role.stage]):
            assert short.at_once(call) == pytest.approx(long.at_once(call), rel=1e-12)
            assert short.losses(call) == pytest.approx(long.losses(call), rel=1e-12)
            compared += 1
    assert compared


def beside(stage: Stage) -> Iterator[Collective]:
    """The collectives beside which computations of a stage run."""
    for ops in stage.ops_by_variant.values():
        for operation in ops.operations:
            if isinstance(operation, Compute):
                yield from (one.call for one in operation.work.beside)


def test_what_is_lost_to_others_while_a_device_would_wait_for_its_host_is_counted_once(
    tmp_path: Path,
) -> None:
    """One layer on two nodes, whose forward pass is bound by launches and disturbed by gathers."""
    small = {"gpus": 16, "model.layers": 1, "plan.global_batch": 32}
    job = changed(tmp_path, {**small, "plan.ep": 2, "plan.zero": 1, "plan.recompute": "selective"})
    result = answer(job)
    assert result.engine == "clock"
    assert sum(result.breakdown.values()) == pytest.approx(result.step_time, rel=1e-9)
