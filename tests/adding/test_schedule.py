"""A pipeline schedule is one file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sim
from sim.config.errors import InputError
from sim.results.result import Result
from tests.adding.conftest import Add
from tests.adding.walk import planned, played, usual

SOURCE = '''
"""1F1B that starts one more forward pass on every stage but the last."""

from sim.parallel.schedule import Entry
from sim.parallel.schedules.flush import alternate
from sim.program.schedule import Action
from sim.program.schedule import Schedule, in_loops


def eager(stages, microbatches, chunks=1):
    """Stage s runs p - s forward passes before its first backward pass."""
    forward = tuple(Action("F", i) for i in range(microbatches))
    backward = tuple(Action("B", i) for i in range(microbatches))
    orders = (
        alternate(forward, backward, stages - stage if stage < stages - 1 else 0)
        for stage in range(stages)
    )
    return Schedule(tuple(orders), in_loops(stages, chunks), "ahead")


SCHEDULES = (Entry(name="ahead", paper="this test", order=eager),)
'''

PIPELINE = {"plan.pp": 4, "plan.global_batch": 16}
SIZES = {"gpus": 8, "plan.tp": 1, "plan.pp": 4, "plan.dp": 2, "plan.global_batch": 32}


def test_a_schedule_is_played_drawn_and_remembered(add: Add) -> None:
    add("sim.parallel.schedules", "ahead", SOURCE)
    eager = played({**PIPELINE, "plan.schedule": "ahead"})
    plain = usual({**PIPELINE, "plan.schedule": "1f1b"})
    most, fewer = (_activations(result) for result in (eager, plain))
    assert most == pytest.approx(fewer * 5 / 4), "one more microbatch is in flight"


def _activations(result: Result) -> float:
    """The most that the first stage holds."""
    curve = result.memory_curves[0]
    return float(curve.bytes[:, curve.parts.index("activations")].max())


def test_a_schedule_is_searched(add: Add) -> None:
    add("sim.parallel.schedules", "ahead", SOURCE)
    best = planned("--only", "schedule=ahead", "--only", "pp=4")
    assert {layout["plan"]["schedule"] for layout in best} == {"ahead"}


def test_a_schedule_states_how_it_exchanges(add: Add) -> None:
    """Megatron's batched exchange waits for both neighbours behind every pass, which an order with
    passes ahead cannot use; explain names an exchange that blocks."""
    add("sim.parallel.schedules", "ahead", SOURCE)
    says = SOURCE.replace('"ahead"', '"free"').replace("eager)", 'eager, exchange="overlapped")')
    add("sim.parallel.schedules", "free", says)
    settings = {"plan.pp": 4, "plan.tp": 8, "plan.global_batch": 32, "plan.dp": 1}
    job = {"stack": "megatron-lm-2022", "gpus": 32, **settings}
    blocked, free = (
        sim.run("megatron-39b", {**job, "plan.schedule": name}) for name in ("ahead", "free")
    )
    assert free.step_time < 0.9 * blocked.step_time
    found = sim.explain("megatron-39b", {**job, "plan.schedule": "ahead"}).changes
    (named,) = [one for one in found if one.choice == "stack.pipeline_exchange"]
    assert named.step_time == pytest.approx(free.step_time)
    free_of_it = sim.explain("megatron-39b", {**job, "plan.schedule": "free"}).changes
    assert "stack.pipeline_exchange" not in {one.choice for one in free_of_it}


@pytest.mark.parametrize(
    ("name", "spoiled", "told"),
    [
        ("stuck", "(*backward, *forward)", "schedule stuck: stage 0 waits forever at 0B0 for 0F0"),
        ("short", "(*forward[1:], *backward[1:])", "stage 0 does not run . of microbatch 0"),
    ],
)
def test_an_order_that_cannot_run_or_leaves_something_out_is_refused(
    add: Add, name: str, spoiled: str, told: str
) -> None:
    usual = "alternate(forward, backward, stages - stage if stage < stages - 1 else 0)"
    source = SOURCE.replace(usual, spoiled).replace('"ahead"', f'"{name}"')
    add("sim.parallel.schedules", name, source)
    with pytest.raises(InputError, match=told):
        sim.run("megatron-1.7b", {**SIZES, "plan.schedule": name})


@pytest.mark.long
def test_a_folder_of_the_user_s_is_found_by_the_command_and_its_processes(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "parallel" / "schedules"
    folder.mkdir(parents=True)
    (folder / "ahead.py").write_text(SOURCE)
    words = [sys.executable, "-m", "sim", "sweep", "megatron-1.7b", "--jobs", "2"]
    words += [word for key, value in SIZES.items() for word in ("--set", f"{key}={value}")]
    words += ["--vary", "plan.schedule=ahead,1f1b"]
    root = str(Path(sim.__file__).parents[1])

    def swept(plugins: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "SIM_PLUGINS": plugins, "PYTHONPATH": root}
        return subprocess.run(words, env=env, capture_output=True, text=True, cwd=tmp_path)

    found = swept("mine")
    assert found.returncode == 0
    assert [row.split()[1] for row in found.stdout.splitlines()[1:3]] == ["ahead", "1f1b"]
    missing = swept("nowhere")
    assert missing.returncode == 2
    assert "SIM_PLUGINS: 'nowhere' is no folder" in missing.stderr


def test_a_file_of_the_user_s_that_cannot_be_imported_is_one_line(add: Add) -> None:
    add("sim.parallel.schedules", "torn", '"torn"\nfrom sim.parallel.schedule import Nothing\n')
    with pytest.raises(InputError, match=r"torn.py: cannot be imported \(ImportError: .*Nothing"):
        sim.run("megatron-1.7b", {**SIZES, "plan.schedule": "torn"})
