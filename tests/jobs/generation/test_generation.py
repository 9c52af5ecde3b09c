"""Scenarios with [generation]: what they answer, and what is refused."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from sim import kind
from sim.config import reads
from sim.config.errors import FitError, InputError
from sim.interface.page.report import write
from sim.jobs.generation.answer import Generated

BASE: dict[str, Any] = {
    "name": "answers",
    "model": "llama3-8b",
    "topology": "dgx-h100-ndr",
    "generation": {
        "prompts": 24,
        "answers": 2,
        "servers": 2,
        "prompt": {"mean": 200, "sigma": 0.5, "cap": 1000},
        "answer": {"mean": 300, "sigma": 0.8, "cap": 2000, "correlation": 0.5},
    },
}


def played(**changes: Any) -> Generated:
    settings = {f"generation.{key}": value for key, value in changes.items()}
    answer = kind.answer(kind.set_up(kind.described(deepcopy(BASE), settings)))
    assert isinstance(answer, Generated)
    return answer


def test_all_answers_are_written_and_the_parts_of_a_step_add_up() -> None:
    answer = played()
    assert answer.answers == 48
    assert answer.tokens == pytest.approx(48 * answer.lengths.mean)
    assert answer.inputs.gpus == 2
    assert 0.0 < answer.cache <= answer.fullest <= 1.0
    assert answer.first.longest <= answer.whole.longest <= answer.time
    assert answer.tokens_per_second * answer.time == pytest.approx(answer.tokens)
    assert answer.limit == next(iter(answer.step))
    assert min(answer.step.values()) >= 0.0
    assert sum(answer.memory.values()) == pytest.approx(0.9 * answer.room)


def test_the_same_prompts_are_asked_whatever_answers_them() -> None:
    one, other = played(), played(servers=3, **{"layout.tp": 2})
    assert one.lengths == other.lengths


@pytest.mark.parametrize("change", [{}, {"rate": 2.0}, {"tuning.sequences": 4}])
def test_more_servers_are_never_slower(change: dict[str, Any]) -> None:
    times = [played(servers=servers, **change).time for servers in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)


def test_a_prompt_that_waits_for_nobody_is_answered_as_if_alone() -> None:
    lengths = {"prompt": {"mean": 500, "sigma": 0.0, "cap": 500},
               "answer": {"mean": 200, "sigma": 0.0, "cap": 200}}  # fmt: skip
    few = played(prompts=4, answers=1, servers=1, rate=0.05, **lengths)
    setup = kind.set_up(kind.described(deepcopy(BASE)))
    speed = setup.speed  # type: ignore[attr-defined]
    assert few.each
    assert few.first.median == pytest.approx(speed.prefill(500))
    steps = [speed.decode(1, context) for context in range(501, 700)]
    assert few.each.median == pytest.approx(sum(steps) / len(steps))


def test_equal_prompts_are_computed_once() -> None:
    one, many = played(answers=1, prompts=8), played(answers=4, prompts=8)
    assert many.prompt_tokens < 1.5 * one.prompt_tokens


def test_a_smaller_cache_takes_longer_and_loses_sequences() -> None:
    small = played(servers=1, **{"tuning.memory": 0.224})
    assert small.preempted > 0
    assert small.fullest > 0.9
    assert small.time > played(servers=1).time


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("layout.tp", 5, "tp = 5 does not divide heads = 32"),
        ("engine", "vlm", "did you mean 'vllm'"),
        ("tuning.sequence_count", 3, "unknown key 'sequence_count'"),
        ("prompts", 0, "at least 1"),
        ("answer.cap", 10_000_000, "the cache holds"),
        ("prompts", 10_000_000_000, "would take about"),
        ("layout.precision", "fp4", "no fp4"),
    ],
)
def test_bad_input_gets_a_line(key: str, value: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        kind.set_up(kind.described(deepcopy(BASE), {f"generation.{key}": value}))


def test_a_model_that_does_not_fit_is_told_from_a_mistake() -> None:
    with pytest.raises(FitError, match="leaves no room for a cache"):
        kind.set_up(kind.described(deepcopy(BASE), {"model": "llama3-70b"}))


def test_gpus_that_no_server_has_are_named() -> None:
    document = deepcopy(BASE) | {"gpus": 5}
    setup = kind.set_up(kind.described(document, {"generation.layout.tp": 2}))
    assert setup.columns == {"gpus": 4, "servers": 2}
    assert setup.notes == ("1 of 5 GPUs are in no server, and are not counted",)


def test_a_slow_gpu_slows_its_server() -> None:
    slow = {"straggler": [{"rank": 1, "factor": 3.0}]}
    answer = kind.answer(kind.set_up(kind.described(deepcopy(BASE) | slow)))
    assert answer.get("time") == pytest.approx(played().time + answer.straggler_seconds)
    assert answer.straggler_seconds > 0.0


def test_a_slow_link_within_a_server_is_refused() -> None:
    slow = {"straggler": [{"link": "node0.nic0", "factor": 3.0}]}
    with pytest.raises(InputError, match="links"):
        kind.set_up(kind.described(deepcopy(BASE) | slow))


def test_a_page_has_the_figures_the_picture_and_the_files(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with reads.recorded():
        answer = kind.answer(kind.set_up(kind.load("qwen3-32b-answers", {"generation.prompts": 4})))
        write(answer, path)
    page = path.read_text()
    assert "first token" in page
    assert "<svg" in page
    assert "engine: vllm" in page


def test_a_note_is_said_once() -> None:
    answer = kind.answer(kind.set_up(kind.described(deepcopy(BASE) | MTP)))
    assert str(answer).count("multi-token prediction") == 1


MTP = {"model": "deepseek-v3", "generation": BASE["generation"] | {
    "servers": 1, "layout": {"tp": 1, "dp": 32, "ep": 32, "precision": "fp8"}}}  # fmt: skip
