"""The order of passes that a run writes is one that a run can play."""

from dataclasses import replace
from pathlib import Path

import pytest

from sim import run
from sim.hardware import stack as stacks
from sim.interface.outputs import actions
from sim.kind import load

SIZES = {"gpus": 8, "plan.tp": 1, "plan.pp": 4, "plan.dp": 2, "plan.global_batch": 16,
         "plan.microbatch": 1}  # fmt: skip


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-v"])
def test_the_order_that_is_written_plays_in_the_same_time(name: str, tmp_path: Path) -> None:
    """Where the named schedule exchanges as the runtime of written orders does: overlapped."""
    scenario = load("megatron-1.7b", {**SIZES, "plan.schedule": name})
    stack = replace(
        stacks.load("megatron-lm-2021"), pipeline_exchange="overlapped", exchange_sync=False
    )
    before = run(replace(scenario, stack=stack))
    path = tmp_path / "order.csv"
    actions.write(before, path)
    assert len(path.read_text().splitlines()) == 4
    after = run(replace(load("megatron-1.7b", {**SIZES, "plan.schedule": str(path)}), stack=stack))
    assert after.step_time == pytest.approx(before.step_time, rel=1e-12)
    assert after.memory_per_gpu == before.memory_per_gpu
