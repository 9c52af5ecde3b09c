"""DeepSpeed's JSON (deepspeed/runtime/config.py, zero/config.py, 0.15), in and out.

The JSON says how a job is sharded and in which precision it runs, but does not describe the model.
"""

import json
from typing import Any

from sim.config.errors import InputError
from sim.config.json_fault import json_fault
from sim.interface.frameworks.arguments import (
    BOOLEANS,
    Entry,
    Given,
    Keys,
    Together,
    Value,
    chosen,
    data_parallel_alone,
    no_sync,
    value_of,
)
from sim.interface.frameworks.documents import Words, flattened, nested
from sim.interface.frameworks.framework import Framework


def _batch(given: Given) -> dict[str, Any]:
    """Return the batch, the rows of a microbatch and the micro-steps of a step, as far as given.
    Any two of these numbers determine the third (config.py, _batch_assertion)."""
    names = {
        "whole": "train_batch_size",
        "each": "train_micro_batch_size_per_gpu",
        "often": "gradient_accumulation_steps",
    }
    found = {
        key: int(value_of(given, name, int))
        for key, name in names.items()
        if name in given and given[name] != ("auto",)
    }
    keys: dict[str, Any] = {"plan.microbatch": found.get("each", 1), "often": found.get("often")}
    return keys | ({"plan.global_batch": found["whole"]} if "whole" in found else {})


def _write_batch(keys: Keys) -> Words:
    often = keys["plan.global_batch"] // (keys["plan.microbatch"] * keys["ranks"])
    return {
        "train_batch_size": (str(keys["plan.global_batch"]),),
        "train_micro_batch_size_per_gpu": (str(keys["plan.microbatch"]),),
        "gradient_accumulation_steps": (str(often),),
    }


def _precision(given: Given) -> dict[str, Any]:
    names = ("bf16", "fp16")
    on = [n for n in names if given.get(f"{n}.enabled", ("false",))[0] in ("true", "auto")]
    if len(on) > 1 and all(given[f"{name}.enabled"] == ("true",) for name in on):
        raise InputError("argument fp16.enabled", "bf16 is enabled, too", "enable one of them")
    return {"plan.precision": on[0] if on else "fp32"}


def _write_precision(keys: Keys) -> Words:
    precision = keys["plan.precision"]
    if precision not in ("bf16", "fp16", "fp32"):
        remedy = "take bf16, fp16 or fp32"
        raise InputError("plan.precision", f"DeepSpeed has no {precision}", remedy)
    return {} if precision == "fp32" else {f"{precision}.enabled": ("true",)}


_NEAR = (
    "zero_optimization.zero_hpz_partition_size"  # zero/config.py: ranks of the secondary partition
)


def _write_near(keys: Keys) -> Words:
    axes = keys["plan.axes"]
    return {_NEAR: (str(keys["plan.dp"]),)} if axes.get("dp_hpz", 1) > 1 else {}


_CHECKPOINTS = "activation_checkpointing.cpu_checkpointing"  # activation_checkpointing/config.py


def _offload(given: Given) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for part, ours in (("optimizer", "optimizer"), ("param", "parameters")):
        places = {name: name for name in ("none", "cpu", "nvme")}
        where = chosen(given, f"zero_optimization.offload_{part}.device", places, "none")
        if where != "none":
            keys[f"plan.offload.{ours}"] = 1.0
        if where == "nvme":
            keys["plan.offload.nvme"] = True
    if chosen(given, _CHECKPOINTS, BOOLEANS, "false"):
        keys["plan.offload.activations"] = 1.0
    return keys


def _write_offload(keys: Keys) -> Words:
    key = keys["plan.offload"]
    where = "nvme" if key.nvme else "cpu"
    parts = {"optimizer": key.optimizer, "param": key.parameters}
    words: Words = {
        f"zero_optimization.offload_{part}.device": (where,)
        for part, share in parts.items()
        if share
    }
    return words | ({_CHECKPOINTS: ("true",)} if key.activations else {})


_TABLE: tuple[Entry, ...] = (
    Together(
        (*("train_batch_size", "train_micro_batch_size_per_gpu"), "gradient_accumulation_steps"),
        _batch,
        _write_batch,
    ),
    Value("zero_optimization.stage", "plan.zero", default=0),
    Together(
        (
            "zero_optimization.offload_optimizer.device",
            "zero_optimization.offload_param.device",
            _CHECKPOINTS,
        ),
        _offload,
        _write_offload,
    ),
    Together(("bf16.enabled", "fp16.enabled"), _precision, _write_precision),
    Together(
        (_NEAR,),
        lambda given: {"near": value_of(given, _NEAR, int)} if _NEAR in given else {},
        _write_near,
    ),
    data_parallel_alone("not in DeepSpeed's JSON"),
    no_sync("DeepSpeed"),
)


def _completed(keys: dict[str, Any], gpus: int) -> dict[str, Any]:
    often, each = keys.pop("often"), keys["plan.microbatch"]
    if "plan.global_batch" not in keys and not gpus:
        fault = "train_batch_size and the number of GPUs are missing"
        raise InputError("the job", fault, "give --gpus")
    product = each * (often or 1) * gpus
    whole = keys.setdefault("plan.global_batch", product)
    if often and gpus and whole != product:  # config.py, _batch_assertion
        fault = f"{whole} is not {each} at a time x {often} times x {gpus} GPUs"
        raise InputError("argument train_batch_size", fault, "correct one of the three, or --gpus")
    near = keys.pop("near", 1)
    if near > 1:
        if not gpus or gpus % near:
            fault = f"{near} does not divide {gpus or 'an unknown number of'} GPUs"
            raise InputError(f"argument {_NEAR}", fault, "correct it, or --gpus")
        if near < gpus:
            axes = {"dp_hpz": gpus // near}
            keys |= {"plan.dp": near, "plan.axes": axes, "plan.reshard": "near"}
    return keys


def _parse(text: str) -> Words:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        line, fault = json_fault(error)
        raise InputError(f"the config, line {line}", fault, "correct it there") from None
    return flattened(document)


FRAMEWORK = Framework(
    ending=".json",
    starts="TORCHRUN SCRIPT.py --deepspeed --deepspeed_config FILE",
    parse=_parse,
    render=lambda words: json.dumps(nested(words), indent=2),
    table=_TABLE,
    stack="deepspeed",
    search=("tp=1", "pp=1", "cp=1", "ep=1", "dp_replicate=1", "no_sync=no"),
    completed=_completed,
    assumed=(
        *("zero_optimization.overlap_comm", "zero_optimization.contiguous_gradients"),
        *("zero_optimization.reduce_scatter", "zero_optimization.allgather_partitions"),
        *("optimizer.type", "zero_optimization.round_robin_gradients"),
    ),
    silent={
        "": """steps_per_print gradient_clipping wall_clock_breakdown prescale_* zero_allow_*
            dump_state""",
        "optimizer.params scheduler tensorboard wandb flops_profiler aio": "*",
        "fp16": "loss* initial_* hysteresis min_* auto_cast consecutive*",
        "bf16": "immediate* check*",
        "zero_optimization": """*bucket_size stage3_* sub_group_size offload_*.pin_memory
            offload_*.nvme_path offload_*.buffer_* offload_*.fast_init""",
    },
)
