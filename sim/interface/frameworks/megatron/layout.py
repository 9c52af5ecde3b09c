"""Megatron-LM's arguments for the layout of a job, its recomputation and its precision."""

from typing import Any

from sim.config.errors import InputError
from sim.interface.frameworks.arguments import (
    Choice,
    Entry,
    Flag,
    Given,
    Keys,
    Together,
    Value,
    chosen,
    integer,
    value_of,
)
from sim.interface.frameworks.megatron import pipeline_layout
from sim.parallel.schedules.flush import group_size

_REPLICAS = 1 << 16  # more than any cluster has
_GROUP = "microbatch-group-size-per-virtual-pipeline-stage"
_SHARDING = {"optim": 1, "optim_grads": 2, "optim_grads_params": 3}


# `--fp8-recipe` (megatron/core/fp8_utils.py, get_fp8_recipe).
_RECIPES = {
    "delayed": "delayed-scaling",
    "tensorwise": "current-scaling",
    "blockwise": "blockwise",
    "mxfp8": "mxfp8",
}


_FP4 = {"nvfp4": "nvfp4"}  # `--fp4-recipe` (megatron/core/enums.py, Fp4Recipe)


def _chunks(given: Given) -> dict[str, Any]:
    stages = integer(given, "pipeline-model-parallel-size", 1)
    if "num-layers-per-virtual-pipeline-stage" in given:
        each = stages * integer(given, "num-layers-per-virtual-pipeline-stage", 1)
        count = integer(given, "num-layers") // max(each, 1)
    else:
        count = integer(given, "num-virtual-stages-per-pipeline-rank", 1)
    keys: dict[str, Any] = {"plan.schedule": "1f1b"}
    if count > 1:
        keys = {"plan.interleave": count, "plan.schedule": "interleaved"}
    return keys | ({"group": integer(given, _GROUP)} if _GROUP in given else {})


def completed(keys: dict[str, Any], gpus: int) -> dict[str, Any]:
    """Return the keys without `group`, the size of groups of interleaved microbatches. Raises
    `InputError` for a size that the schedule of `sim` does not have."""
    size, microbatch = keys.pop("group", None), keys.get("plan.microbatch", 1)
    if size is None or keys.get("plan.interleave", 1) == 1 or microbatch < 1:
        return keys  # without interleaving Megatron-LM ignores the size
    stages, tp, cp = (keys.get(f"plan.{axis}", 1) for axis in ("pp", "tp", "cp"))
    samples = keys.get("plan.global_batch", 1) // microbatch
    most = min(samples // stages, _REPLICAS)
    replicas = range(1, most + 1)  # possible numbers, if GPUs are unknown
    counts = [gpus // (stages * tp * cp)] if gpus else replicas
    need = {_group(stages, keys, max(count, 1)) for count in counts} or {stages}
    if size not in need:
        remedy = f"give {min(need)} or leave it out"
        raise InputError(f"argument {_GROUP}", f"{size} is not what is simulated", remedy)
    return keys


def _group(stages: int, keys: Keys, ranks: int) -> int:
    """Return the microbatches in a group of the interleaved schedule. By default Megatron-LM takes
    as many microbatches as there are stages (megatron/core/model_parallel_config.py)."""
    microbatches = keys.get("plan.global_batch", 1) // (keys.get("plan.microbatch", 1) * ranks)
    return group_size(stages, max(microbatches, stages))


def _write_chunks(keys: Keys) -> dict[str, tuple[str, ...]]:
    if keys.get("plan.pp", 1) == 1:
        return {}
    schedule, count = keys.get("plan.schedule", "1f1b"), keys.get("plan.interleave", 1)
    if schedule not in ("1f1b", "interleaved"):
        raise InputError("plan.schedule", f"Megatron-LM has no {schedule!r}", "set schedule = 1f1b")
    if count == 1:
        return {}
    words: dict[str, tuple[str, ...]] = {}
    if keys.get("plan.layers") is None:  # otherwise `pipeline_layout` writes the chunks
        words["num-virtual-stages-per-pipeline-rank"] = (str(count),)
    if (group := _group(keys["plan.pp"], keys, keys["ranks"])) > keys["plan.pp"]:
        words[_GROUP] = (str(group),)
    return words


_NEAR = (
    "tp-cp-dp-pp",
    "tp-cp-pp-dp",
)  # neighbouring groups are replicas, or stages (use-tp-pp-dp-mapping)


def _order(given: Given) -> dict[str, Any]:
    return {"plan.order": _NEAR[1]} if "use-tp-pp-dp-mapping" in given else {}


def _write_order(keys: Keys) -> dict[str, tuple[str, ...]]:
    order = keys.get("plan.order", _NEAR[0])
    if order not in _NEAR:
        raise InputError("plan.order", f"Megatron-LM has no {order}", f"take {' or '.join(_NEAR)}")
    return {"use-tp-pp-dp-mapping": ()} if order == _NEAR[1] else {}


def _zero(given: Given) -> dict[str, Any]:
    if "use-megatron-fsdp" in given or "use-custom-fsdp" in given:
        values = {**_SHARDING, "no_shard": 0}
        name = "data-parallel-sharding-strategy"
        return {"plan.zero": chosen(given, name, values, "no_shard")}
    sharded = "use-distributed-optimizer" in given or "use-torch-fsdp2" in given
    return {"plan.zero": 3 if "use-torch-fsdp2" in given else int(sharded)}


def _write_zero(keys: Keys) -> dict[str, tuple[str, ...]]:
    stage = keys.get("plan.zero", 0)
    if stage <= 1:
        return {"use-distributed-optimizer": ()} if stage else {}
    word = next(word for word, value in _SHARDING.items() if value == stage)
    return {"use-megatron-fsdp": (), "data-parallel-sharding-strategy": (word,)}


def _recompute(given: Given) -> dict[str, Any]:
    values = {"": "", "full": "full", "selective": "selective"}
    word = chosen(given, "recompute-granularity", values, "")
    if word == "full":
        keys: dict[str, Any] = {"plan.recompute": "full"}
        if _each_layer(given):
            return keys
        if "recompute-method" in given:
            keys["plan.recompute_method"] = value_of(given, "recompute-method", str)
            keys["plan.recompute_layers"] = integer(given, "recompute-num-layers", 1)
        return keys
    if word or "recompute-activations" in given:
        modules = list(given.get("recompute-modules", ()))
        return {"plan.recompute": modules or "selective"}
    return {}


def _each_layer(given: Given) -> bool:
    """Whether each layer is recomputed by itself: uniform groups of a single layer."""
    uniform = given.get("recompute-method") == ("uniform",)
    return uniform and integer(given, "recompute-num-layers", 1) == 1


def _write_recompute(keys: Keys) -> dict[str, tuple[str, ...]]:
    rule = keys.get("plan.recompute", "none")
    names = (rule,) if isinstance(rule, str) else tuple(rule)
    if names == ("none",):
        return {}
    if names == ("full",):
        method, count = keys.get("plan.recompute_method"), keys.get("plan.recompute_layers")
        return {
            "recompute-granularity": ("full",),
            "recompute-method": (method or "uniform",),
            "recompute-num-layers": (str(count or 1),),
        }
    modules = {} if names == ("selective",) else {"recompute-modules": names}
    return {"recompute-granularity": ("selective",), **modules}


def _precision(given: Given) -> dict[str, Any]:
    if "fp4-format" in given:
        return {"plan.precision": "fp4", "plan.recipe": chosen(given, "fp4-recipe", _FP4, "nvfp4")}
    if "fp8-format" in given or "fp8" in given:
        recipe = chosen(given, "fp8-recipe", _RECIPES, "delayed")
        return {"plan.precision": "fp8", "plan.recipe": recipe}
    return {"plan.precision": next((name for name in ("bf16", "fp16") if name in given), "fp32")}


def _write_precision(keys: Keys) -> dict[str, tuple[str, ...]]:
    precision = keys.get("plan.precision", "bf16")
    if precision == "fp32":
        return {}
    if precision in ("bf16", "fp16"):
        return {precision: ()}
    if precision == "fp4" and (keys.get("plan.recipe") or "nvfp4") in _FP4:
        return {"bf16": (), "fp4-format": ("e2m1",), "fp4-recipe": ("nvfp4",)}
    recipe = keys.get("plan.recipe") or "current-scaling"
    word = next((word for word, value in _RECIPES.items() if value == recipe), None)
    if precision != "fp8" or word is None:
        fault = f"Megatron-LM has no {f'recipe {recipe}' if precision == 'fp8' else precision}"
        raise InputError("plan.precision", fault, "take bf16, fp16 or fp8")
    return {"bf16": (), "fp8-format": ("hybrid",), "fp8-recipe": (word,)}


_CONTEXTS = {"p2p": "ring", "a2a": "ulysses", "allgather": "all-gather"}


def _context(given: Given) -> dict[str, Any]:
    """Return the exchange of context parallelism, which must be the same for all layers."""
    if "cp-comm-type" not in given:
        return {}
    if len(ways := set(given["cp-comm-type"])) > 1:
        raise InputError("argument cp-comm-type", f"{len(ways)} ways are not known", "give one")
    return {"plan.context": chosen({"cp-comm-type": (*ways,)}, "cp-comm-type", _CONTEXTS, "p2p")}


def _write_context(keys: Keys) -> dict[str, tuple[str, ...]]:
    way = keys.get("plan.context")
    if way is None or keys.get("plan.cp", 1) == 1:
        return {}
    word = next((word for word, value in _CONTEXTS.items() if value == way), None)
    if word is None:
        raise InputError("plan.context", f"Megatron-LM has no {way}", "set context = ring")
    return {"cp-comm-type": (word,)}


# The choices of a search that Megatron-LM's arguments can express.
SEARCH = ("schedule=1f1b,interleaved", "zero=0,1", "dp_replicate=1", "offload=none")

LAYOUT: tuple[Entry, ...] = (
    Value("tensor-model-parallel-size", "plan.tp", default=1),
    Value("pipeline-model-parallel-size", "plan.pp", default=1),
    Value("context-parallel-size", "plan.cp", default=1),
    Together(("cp-comm-type",), _context, _write_context),
    Together(
        (
            *("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"),
            _GROUP,
        ),
        _chunks,
        _write_chunks,
    ),
    Together((pipeline_layout.ARGUMENT,), pipeline_layout.read, pipeline_layout.write),
    Together(("use-tp-pp-dp-mapping",), _order, _write_order),
    Value("micro-batch-size", "plan.microbatch"),
    Value("global-batch-size", "plan.global_batch"),
    Flag("sequence-parallel", "plan.sequence_parallel"),
    Together(
        (
            *("use-distributed-optimizer", "use-megatron-fsdp", "use-custom-fsdp"),
            *("data-parallel-sharding-strategy", "use-torch-fsdp2"),
        ),
        _zero,
        _write_zero,
    ),
    Together(
        (
            *("recompute-activations", "recompute-granularity", "recompute-method"),
            *("recompute-num-layers", "recompute-modules"),
        ),
        _recompute,
        _write_recompute,
    ),
    Together(
        (*("bf16", "fp16", "fp8-format", "fp8", "fp8-recipe", "fp4-format", "fp4-recipe"),),
        _precision,
        _write_precision,
    ),
    Choice(
        "optimizer",
        "plan.optimizer",
        values={"adam": "adam", "sgd": "sgd", "muon": "muon"},
        default="adam",
    ),
    Flag("defer-embedding-wgrad-compute", "plan.defer_embedding_wgrad_compute", off=None),
    *(
        Flag(
            f"account-for-{end}-in-pipeline-split",
            f"plan.account_for_{end}_in_pipeline_split",
            off=None,
        )
        for end in ("embedding", "loss")
    ),
    Flag("tp-comm-overlap", "plan.tp_comm_overlap", off=None),
    Flag("overlap-grad-reduce", "stack.overlap_gradients"),
    Flag("overlap-param-gather", "stack.overlap_gather"),
)
