"""What `--json` prints is what `docs/schema` says, and what it answers is in it."""

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import sim
from docs import schema
from sim import questions
from sim.analysis.calibration.training.comparison import compare
from sim.analysis.calibration.training.job_measurement import JobMeasurement, MeasuredRound
from sim.analysis.comparison.stored import stored
from sim.analysis.search.space import Space
from sim.analysis.validation.figures import FigureRun, FigureValidation
from sim.analysis.validation.parts import validate_kernels
from sim.results.answer import SCHEMA, Answer, Inputs
from tests.jobs.traces.synthetic import Machine
from tests.test_imports import MODULES

JOB = "gpt2-one-gpu"
ROUND = MeasuredRound(reference=1.0, steps=({"forward": 1.0, "backward": 2.0, "step": 3.0},))
FIGURE = FigureRun(table="mine", id="mine 1", figure="step", measured=2.0, predicted=3.0)
MEASURED = JobMeasurement(rounds=(ROUND,), parameters=7, peak=2e6, loss=0.0)
PLAN = {"only": {"zero": [1], "schedule": ["1f1b"], "microbatch": [1]}, "jobs": 1}


FEW = {"sharing.steps": 5, "sharing.workers": 2}
CURVE = {"critical_batch": 64.0, "least_samples": 1e6}
OF_NO_MODEL = (
    "run-jobs",
    "collective",
    "replay",
    "validate",
    "validate-parts",
    "validate-figures",
)  # nor of one plan
SEVERAL = ("network", "compare", "compare-figures", "compare-sharing", "diff")
RECORD = Path(__file__).parents[1] / "jobs/capturing/recordings/ddp-2.12.json.gz"
ON = {"topology": "dgx-h100-ndr"}
RUNS = [name for name in schema.ANSWERS if schema.answer(name) in questions.answers()]


def answers(folder: Path) -> dict[str, Answer]:
    """One answer of each kind."""
    rank = Machine()
    rank.launch(100.0)
    rank.reduce(300.0)
    trace = rank.write(folder / "trace.json")
    shared = sim.load("ps-async", FEW)
    gemm = folder / "gemm.csv"
    gemm.write_text("m,n,k,time_us\n8192,8192,8192,4400\n4096,8192,8192,2200\n")
    return {
        "run": sim.run("megatron-1.7b"),
        "run-sharing": sim.run("ps-async"),  # type: ignore[dict-item]
        "plan-recording": sim.moves(RECORD, ON),
        "diff": sim.diff(RECORD.with_name("compiled-2.12.json.gz"), RECORD, ON),
        "run-generation": sim.run("qwen3-32b-answers", {"generation.prompts": 16}),  # type: ignore[dict-item]
        "run-jobs": sim.run("two-jobs-one-network"),  # type: ignore[dict-item]
        "run-reinforcement": sim.run("grpo-8b"),  # type: ignore[dict-item]
        "plan": sim.plan("gpt2-1.5b", "dgx-a100-hdr", gpus=2, global_batch=4, **PLAN),  # type: ignore[arg-type]
        "sweep": sim.sweep(JOB, {"plan.microbatch": [1, 2]}, jobs=1),
        "explain": sim.explain(JOB),
        "goodput": sim.goodput(JOB, days=1.0),
        "budget": sim.budget(JOB, tokens=1e9),
        "cost": sim.cost(JOB, tokens=1e9),
        "run-samples": sim.run("megatron-1.7b", samples=20),
        "run-sharing-samples": sim.run(shared, samples=2),
        "compare": sim.compare(JOB, ": plan.microbatch=2"),
        "network": sim.networks(["dgx-h100-ndr", "dgx-a100-hdr"], [JOB]),
        "compare-figures": sim.compare(
            "qwen3-32b-answers", ": generation.layout.tp=8", settings={"generation.prompts": 16}
        ),
        "compare-sharing": sim.compare(shared, sim.load(shared, {"sharing.batch": 16})),
        "workers": sim.workers("all-reduce-ddp", (1, 2), **CURVE, settings="sharing.steps=3"),
        "collective": sim.collective("all_reduce", [2.0**20, 2.0**30], "dgx-h100-ndr", gpus=16),
        "replay": sim.replay(trace, kernels={"gemm": 0.5}, topology="dgx-h100-ndr", gpus=64),
        "measure": compare(JOB, MEASURED, sim.run(JOB), memory=3e6, parameters=7, source="rates"),
        "validate": sim.validate("zero_bubble", at_most=2, jobs=1, coverage=True),
        "validate-figures": FigureValidation(inputs=Inputs(), runs=(FIGURE,)),
        "validate-parts": validate_kernels(gemm, device="a100-80gb-sxm"),
    }


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    return answers(tmp_path_factory.mktemp("traces"))


@pytest.mark.parametrize("name", schema.ANSWERS)
def test_the_published_schema_is_that_of_the_types(name: str) -> None:
    published = (schema.FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert published == schema.text(name), "run python -m docs.schema"


@pytest.mark.long
@pytest.mark.parametrize("name", schema.ANSWERS)
def test_an_answer_keeps_to_its_schema(name: str, given: dict[str, Answer]) -> None:
    printed = json.loads(json.dumps(given[name].to_dict(), allow_nan=False))
    rules = schema.schema(name)
    import jsonschema  # takes long to load

    jsonschema.validate(printed, rules)
    assert (rules["required"], rules["additionalProperties"]) == ([*rules["properties"]], False)


@pytest.mark.parametrize("name", schema.ANSWERS)
def test_an_answer_says_what_it_is_of(name: str, given: dict[str, Answer]) -> None:
    said = given[name].to_dict()
    assert said["schema"] == SCHEMA
    for inputs in said["inputs"].values() if name in SEVERAL else [said["inputs"]]:
        assert inputs["version"] == sim.__version__
        if name not in OF_NO_MODEL:
            assert all(inputs[key] for key in ("cluster", "model", "plan"))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_json_keeps_is_read_back(
    name: str, given: dict[str, Answer], tmp_path: Path
) -> None:
    printed = json.dumps(given[name].to_dict())
    (tmp_path / "kept.json").write_text(printed)
    assert json.dumps(stored(tmp_path / "kept.json").to_dict()) == printed


def test_every_class_of_answers_is_published() -> None:
    """Answers are those of which nothing else is made, in any module that speaks of them."""
    for module, path in MODULES.items():
        if "results.answer import" in path.read_text(encoding="utf-8"):
            import_module(module)
    assert all(issubclass(schema.answer(name), Answer) for name in schema.ANSWERS)
    kinds = [kind for kind in _below(Answer) if kind.__module__ in MODULES]
    further = {_name(kind) for kind in kinds if kind.__subclasses__()}
    assert set(map(_name, kinds)) - further == set(schema.ANSWERS.values())


def _below(kind: type[Any]) -> Iterator[type[Any]]:
    """Classes with slots are made a second time, so that names count and not classes."""
    for own in kind.__subclasses__():
        yield from (own, *_below(own))


def _name(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def test_inputs_of_what_is_changed_or_slow_are_said(given: dict[str, Answer]) -> None:
    replayed = given["replay"].to_dict()["inputs"]
    assert replayed["change"] == {"kernels": [["gemm", 0.5]]}
    assert (replayed["cluster"], replayed["gpus"]) == ("dgx-h100-ndr", 64)
    sick = sim.collective("all_reduce", 2**20, "dgx-h100-ndr", gpus=16, slow={"node1.nic0": 2})
    slow = {"link": "node1.nic0", "factor": 2}
    assert sick.to_dict()["inputs"]["change"] == {"straggler": [slow]}


@pytest.mark.long
@pytest.mark.parametrize("name", schema.ANSWERS)
def test_an_answer_is_a_table_and_a_picture(
    name: str, given: dict[str, Answer], tmp_path: Path
) -> None:
    from sim.interface.plots.picture import save

    answer = given[name]
    assert len(answer.to_frame()) > 0  # type: ignore[attr-defined]
    save(answer.plot(), tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").stat().st_size > 5000
    assert str(answer)
    assert answer._repr_html_()
    shown = re.fullmatch(rf"<{type(answer).__name__}: \S.*\S>", repr(answer))
    assert shown
    assert len(shown[0]) < 120


def test_a_changed_value_is_among_the_inputs() -> None:
    changed = sim.run(sim.load("megatron-1.7b", {"network.bandwidth": "100 Gb/s", "plan.tp": 2}))
    said = changed.to_dict()["inputs"]
    assert said["change"] == {"network.bandwidth": "100 Gb/s"}
    assert said["plan"]["tp"] == 2


def test_the_search_and_a_run_count_one_memory() -> None:
    found = sim.plan("gpt2-1.5b", "dgx-a100-hdr", gpus=2, global_batch=4, **PLAN)  # type: ignore[arg-type]
    assert isinstance(found.space, Space)
    for layout in found.best:
        assert layout.result is not None
        assert layout.memory == pytest.approx(layout.result.memory_per_gpu["total"])
        alone = sim.run(
            sim.Scenario(model="gpt2-1.5b", topology="dgx-a100-hdr", gpus=2, plan=layout.plan)
        )
        assert alone.memory_per_gpu["total"] == pytest.approx(layout.memory)
