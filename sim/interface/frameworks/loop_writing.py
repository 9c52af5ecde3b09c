"""Write the command that starts a loop of generation and training (RL) in NeMo RL or verl.

The settings are overrides on the command line. Values that these frameworks cannot express (the
length of answers, tools, ...) are listed beside it.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import PurePath
from typing import Any

from sim.config.errors import InputError
from sim.interface.frameworks.documents import word
from sim.interface.frameworks.jobs import plan_of
from sim.interface.frameworks.loops import BUCKETS, ENGINES, MEGATRON_RECOMPUTES, PARALLEL
from sim.interface.frameworks.starting import machines
from sim.jobs.generation.layout import Layout
from sim.jobs.reinforcement.measured import verl_processes
from sim.jobs.reinforcement.scenario import Reinforcement, WeightTransfer
from sim.parallel.plan import Plan
from sim.scenario.scenario import plain

Table = Mapping[str, Any]


def written(form: str, setup: Any, node: int) -> tuple[str, list[str]]:
    """Return the command that starts a setup's scenario on nodes of `node` GPUs, and a list of
    values that it does not express. The form "toml" gives only those tables that differ between
    divisions of the GPUs. Raises `InputError` for a form that cannot start RL loops."""
    scenario = getattr(setup, "scenario", None)
    tables = asdict(scenario) if is_dataclass(scenario) and not isinstance(scenario, type) else {}
    if "reinforcement" not in tables:
        fault = "starts loops of generation and training, but this scenario is none"
        raise InputError(f"--emit {form}", fault, "leave --emit out")
    if form == "toml":
        plan = getattr(scenario, "plan", None)
        assert isinstance(plan, Plan), "loops have a plan"
        return _toml(tables, plan_of(plan)), [_ELSE]
    if form not in _FORMS:
        fault = "starts no loops of generation and training"
        raise InputError(f"--emit {form}", fault, "take nemo-rl, verl or toml")
    starts, keys = _FORMS[form]
    start = starts(tables)
    arguments = dict(keys(tables, node))
    words = (shlex.quote(f"{key}={word(value)}") for key, value in arguments.items())
    lines = [start, *(f"    {argument}" for argument in words)]
    return " \\\n".join(lines), list(_unsaid(form, tables))


_ELSE = "lengths, prompts and other keys on which divisions agree: put it into the scenario"


def _toml(tables: Table, plan: Table) -> str:
    import tomli_w

    loop, servers = tables["reinforcement"], tables["reinforcement"]["servers"]
    places = {"gpus": servers["gpus"]} if servers["gpus"] else {"shared": True}
    reinforcement = {key: loop[key] for key in ("staleness", "swap", "chunk", "oversample")}
    reinforcement["servers"] = {**places, "layout": {"tp": servers["layout"]["tp"]}}
    if servers["tuning"]:  # a division may have left the trainer more memory
        reinforcement["servers"]["tuning"] = servers["tuning"]
    document = {"gpus": tables["gpus"], "plan": plan, "reinforcement": reinforcement}
    return str(tomli_w.dumps(document)).rstrip()


def _checkpoint(tables: Table) -> str:
    """Return the folder of the model's config.json, or else the name of the model in `sim`."""
    model = str(tables["model"])
    is_config = PurePath(model).name == "config.json"
    return model.removesuffix("config.json").rstrip("/") or "." if is_config else model


def _unsaid(form: str, tables: Table) -> Iterator[str]:
    loop, model, plan = tables["reinforcement"], str(tables["model"]), tables["plan"]
    servers = loop["servers"]
    if not model.endswith("config.json"):
        yield f"its checkpoint: put it in place of {model}"
    yield "how long prompts and answers are, or where they come from"
    if loop["tools"]:
        yield "its tools"
    yield from _unsaid_choices(form, loop)
    if loop["reward"]["gpus"]:
        yield f"its reward model on {loop['reward']['gpus']} GPUs of its own"
    for name, usual, given in (
        ("plan", Plan(global_batch=1), plan),
        ("servers.layout", Layout(), servers["layout"]),
        ("servers.tuning", None, servers["tuning"]),
        ("weights", WeightTransfer(), loop["weights"]),
    ):
        for key, value in given.items():
            same = usual is not None and plain(getattr(usual, key)) == value
            if not same and f"{name}.{key}" not in _SAID[form]:
                yield f"{name}.{key} = {value}"
    if servers["engine"] not in (ENGINES.values() if form == "verl" else ("vllm",)):
        yield f"servers.engine = {servers['engine']}"
    if not _full(plan) and plan["recompute"] != plain(Plan(global_batch=1).recompute):
        yield "recomputation of some modules"


def _unsaid_choices(form: str, loop: Table) -> Iterator[str]:
    implied = _of_processes(form, loop)
    for key in _CHOICES:
        if key not in implied and loop[key] != plain(_USUAL[key]):
            yield f"{key} = {loop[key]}"
    if any(loop[key] != value for key, value in implied.items()):
        yield f"{', '.join(implied)}: those of {form} are in `sim import {form}` of this"
    if loop["weights"]["way"] not in _WAYS[form]:
        yield f"weights.way = {loop['weights']['way']}"


def _of_processes(form: str, loop: Table) -> Table:
    """Return the keys of a loop that follow from verl's processes, which pad prompts; {} for
    other forms."""
    if form != "verl":
        return {}
    padded, servers = loop["prompt"]["cap"] + loop["answer"]["cap"], loop["servers"]
    made = verl_processes(padded, servers["gpus"] // servers["layout"]["tp"])
    return {key: value for key, value in made.items() if key in _CHOICES}


def _engine(name: str) -> str:
    """Return verl's name of an engine, "vllm" for engines that verl does not have."""
    return next((key for key, engine in ENGINES.items() if engine == name), "vllm")


def _full(plan: Table) -> bool:
    return "full" in str(plan["recompute"])


def _gpus(tables: Table) -> int:
    """Return the number of GPUs of the trainer and the servers together."""
    return int(tables["gpus"]) - int(tables["reinforcement"]["reward"]["gpus"])


def _nemo(tables: Table, node: int) -> Iterator[tuple[str, Any]]:
    plan, loop = tables["plan"], tables["reinforcement"]
    servers, off = loop["servers"], loop["staleness"] > 0.0
    yield "grpo.num_prompts_per_step", loop["prompts"]
    yield "grpo.num_generations_per_prompt", loop["answers"]
    yield "grpo.async_grpo.enabled", off
    if off:
        yield "grpo.async_grpo.max_trajectory_age_steps", max(1, round(loop["staleness"]))
        yield "grpo.async_grpo.in_flight_weight_updates", loop["swap"] == "continue"
        again = loop["recompute"]
        yield "grpo.async_grpo.recompute_kv_cache_after_weight_updates", again
    yield "loss_fn.force_on_policy_ratio", not loop["old"]
    if not loop["reference"]:
        yield "loss_fn.reference_policy_kl_penalty", 0
    yield "policy.model_name", _checkpoint(tables)
    yield "policy.train_global_batch_size", plan["global_batch"]
    longest = loop["prompt"]["cap"] + loop["answer"]["cap"]
    yield "policy.train_micro_batch_size", plan["microbatch"]
    yield "policy.max_total_sequence_length", longest
    yield "policy.sequence_packing.enabled", True
    yield "policy.sequence_packing.train_mb_tokens", (loop["row"] or longest) * plan["microbatch"]
    yield "policy.megatron_cfg.enabled", True
    yield "policy.dtensor_cfg.enabled", False
    for axis, name in PARALLEL.items():
        if plan[axis] is not None:
            yield f"policy.megatron_cfg.{name}", plan[axis]
    yield "policy.megatron_cfg.sequence_parallel", bool(plan["sequence_parallel"])
    yield "policy.megatron_cfg.activation_checkpointing", _full(plan)
    vllm = "policy.generation.vllm_cfg"
    yield f"{vllm}.tensor_parallel_size", servers["layout"]["tp"]
    yield f"{vllm}.pipeline_parallel_size", servers["layout"]["pp"]
    if servers["layout"]["ep"] > 1:
        yield f"{vllm}.expert_parallel_size", servers["layout"]["ep"]
    if servers["layout"]["precision"] == "fp8":
        yield f"{vllm}.precision", "fp8"
    if "sequences" in servers["tuning"]:
        yield "policy.generation.vllm_kwargs.max_num_seqs", servers["tuning"]["sequences"]
    if "memory" in servers["tuning"]:
        yield f"{vllm}.gpu_memory_utilization", servers["tuning"]["memory"]
    yield "policy.generation.colocated.enabled", servers["shared"]
    if not servers["shared"]:
        nodes, each = machines(servers["gpus"], node)
        yield "policy.generation.colocated.resources.num_nodes", nodes
        yield "policy.generation.colocated.resources.gpus_per_node", each
    nodes, each = machines(_gpus(tables), node)
    yield "cluster.num_nodes", nodes
    yield "cluster.gpus_per_node", each


def _verl_start(tables: Table) -> str:
    """Return the command of verl's program, which differs for servers on GPUs of their own and for
    Megatron."""
    apart = tables["reinforcement"]["servers"]["gpus"] > 0
    program = "experimental.fully_async_policy.fully_async_main" if apart else "trainer.main_ppo"
    config = f"{'fully_async_' * apart}ppo_megatron_trainer.yaml"
    megatron = tables["plan"]["zero"] != 3
    return f"python -m verl.{program}{f' --config-path=config --config-name={config}' * megatron}"


def _verl_layout(plan: Table, actor: str) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of FSDP's groups, or of Megatron's layout."""
    ulysses = plan["axes"].get("ulysses", 1)
    if plan["zero"] == 3:
        yield f"{actor}.strategy", "fsdp2"
        yield "actor_rollout_ref.model.enable_gradient_checkpointing", _full(plan)
        if ulysses > 1:
            yield f"{actor}.ulysses_sequence_parallel_size", ulysses
        if plan["dp_replicate"] > 1:
            yield f"{actor}.fsdp_config.fsdp_size", plan["dp"] * ulysses
    else:
        yield f"{actor}.strategy", "megatron"
        if _full(plan):
            for key, value in (("granularity", "full"), ("method", "uniform"), ("num_layers", 1)):
                yield f"{MEGATRON_RECOMPUTES}_{key}", value
        for axis, name in PARALLEL.items():
            if plan[axis] is not None:
                yield f"{actor}.megatron.{name}", plan[axis]


def _verl(tables: Table, node: int) -> Iterator[tuple[str, Any]]:
    plan, loop = tables["plan"], tables["reinforcement"]
    servers, actor = loop["servers"], "actor_rollout_ref.actor"
    rollout, server_gpus = "actor_rollout_ref.rollout", loop["servers"]["gpus"]
    mini = max(1, plan["global_batch"] // loop["answers"])
    yield "actor_rollout_ref.model.path", _checkpoint(tables)
    yield "data.max_prompt_length", loop["prompt"]["cap"]
    yield "data.max_response_length", loop["answer"]["cap"]
    yield "data.train_batch_size", 0 if server_gpus else loop["prompts"]
    yield f"{actor}.ppo_mini_batch_size", mini
    yield f"{actor}.use_dynamic_bsz", True
    longest = loop["prompt"]["cap"] + loop["answer"]["cap"]
    ulysses = plan["axes"].get("ulysses", 1)
    held = -(-max(loop["row"], longest) * plan["microbatch"] // (plan["cp"] * ulysses))
    yield f"{actor}.ppo_max_token_len_per_gpu", held
    yield f"{actor}.use_kl_loss", loop["reference"]
    yield from _verl_layout(plan, actor)
    yield f"{rollout}.name", _engine(servers["engine"])
    yield f"{rollout}.n", loop["answers"]
    yield f"{rollout}.tensor_model_parallel_size", servers["layout"]["tp"]
    if "sequences" in servers["tuning"]:
        yield f"{rollout}.max_num_seqs", servers["tuning"]["sequences"]
    if "memory" in servers["tuning"]:
        yield f"{rollout}.gpu_memory_utilization", servers["tuning"]["memory"]
    nodes, each = machines(_gpus(tables) - server_gpus, node)
    yield "trainer.nnodes", nodes
    yield "trainer.n_gpus_per_node", each
    if not server_gpus:
        return
    nodes, each = machines(server_gpus, node)
    taken = loop["chunk"] or loop["prompts"]
    yield "actor_rollout_ref.hybrid_engine", False
    yield f"{rollout}.calculate_log_probs", True
    yield "rollout.nnodes", nodes
    yield "rollout.n_gpus_per_node", each
    yield "async_training.staleness_threshold", loop["staleness"]
    yield "async_training.require_batches", max(1, taken // mini)
    yield "async_training.trigger_parameter_sync_step", max(1, loop["prompts"] // taken)
    yield "async_training.partial_rollout", loop["swap"] == "continue"
    yield "async_training.use_rollout_log_probs", not loop["old"]
    yield BUCKETS, loop["weights"]["way"] == "buckets"


_Keys = Callable[[Table, int], Iterator[tuple[str, Any]]]
_PLAN = "global_batch microbatch tp pp cp ep etp dp sequence_parallel recompute zero"
_OF_WAYS = ("weights.way", "weights.tensor")
_WAYS = {"nemo-rl": ("broadcast",), "verl": ("broadcast", "buckets")}
# Keys of a loop that change its seconds, and for which no framework has an argument.
_CHOICES = (
    "oversample", "surplus", "filtered", "concurrent", "deal", "collected", "controller",
    "offload", "parked",
)  # fmt: skip
_USUAL = {key.name: key.default for key in fields(Reinforcement)}
_SAID: Mapping[str, set[str]] = {  # keys that a form writes, or that its framework has by default
    "nemo-rl": {
        *(f"plan.{key}" for key in _PLAN.split()),
        *(f"servers.layout.{key}" for key in ("tp", "pp", "ep", "dp", "precision")),
        *(f"servers.tuning.{key}" for key in ("memory", "sequences")),
        *_OF_WAYS,
    },
    "verl": {
        *(f"plan.{key}" for key in (*_PLAN.split(), "dp_replicate", "axes")),
        "servers.layout.tp",
        *(f"servers.tuning.{key}" for key in ("memory", "sequences")),
        *_OF_WAYS,
    },
}
_FORMS: Mapping[str, tuple[Callable[[Table], str], _Keys]] = {
    "nemo-rl": (lambda tables: "uv run examples/run_grpo.py", _nemo),
    "verl": (_verl_start, _verl),
}
