"""What `sim plan --emit` writes is complete; the frameworks' own parsers read it."""

import dataclasses
import json
import logging
import sys
import tomllib
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest

import sim
from sim.interface.frameworks.jobs import emitted, stack_of
from sim.model import reading
from sim.parallel.plan import Plan

PLAN = Plan(global_batch=64, dp=8, zero=3, recompute="selective")


def torchtitan(plan: Plan = PLAN, like: str = "llama3-8b") -> dict[str, Any]:
    return tomllib.loads(emitted("torchtitan", reading.load("llama3-8b"), plan, like)[0])


def test_a_torchtitan_job_has_all_tables_that_a_run_needs() -> None:
    job = torchtitan()
    assert set(job) == {"model", "training", "parallelism", "activation_checkpoint", "compile"}
    assert job["model"] == {"name": "llama3", "flavor": "8B"}
    assert job["compile"] == {"enable": True, "components": ["model", "loss"]}
    assert torchtitan(like="my/config.json")["model"]["flavor"] == "8B"  # by its shape


def test_torchtitan_s_own_classes_take_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchtitan/config/job_config.py of 0.2: every table and key is there, of its type."""
    found = find_spec("torchtitan")
    places = list(found.submodule_search_locations or ()) if found else []
    files = [Path(place) / "config" / "job_config.py" for place in places]
    if not any(file.exists() for file in files):
        pytest.skip("torchtitan 0.2 is not installed")
    for name in ("torchtitan", "torchtitan.tools", "torchtitan.tools.logging"):  # these need triton
        stub = ModuleType(name)
        stub.__dict__["logger"] = logging.getLogger(name)
        monkeypatch.setitem(sys.modules, name, stub)
    spec = spec_from_file_location("job_config", files[0])
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "job_config", module)
    spec.loader.exec_module(module)
    config = module.JobConfig()
    for table, keys in torchtitan(Plan(global_batch=64, pp=2, dp=4, zero=3)).items():
        own = getattr(config, table)
        dataclasses.replace(own, **keys)  # raises for a key that is not there
        hints = get_type_hints(type(own))
        plain = {key: hints[key] for key in keys if hints[key] in (int, str, bool)}
        assert all(isinstance(keys[key], kind) for key, kind in plain.items())


def test_deepspeed_s_own_config_takes_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    config = pytest.importorskip("deepspeed.runtime.config")
    monkeypatch.setattr(config.dist, "get_rank", lambda: 0)
    written = json.loads(emitted("deepspeed", reading.load("llama3-8b"), PLAN)[0])

    class Ranks:
        """What DeepSpeed asks of model parallelism."""

        def get_data_parallel_world_size(self) -> int:
            return 8

    read = config.DeepSpeedConfig(written, mpu=Ranks())
    assert (read.train_batch_size, read.zero_config.stage) == (64, 3)


def test_a_framework_s_file_is_predicted_with_its_own_software() -> None:
    only = {"tp": ["1"], "pp": ["1"], "microbatch": ["8"]}
    words = {"gpus": 8, "global_batch": 64, "only": only, "jobs": 1, "best": 1}
    own = sim.plan("gpt2-124m", "dgx-a100-hdr", framework="deepspeed", **words)
    asked = sim.plan("gpt2-124m", "dgx-a100-hdr", stack="deepspeed", **words)
    assert own.space.stack.name == "DeepSpeed"
    assert own.recommended.step_time == pytest.approx(asked.recommended.step_time, rel=0.2)
    assert stack_of("torchtitan") == "torchtitan-compile"
