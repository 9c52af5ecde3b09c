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
from sim.hardware import stack as stacks
from sim.interface.document.answers import line
from sim.interface.frameworks.jobs import emitted, foreign, stack_of
from sim.interface.frameworks.names import NAMES
from sim.model import reading
from sim.parallel.plan import Offload, Plan

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
    plan = Plan(global_batch=64, pp=2, dp=4, zero=3, offload=Offload(optimizer=1.0, parameters=1.0))
    for table, keys in torchtitan(plan).items():
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


def test_accelerate_s_own_loader_takes_the_file(tmp_path: Path) -> None:
    config = pytest.importorskip("accelerate.commands.config.config_args")
    file = tmp_path / "config.yaml"
    plan = Plan(global_batch=64, dp=4, dp_replicate=2, zero=3, recompute="full", precision="bf16")
    file.write_text(emitted("accelerate", reading.load("llama3-8b"), plan)[0])
    read = config.load_config_from_file(str(file))
    assert read.num_processes == 8
    assert read.fsdp_config["fsdp_activation_checkpointing"] is True
    assert read.parallelism_config["parallelism_config_dp_shard_size"] == 4


WORDS: dict[str, Any] = {
    "gpus": 64,
    "global_batch": 64,
    "only": {
        "tp": ["1", "4"],
        "pp": ["1"],
        "cp": ["1"],
        "recompute": ["none"],
        "microbatch": ["1"],
    },
    "jobs": 1,
    "best": 1,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_framework_s_file_is_predicted_with_its_own_software(name: str) -> None:
    own = sim.plan("llama3-8b", "dgx-h100-ndr", framework=name, **WORDS)
    software = stacks.load(str(stack_of(name)))
    assert own.space.stack.name == software.running("bf16", where="").name
    assert line(own).endswith(f"GiB; {own.space.stack.name}")
    assert foreign(name, own.space.stack) == ""


def test_another_software_than_the_framework_s_is_said() -> None:
    megatron = stacks.load("megatron-core")
    for name in ("torchtitan", "deepspeed", "nanotron", "accelerate"):
        assert foreign(name, megatron).startswith(f"predicted with Megatron-Core; {name} runs it")
    assert foreign("megatron", stacks.load("megatron-lm-2022")) == foreign("toml", megatron) == ""
