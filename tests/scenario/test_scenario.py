"""Scenarios: from TOML to one frozen object; every packaged one is run."""

import dataclasses
import json
import math
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from sim import run
from sim.config import catalog
from sim.config.errors import InputError
from sim.jobs.generation.scenario import GenerationScenario
from sim.jobs.multi_job.scenario import MultiJobScenario
from sim.jobs.sharing.scenario import SharingScenario
from sim.kind import load
from sim.model import counts
from sim.scenario.scenario import Scenario, Straggler
from sim.scenario.setup import from_scenario

SCRIPTS = sorted((catalog.packaged_root() / "scenarios").glob("*.py"))
LONG = {"pipedream_staleness", "local_sgd_across_regions"}

# Parameters and GPUs as the papers print them, apart from the files that the scenarios name.
PUBLISHED = {
    # Qi et al. 2023, table 3: 6.2B, which leaves room for one of both vocabulary matrices (0.13B).
    "zero-bubble-6.2b": (6.2e9 + 0.13e9, 8),
    "pipedream-gnmt": (193.8e6, 4),  # parameter_bytes / 4 of its profile
    "dlrm": (24.04e9, 8),  # facebookresearch/dlrm, --max-ind-range=40000000: 187.8 million rows
    "resnet50-starved": (25.557e6, 8),  # torchvision.models.resnet50
    "vgg16-gist": (138e6, 1),  # Simonyan and Zisserman 2015, table 2
    "bert-small-cpu": (28.8e6, 1),  # Turc et al. 2019, table 1
    "gpt-small-cpu": (10.65e6, 1),  # nanoGPT, train.py prints 10.65M
    "bert-large-dgx1": (0.34e9, 8),
    "t5-11b": (11e9, 160),  # Raffel et al. 2020, section 3.7; 20 nodes of the launcher
    "bert-large-folded-ring": (0.34e9, 8),
    "bert-large-tpu-v2": (0.34e9, 128),
    "gpt2-one-gpu": (0.124e9, 1),
    "gpt3-175b-cost": (175e9, 1536),
    "mixtral-8x7b": (46.7e9, 64),  # Jiang et al. 2024; GPUs are ours
    "deepseek-v3": (671e9 + 11.5e9, 2048),  # 671B and multi-token prediction, README_WEIGHTS.md
    "gpt-oss-120b": (116.8e9, 64),  # OpenAI 2025, model card, table 1
    "gpt3-175b-megatron": (175e9, 64),
    "gpt3-175b-selective": (175e9, 64),
    "llama2-70b-fsdp": (68.98e9, 256),  # meta-llama/Llama-2-70b-hf, safetensors index
    "llama2-7b-offload": (6.74e9, 8),  # meta-llama/Llama-2-7b-hf, safetensors index
    "llama4-scout": (107.8e9, 64),  # 108.6 with the vision tower, safetensors index
    "llama3-8b-torchtitan": (8.03e9, 8),  # meta-llama/Meta-Llama-3-8B, model card
    "llama3-405b-16k": (405e9, 16384),
    "llama3-8b-long-context": (8.03e9, 64),
    "llama3-70b-lora": (70.6e9, 8),
    "llama2-70b-lora-mlperf": (68.98e9, 8),  # as llama2-70b-fsdp
    "llama3-8b-muon": (8.03e9, 64),
    "llama3-8b-mxfp8": (8.03e9, 8),
    "maxtext-64b-slices": (64e9, 1024),  # its name in MaxText's configurations
    "megatron-1.7b": (1.7e9, 32),
    "llama3-8b-perlmutter": (8.03e9, 512),
    "megatron-3.6b": (3.6e9, 64),
    "megatron-7.5b": (7.5e9, 128),
    "megatron-18b": (18.4e9, 256),
    "megatron-39b": (39.1e9, 512),
    "mtnlg-530b": (530e9, 2240),
    "qwen3-235b-nvl72": (235.09e9, 256),  # Qwen/Qwen3-235B-A22B, safetensors index
    "qwen3-32b-mi300x": (32.76e9, 8),  # Qwen/Qwen3-32B, safetensors index
    # Radford et al. 2019, table 2: 1.542B, and the head's own vocabulary matrix (0.08B).
    "pipedream-2bw": (1.542e9 + 0.08e9, 8),
}


SHARING = [name for name in catalog.names("scenarios") if isinstance(load(name), SharingScenario)]
# Winograd's convolutions multiply less than MFU counts.
WINOGRAD = ["vgg16-gist"]
# Measured layers say nothing of FLOPs, look-ups have next to none.
WITHOUT_FLOPS = ["pipedream-gnmt", "dlrm"]
SEVERAL = [name for name in catalog.names("scenarios") if isinstance(load(name), MultiJobScenario)]
ANSWERING = [n for n in catalog.names("scenarios") if isinstance(load(n), GenerationScenario)]
SYNCHRONOUS = [name for name in catalog.names("scenarios") if load(name).kind == Scenario.kind]


@pytest.mark.long
@pytest.mark.few(6)
@pytest.mark.parametrize("name", SHARING)
def test_every_sharing_scenario_runs_and_its_shares_add_up(name: str) -> None:
    outcome: Any = run(name)
    assert outcome.updates > 0
    assert sum(outcome.shares.values()) == pytest.approx(1.0)
    json.dumps(outcome.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", SEVERAL)
def test_every_scenario_of_several_jobs_runs(name: str) -> None:
    scenario = load(name)
    assert isinstance(scenario, MultiJobScenario)
    queue = scenario.horizon is not None  # of which the first hours are played
    answer: Any = run(load(name, {"horizon": "2 h"}) if queue else scenario)
    assert answer.fits
    assert answer.slowdown >= 1.0
    json.dumps(answer.to_dict(), allow_nan=False)


@pytest.mark.long
@pytest.mark.parametrize("name", ANSWERING)
def test_every_scenario_of_servers_runs(name: str) -> None:
    answer: Any = run(name)
    assert answer.fits
    assert answer.tokens_per_second > 0
    json.dumps(answer.to_dict(), allow_nan=False)


@pytest.mark.few(12)
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_every_scenario_runs_and_its_account_adds_up(name: str) -> None:
    result = run(name)
    assert math.isfinite(result.step_time)
    if name not in WITHOUT_FLOPS:
        assert 0.1 < result.mfu < (1.3 if name in WINOGRAD else 1.0)
        assert 0.1 < result.hfu < (1.3 if name in WINOGRAD else 1.0)
    assert sum(result.breakdown.values()) == pytest.approx(result.step_time, rel=1e-9)
    assert result.fits, "published runs fitted into their GPUs"
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_a_scenario_is_the_published_job(name: str, published: tuple[float, int]) -> None:
    setup = from_scenario(load(name))
    parameters, gpus = published
    assert counts.parameters(setup.job.model) == pytest.approx(parameters, rel=0.03)
    assert setup.machine.topology.gpus == gpus


def test_every_scenario_is_held_against_its_publication() -> None:
    assert sorted(PUBLISHED) == SYNCHRONOUS


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.long] * (p.stem in LONG)) for p in SCRIPTS],
    ids=lambda path: path.stem,
)
def test_every_script_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
    assert list(tmp_path.iterdir()), "it says that it draws"


def test_llama_is_cut_as_its_paper_says() -> None:
    """The first chunk holds only the embedding, the last only the head (section 3.3.2)."""
    chunks = from_scenario(load("llama3-405b-16k")).job.chunks
    layers = [chunk.layers for stage in chunks for chunk in stage]
    assert (len(chunks), len(chunks[0]), sum(layers)) == (16, 8, 126)
    assert chunks[0][0].kinds == ("embedding",)
    assert chunks[-1][-1].kinds == ("head",)
    assert layers.count(1) == 126


# Settings.


def test_settings_are_read_as_toml_and_as_bare_words() -> None:
    scenario = load("gpt2-one-gpu", ["plan.microbatch=6", "plan.precision=fp16", "gpus = 2"])
    assert (scenario.plan.microbatch, scenario.plan.precision, scenario.gpus) == (6, "fp16", 2)


def test_a_mapping_does_what_texts_do() -> None:
    texts = load("gpt2-one-gpu", ["plan.microbatch=6", "network.bandwidth=100 Gb/s"])
    mapping = load("gpt2-one-gpu", {"plan.microbatch": 6, "network.bandwidth": "100 Gb/s"})
    assert texts == mapping


def test_a_setting_overrides_what_the_file_changes() -> None:
    assert load("bert-large-dgx1").changes("model") == {"seq": 128, "predictions": 20}
    scenario = load("bert-large-dgx1", {"model.seq": 256})
    assert scenario.changes("model") == {"seq": 256, "predictions": 20}


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("model.seq", 512, lambda setup: setup.job.model.seq),
        ("stack.overlap_gradients", True, lambda setup: setup.job.stack.overlap_gradients),
        ("stack.fusion.norm", False, lambda setup: setup.job.stack.fusion.norm),
        ("device.sms", 54, lambda setup: setup.job.device.sms),
        ("device.peak.fp16", "100 TFLOP/s", lambda s: s.job.device.peak_rate("fp16") / 1e12),
        ("network.oversubscription", 1.0, lambda s: s.machine.topology.network.oversubscription),
        ("node.efficiency", 0.5, lambda setup: setup.machine.topology.node.efficiency),
    ],
)  # fmt: skip
def test_a_change_reaches_the_file_that_it_names(key: str, value: object, read) -> None:  # type: ignore[no-untyped-def]
    wanted = 100 if value == "100 TFLOP/s" else value
    assert read(from_scenario(load("gpt3-175b-megatron", {key: value}))) == wanted


def test_gpus_are_what_the_plan_spells_out_where_the_scenario_does_not_say() -> None:
    scenario = load("gpt3-175b-megatron")
    spelled = dataclasses.replace(
        scenario, gpus=None, plan=dataclasses.replace(scenario.plan, dp=2)
    )
    assert from_scenario(spelled).machine.topology.gpus == 8 * 8 * 2


def test_stragglers_are_read_and_reach_the_machine() -> None:
    setting = "straggler=[{rank=3, factor=2.0}, {node=1, factor=1.5}]"
    scenario = load("gpt3-175b-megatron", [setting])
    assert scenario.straggler == (Straggler(rank=3, factor=2.0), Straggler(node=1, factor=1.5))
    slowdown = from_scenario(scenario).machine.slowdown
    assert slowdown == {3: 2.0, **dict.fromkeys(range(8, 16), 1.5)}


@pytest.mark.parametrize("where", [{}, {"rank": 1, "stage": 1}])
def test_a_straggler_is_one_thing(where: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="name one of rank, stage, node or link"):
        Straggler(factor=2.0, **where)  # type: ignore[arg-type]


def test_an_unknown_change_in_a_file_is_refused(tmp_path: Path) -> None:
    text = (catalog.packaged_root() / "scenarios" / "gpt2-one-gpu.toml").read_text()
    (tmp_path / "a.toml").write_text(f"{text}\n[change]\nmodell.seq = 128\n")
    with pytest.raises(InputError, match=r"unknown key 'modell.seq'; did you mean 'model'\?"):
        load(str(tmp_path / "a.toml"))


def test_a_scenario_cannot_be_altered_by_accident() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load("gpt2-one-gpu").gpus = 3  # type: ignore[misc]
    assert dataclasses.is_dataclass(Scenario)


def test_a_job_has_the_numerics_that_were_asked_for() -> None:
    """Models that differ in numerics alone are equal: they take the same time."""
    found = [
        from_scenario(load("llama3-8b-torchtitan", {"model.numerics.rope_theta": theta})).job
        for theta in (10000.0, 1234.0)
    ]
    assert [job.model.numerics.rope_theta for job in found] == [10000.0, 1234.0]
