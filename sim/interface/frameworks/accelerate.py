"""Hugging Face Accelerate's config (accelerate/commands/config/config_args.py, 1.15), in and out.

The config says how a script is started: FSDP2 or plain data parallelism, precision, recomputation.
The script sets the batch, so the config has it only in comments, which are read back.
"""

import re
from collections.abc import Mapping
from typing import Any

from sim.config.errors import InputError
from sim.interface.frameworks import documents
from sim.interface.frameworks.arguments import (
    BOOLEANS,
    Choice,
    Entry,
    Given,
    Keys,
    Together,
    chosen,
    data_parallel_alone,
    integer,
    no_sync,
    offload,
)
from sim.interface.frameworks.documents import Words, flattened, nested
from sim.interface.frameworks.framework import Framework

_EACH, _OFTEN = "per_device_train_batch_size", "gradient_accumulation_steps"
_CHECKPOINTS = "gradient_checkpointing"  # the model's own recomputation, without FSDP
_SCRIPT = (_EACH, _OFTEN, _CHECKPOINTS)
_COMMENT = re.compile(rf"^# ({'|'.join(_SCRIPT)}): (\S+)$", re.MULTILINE)
_TYPE, _VERSION = "distributed_type", "fsdp_config.fsdp_version"
_SHARD = "parallelism_config.parallelism_config_dp_shard_size"
_REPLICATE = "parallelism_config.parallelism_config_dp_replicate_size"
_AGAIN = "fsdp_config.fsdp_activation_checkpointing"
_RESHARD = "fsdp_config.fsdp_reshard_after_forward"


def _batch(given: Given) -> dict[str, Any]:
    return {"plan.microbatch": integer(given, _EACH, 1), "often": integer(given, _OFTEN, 1)}


def _write_batch(keys: Keys) -> Words:
    each = keys["plan.microbatch"]
    often = keys["plan.global_batch"] // (each * keys["ranks"])
    return {_EACH: (str(each),), _OFTEN: (str(often),)}


def _sharding(given: Given) -> dict[str, Any]:
    """Return the sharding. FSDP2 shards over all ranks unless `parallelism_config` gives a number
    of ranks."""
    kind = chosen(given, _TYPE, {"FSDP": 3, "MULTI_GPU": 0, "NO": 0}, "NO")
    keys: dict[str, Any] = {"plan.zero": kind}
    if kind == 3 and integer(given, _VERSION, 1) != 2:
        raise InputError(f"argument {_VERSION}", "is 1", "give the config of FSDP2")
    if _SHARD in given:
        keys["plan.dp"] = integer(given, _SHARD)
        keys["plan.dp_replicate"] = integer(given, _REPLICATE, 1)
    if "num_processes" in given:
        keys["gpus"] = integer(given, "num_processes")
    return keys


def _write_sharding(keys: Keys) -> Words:
    zero, replicas = keys["plan.zero"], keys["plan.dp_replicate"]
    if zero not in (0, 3):
        raise InputError("plan.zero", f"Accelerate has no ZeRO-{zero}", "set zero = 0 or zero = 3")
    words: Words = {
        "compute_environment": ("LOCAL_MACHINE",),
        _TYPE: ("FSDP" if zero else "MULTI_GPU",),
        "num_processes": (str(keys["ranks"]),),
    }
    if zero:
        words[_VERSION] = ("2",)
        words["fsdp_config.fsdp_auto_wrap_policy"] = ("TRANSFORMER_BASED_WRAP",)
    if replicas > 1:
        words |= {_SHARD: (str(keys["plan.dp"]),), _REPLICATE: (str(replicas),)}
    return words


def _recompute(given: Given) -> dict[str, Any]:
    again = (chosen(given, name, BOOLEANS, "false") for name in (_AGAIN, _CHECKPOINTS))
    return {"plan.recompute": "full" if any(again) else "none"}


def _write_recompute(keys: Keys) -> Words:
    rule, method = keys["plan.recompute"], keys.get("plan.recompute_method")
    if rule not in ("none", "full") or method is not None:
        fault = f"Accelerate has no {method or rule!r} recomputation"
        raise InputError("plan.recompute", fault, "set recompute = none or recompute = full")
    return {_AGAIN if keys["plan.zero"] else _CHECKPOINTS: ("true",)} if rule == "full" else {}


_TABLE: tuple[Entry, ...] = (
    Together((_EACH, _OFTEN), _batch, _write_batch),
    Together((_TYPE, _VERSION, "num_processes", _SHARD, _REPLICATE), _sharding, _write_sharding),
    Choice(
        "mixed_precision",
        "plan.precision",
        {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"},
        "no",
    ),
    Choice(_RESHARD, "plan.reshard", {"default": None, **BOOLEANS}, "default"),
    Together((_AGAIN, _CHECKPOINTS), _recompute, _write_recompute),
    offload(
        "fsdp_config.fsdp_offload_params",
        "Accelerate offloads parameters, gradients and states together",
    ),
    data_parallel_alone("not of Accelerate's FSDP"),
    no_sync("Accelerate"),
)


def _completed(keys: dict[str, Any], gpus: int) -> dict[str, Any]:
    ranks = gpus or keys.get("gpus", 0)
    if not ranks:
        raise InputError("argument num_processes", "is missing", "give --gpus")
    keys["plan.global_batch"] = keys.pop("often") * keys["plan.microbatch"] * ranks
    return keys


def _parse(text: str) -> Words:
    said = {name: (value,) for name, value in _COMMENT.findall(text)}
    return flattened(documents.parsed(text)) | said


def _render(words: Mapping[str, tuple[str, ...]]) -> str:
    script = {name: words[name] for name in _SCRIPT if name in words}
    comments = "".join(f"# {name}: {value}\n" for name, (value,) in script.items())
    return comments + documents.written(
        nested({name: value for name, value in words.items() if name not in script})
    )


FRAMEWORK = Framework(
    ending=".yaml",
    starts="accelerate launch --config_file FILE --num_machines NODES --machine_rank RANK "
    "--main_process_ip NODE0 --main_process_port 29500 SCRIPT.py",
    parse=_parse,
    render=_render,
    table=_TABLE,
    stack="accelerate",
    needs=_TYPE,
    search=(
        *("tp=1", "pp=1", "cp=1", "ep=1", "etp=1", "zero=0,3", "no_sync=no"),
        "recompute=none,full",
    ),
    completed=_completed,
    assumed=("compute_environment", "fsdp_config.fsdp_auto_wrap_policy"),
    silent={
        "": """machine_rank num_machines main_* rdzv_* same_network debug use_cpu gpu_ids
            downcast_bf16 tpu_* enable_cpu_affinity""",
        "fsdp_config": """fsdp_state_dict_type fsdp_cpu_ram_* fsdp_sync_module_states
            fsdp_use_orig_params fsdp_transformer_layer_cls_to_wrap""",
    },
)
