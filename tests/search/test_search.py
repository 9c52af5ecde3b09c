"""The search: replay of passes agrees with the clock, and the best is the best of what fits."""

import json
import random
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.cli.main import main
from sim.config.errors import InputError
from sim.search.durations import Spans
from sim.search.search import Found, search, to_dict, why
from sim.search.space import Candidate, Pruned, Space, candidates, fullest, plans, space
from sim.search.step_estimate import Tempo, step_times
from sim.search.text import plan_text
from sim.simulate import run


@cache
def outcome() -> Found:
    return search(small(), jobs=1)


def small(stack: str = "megatron-core", **more: int) -> Space:
    return space("gpt2-1.5b", "dgx-a100-hdr", gpus=16, global_batch=32, stack=stack,
                 precision="fp16", **more)  # fmt: skip


@cache
def listed(stack: str) -> tuple[Candidate, ...]:
    return tuple(candidates(small(stack), Pruned()))


# What there is.


def test_every_layout_divides_and_fits() -> None:
    for candidate in listed("megatron-core"):
        plan = candidate.plan
        assert plan.tp * plan.pp * plan.replicas == 16
        assert plan.microbatches * plan.microbatch * plan.replicas == 32
        assert candidate.memory.fits(candidate.setup.job.device.usable_memory)


def test_shares_of_a_search_make_up_the_whole() -> None:
    from dataclasses import replace

    whole = sorted(map(str, plans(small(), Pruned())))
    parts = [plans(replace(small(), share=(i, 3)), Pruned()) for i in range(3)]
    assert sorted(str(plan) for part in parts for plan in part) == whole


def test_the_fullest_stage_is_the_fullest_of_all() -> None:
    from sim.parallel.footprint import footprints

    for candidate in random.Random(1).sample(listed("megatron-core"), 40):
        job = candidate.setup.job
        most = fullest(job, job.device.usable_memory)
        assert most is not None
        assert most.reserved == max(memory.reserved for memory in footprints(job))


# Replay of passes.


@pytest.mark.parametrize(
    ("stack", "most"),
    [("megatron-lm-2022", 0.01), ("megatron-core", 0.03), ("nanotron", 0.05)],
)
def test_replay_is_near_the_clock_on_random_layouts(stack: str, most: float) -> None:
    spans = Spans()
    errors = []
    for candidate in random.Random(2).sample(listed(stack), 12):
        paced = step_times([Tempo(candidate.setup, spans)])[0]
        errors.append(abs(paced / run(candidate.setup).step_time - 1))
    assert max(errors) < most
    assert sorted(errors)[len(errors) // 2] < 0.01


def test_replay_is_the_clock_where_transfers_have_their_links_alone() -> None:
    """Pipelines without data parallelism whose stages lie in different nodes."""
    wide = space("llama2-7b", "dgx-a100-hdr", gpus=64, global_batch=16, stack="megatron-lm-2022",
                 precision="fp16")  # fmt: skip
    alone = [
        layout
        for layout in candidates(wide, Pruned())
        if (layout.plan.tp, layout.plan.pp) == (8, 8)
    ]
    assert len(alone) > 10
    for candidate in alone[::7]:
        paced = step_times([Tempo(candidate.setup)])[0]
        assert paced == pytest.approx(run(candidate.setup).step_time, rel=2e-4)


def test_layouts_together_take_what_each_takes_alone() -> None:
    groups: dict[object, list[Tempo]] = {}
    for candidate in listed("megatron-core"):
        tempo = Tempo(candidate.setup)
        groups.setdefault(tempo.shape, []).append(tempo)
    group = max(groups.values(), key=len)[:20]
    assert step_times(group) == pytest.approx(
        [step_times([tempo])[0] for tempo in group], rel=1e-12
    )


# The search.


def test_the_best_is_the_fastest_and_the_clock_says_so() -> None:
    best = outcome().best[0]
    assert best.result is not None, "the best is confirmed"
    assert best.step_time == min(layout.step_time for layout in outcome().best)
    assert best.paced == pytest.approx(best.step_time, rel=0.01)
    assert best.paced <= 1.02 * min(layout.paced for layout in outcome().layouts)


def test_nothing_on_the_pareto_front_is_beaten_in_both() -> None:
    front = outcome().pareto
    for best in front:
        assert not any(
            layout.paced < best.paced and layout.memory < best.memory
            for layout in outcome().layouts
        )
    assert [layout.paced for layout in front] == sorted(layout.paced for layout in front)


def test_two_processes_find_what_one_finds() -> None:
    by_two = to_dict(search(small(), jobs=2))
    by_one = to_dict(outcome())
    for answer in (by_one, by_two):
        answer.pop("wall_seconds")
        for row in answer["best"]:
            row.pop("wall_seconds", None)
    assert json.dumps(by_one) == json.dumps(by_two)


def test_the_runner_up_loses_by_the_difference_of_its_causes() -> None:
    assert why(outcome()).startswith("the runner-up takes")
    rows = to_dict(outcome())["best"]
    lost = sum(rows[1]["breakdown"].values()) - sum(rows[0]["breakdown"].values())
    assert lost == pytest.approx(rows[1]["step_time"] - rows[0]["step_time"])


def test_more_gpus_per_batch_are_never_slower() -> None:
    half = search(space("gpt2-1.5b", "dgx-a100-hdr", gpus=8, global_batch=32, precision="fp16",
                        stack="megatron-core"), jobs=1)  # fmt: skip
    assert outcome().best[0].step_time < half.best[0].step_time


def test_the_command_prints_twenty_and_draws(tmp_path: Path) -> None:
    words = ["plan", "gpt2-355m", "dgx-1-v100", "--gpus=8", "--global-batch=16", "--jobs=1",
             "--precision=fp16", "--stack=pytorch-ddp", f"--plot={tmp_path}/plan.png"]  # fmt: skip
    plain = CliRunner().invoke(main, words)
    assert plain.exit_code == 0, plain.output
    assert "Pareto front" in plain.stdout
    assert (tmp_path / "plan.png").stat().st_size > 10_000
    answer = json.loads(CliRunner().invoke(main, [*words[:-1], "--json"]).stdout)
    assert {"best", "evaluated", "pruned", "pareto", "wall_seconds"} <= answer.keys()
    assert [row["rank"] for row in answer["best"]] == list(range(1, len(answer["best"]) + 1))
    assert answer["best"][0]["confirmed"]


def test_a_layout_reads_as_a_sentence() -> None:
    assert plan_text(outcome().best[0].plan).startswith("tp ")


@pytest.mark.parametrize("words", [
    ["gpt9", "dgx-a100-hdr", "--global-batch=8"],
    ["gpt2-124m", "nowhere", "--global-batch=8"],
    ["gpt2-124m", "dgx-a100-hdr"],
    ["gpt2-124m", "dgx-a100-hdr", "--global-batch=0"],
    ["gpt2-124m", "dgx-a100-hdr", "--global-batch=8", "--gpus=12"],
    ["gpt2-124m", "dgx-a100-hdr", "--global-batch=8", "--gpus=8", "--precision=fp8"],
    ["gpt2-124m", "dgx-a100-hdr", "--global-batch=7", "--gpus=4480"],
    ["gpt3-175b", "dgx-a100-hdr", "--global-batch=8", "--gpus=8", "--jobs=1"],
    ["gpt2-124m", "dgx-a100-hdr", "--global-batch=8", "--plot=plan.doc"],
    ["gpt2-124m", "dgx-a100-hdr", "--global-batch=8", "--stack=none"],
], ids=" ".join)  # fmt: skip
def test_a_mistake_is_one_line(words: list[str]) -> None:
    result = CliRunner().invoke(main, ["plan", *words])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1


def test_nothing_that_fits_says_why() -> None:
    with pytest.raises(InputError, match="fits in memory"):
        search(space("gpt3-175b", "dgx-a100-hdr", gpus=8, global_batch=8), jobs=1)
