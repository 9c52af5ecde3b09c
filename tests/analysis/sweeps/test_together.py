"""Points that are played together are those that each would be by itself."""

import json
import random
from typing import Any

import pytest

import sim
from sim import kind, step_questions
from sim.analysis.sweeps import sweep
from sim.analysis.sweeps.sweep import SweepTask, answers
from sim.config import catalog
from sim.config.checked import is_rate
from sim.config.errors import InputError
from sim.engine.replay import together as columns
from sim.hardware.cluster import topology as topologies

FREE = {  # settings that leave the structure of a step as it is, and some that do not
    "network.bandwidth": lambda rng: f"{rng.uniform(20, 900):.1f} Gb/s",
    "network.latency": lambda rng: f"{rng.uniform(0.5, 30):.2f} us",
    "node.bandwidth": lambda rng: f"{rng.uniform(40, 900):.1f} GB/s",
    "node.latency": lambda rng: f"{rng.uniform(0.2, 5):.2f} us",
    "device.memory_bandwidth": lambda rng: f"{rng.uniform(800, 4000):.0f} GB/s",
    "stack.launch_forward": lambda rng: f"{rng.uniform(1, 30):.1f} us",
    "stack.step_host": lambda rng: f"{rng.uniform(0, 9):.1f} ms",
    "plan.microbatch": lambda rng: rng.choice((1, 2)),
    "plan.tp": lambda rng: rng.choice((2, 4, 8)),
}
JOBS = (
    "gpt3-175b-megatron", "megatron-1.7b", "gpt2-one-gpu", "llama3-8b-torchtitan", "dlrm",
    "megatron-7.5b", "mixtral-8x7b", "pipedream-gnmt",
)  # fmt: skip


def drawn(rng: random.Random, count: int) -> list[dict[str, Any]]:
    keys = rng.sample(sorted(FREE), rng.randint(1, 4))
    return [{key: FREE[key](rng) for key in keys} for _ in range(count)]


def figures(name: str, points: list[dict[str, Any]]) -> list[Any]:
    setups = []
    for point in points:
        try:
            setups.append(kind.set_up(kind.load(name, point)))
        except InputError:
            continue
    found = step_questions.together(setups)
    return [(setup, found.get(number)) for number, setup in enumerate(setups)]


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(8))
def test_a_column_is_the_point_by_itself(seed: int) -> None:
    rng, together = random.Random(seed), 0
    for name in rng.sample(JOBS, 3):
        for setup, found in figures(name, drawn(rng, 3)):
            if found is None:
                continue
            together += 1
            alone = kind.answer(setup)
            assert found.misfit == alone.misfit
            assert found.columns.keys() == alone.columns.keys()
            for key, value in alone.columns.items():
                own = found.columns[key]
                assert own == value or own == pytest.approx(value, rel=1e-9, abs=1e-12), key
    assert together


def test_a_rate_of_a_file_is_changed_as_the_file_would_be() -> None:
    """Of an object that is read already, too."""
    for name in catalog.names("topologies"):
        file = topologies.load(name)
        for table in ("network", "node", "host"):
            part = getattr(file, table)
            for key in getattr(part, "__dataclass_fields__", ()):
                value = getattr(part, key)
                if not is_rate(file, f"{table}.{key}") or not value:
                    continue
                unit = "s" if "latency" in key else "B/s"
                changes = {f"{table}.{key}": f"{0.75 * value!r} {unit}"}
                try:
                    whole = topologies._loaded(name, changes, "test")
                except InputError:
                    continue
                whole = topologies._without_other_prices(whole, name, changes, "test")
                assert topologies.load(name, changes) == whole


def test_a_row_of_several_points_is_that_of_a_single_one() -> None:
    points = [{"network.bandwidth": f"{rate} Gb/s"} for rate in (50, 100, 200)]
    points.insert(1, {"plan.tp": 3})  # which does not fit
    task = SweepTask(scenario="megatron-7.5b", points=[("", point) for point in points])
    many = [text for _, text, _ in answers(task)]
    for point, text in zip(points, many, strict=True):
        ((_, alone, _),) = answers(SweepTask(scenario="megatron-7.5b", points=[("", point)]))
        assert without_wall(text) == pytest.approx(without_wall(alone), rel=1e-9)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_row_of_a_sweep_is_the_run_with_its_settings(
    jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_START", 0.0)  # processes start for few points, too
    monkeypatch.setattr(columns, "_CELLS", 30_000)  # of some 3,000 moments each: ten columns
    rates, latencies = [f"{50 + 7 * n} Gb/s" for n in range(16)], ["1 us", "20 us"]
    varied = {"network.bandwidth": rates, "network.latency": latencies}
    rows = sim.sweep("gpt3-175b-megatron", varied, jobs=jobs).rows
    assert len(rows) == 32
    for row in rows[::5]:
        alone = sim.run("gpt3-175b-megatron", settings={key: row[key] for key in varied})
        for key, value in alone.columns.items():
            assert row[key] == value or row[key] == pytest.approx(value, rel=1e-9), key


def without_wall(text: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(text)
    return {
        key: value for key, value in row.items() if isinstance(value, float) and "wall" not in key
    }
