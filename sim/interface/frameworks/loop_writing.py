"""Loops, out: how NeMo RL and verl are told to start one, as overrides on a command line.

What a config cannot say (how long answers are, what rewards wait for) is named beside it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from math import gcd
from typing import Any

from sim.config.errors import InputError
from sim.interface.frameworks.jobs import plan_of
from sim.interface.frameworks.loops import PARALLEL
from sim.parallel.plan import Plan

Table = Mapping[str, Any]


def written(form: str, setup: Any, node: int) -> tuple[str, list[str]]:
    """The command that starts a setup's scenario on nodes of so many GPUs, and what it leaves open;
    "toml" are the tables by which it differs from other divisions. Raises `InputError` for a form
    that has no loops."""
    scenario = getattr(setup, "scenario", None)
    tables = asdict(scenario) if is_dataclass(scenario) and not isinstance(scenario, type) else {}
    if "reinforcement" not in tables:
        fault = "starts loops of generation and training, and this is none"
        raise InputError(f"--emit {form}", fault, "leave --emit out")
    if form == "toml":
        plan = getattr(scenario, "plan", None)
        assert isinstance(plan, Plan), "loops have a plan"
        return _toml(tables, plan_of(plan)), [_ELSE]
    if form not in _FORMS:
        fault = "starts no loops of generation and training"
        raise InputError(f"--emit {form}", fault, "take nemo-rl, verl or toml")
    starts, keys = _FORMS[form]
    start = starts[tables["reinforcement"]["servers"]["gpus"] > 0]
    arguments = dict(keys(tables, node))
    lines = [start, *(f"    {key}={_word(value)}" for key, value in arguments.items())]
    return " \\\n".join(lines), list(_unsaid(tables))


_ELSE = "lengths, prompts and other keys on which divisions agree: put it into the scenario"


def _toml(tables: Table, plan: Table) -> str:
    import tomli_w

    loop, servers = tables["reinforcement"], tables["reinforcement"]["servers"]
    places = {"gpus": servers["gpus"]} if servers["gpus"] else {"shared": True}
    own = {key: loop[key] for key in ("staleness", "swap", "chunk", "oversample")}
    own["servers"] = {**places, "layout": {"tp": servers["layout"]["tp"]}}
    document = {"gpus": tables["gpus"], "plan": plan, "reinforcement": own}
    return str(tomli_w.dumps(document)).rstrip()


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _checkpoint(tables: Table) -> str:
    """The folder of a config, or the name that the model has here."""
    return str(tables["model"]).removesuffix("/config.json")


def _unsaid(tables: Table) -> Iterator[str]:
    loop, model = tables["reinforcement"], str(tables["model"])
    if not model.endswith("config.json"):
        yield f"its checkpoint: put it in place of {model}"
    yield "how long prompts and answers are, or where they come from"
    if loop["tools"]:
        yield "its tools"
    if loop["oversample"]:
        yield "oversample"
    if loop["reward"]["gpus"]:
        yield f"its reward model on {loop['reward']['gpus']} GPUs of its own"


def _full(plan: Table) -> bool:
    return "full" in str(plan["recompute"])


def _gpus(tables: Table) -> int:
    """GPUs of the trainer and of servers."""
    return int(tables["gpus"]) - int(tables["reinforcement"]["reward"]["gpus"])


def _pool(gpus: int, node: int) -> tuple[int, int]:
    """Nodes of a pool, and GPUs of each: all have equally many.

    >>> _pool(16, 8), _pool(6, 8), _pool(12, 8)
    ((2, 8), (1, 6), (3, 4))
    """
    each = gpus if gpus < node else gcd(gpus, node)
    return gpus // each, each


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
    yield "policy.train_micro_batch_size", plan["microbatch"]
    yield "policy.max_total_sequence_length", loop["prompt"]["cap"] + loop["answer"]["cap"]
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
    if "memory" in servers["tuning"]:
        yield f"{vllm}.gpu_memory_utilization", servers["tuning"]["memory"]
    yield "policy.generation.colocated.enabled", servers["shared"]
    if not servers["shared"]:
        nodes, each = _pool(servers["gpus"], node)
        yield "policy.generation.colocated.resources.num_nodes", nodes
        yield "policy.generation.colocated.resources.gpus_per_node", each
    nodes, each = _pool(_gpus(tables), node)
    yield "cluster.num_nodes", nodes
    yield "cluster.gpus_per_node", each


def _verl(tables: Table, node: int) -> Iterator[tuple[str, Any]]:
    plan, loop = tables["plan"], tables["reinforcement"]
    servers, actor = loop["servers"], "actor_rollout_ref.actor"
    rollout, own = "actor_rollout_ref.rollout", loop["servers"]["gpus"]
    mini = max(1, plan["global_batch"] // loop["answers"])
    yield "actor_rollout_ref.model.path", _checkpoint(tables)
    yield "data.max_prompt_length", loop["prompt"]["cap"]
    yield "data.max_response_length", loop["answer"]["cap"]
    yield "data.train_batch_size", 0 if own else loop["prompts"]
    yield f"{actor}.ppo_mini_batch_size", mini
    yield f"{actor}.use_dynamic_bsz", True
    longest = loop["prompt"]["cap"] + loop["answer"]["cap"]
    yield f"{actor}.ppo_max_token_len_per_gpu", max(loop["row"], longest)
    yield f"{actor}.use_kl_loss", loop["reference"]
    yield "actor_rollout_ref.model.enable_gradient_checkpointing", _full(plan)
    if plan["zero"] == 3:
        yield f"{actor}.strategy", "fsdp2"
    else:
        yield f"{actor}.strategy", "megatron"
        for axis, name in PARALLEL.items():
            if plan[axis] is not None:
                yield f"{actor}.megatron.{name}", plan[axis]
    yield f"{rollout}.n", loop["answers"]
    yield f"{rollout}.tensor_model_parallel_size", servers["layout"]["tp"]
    if "memory" in servers["tuning"]:
        yield f"{rollout}.gpu_memory_utilization", servers["tuning"]["memory"]
    nodes, each = _pool(_gpus(tables) - own, node)
    yield "trainer.nnodes", nodes
    yield "trainer.n_gpus_per_node", each
    if not own:
        return
    nodes, each = _pool(own, node)
    taken = loop["chunk"] or loop["prompts"]
    yield "rollout.nnodes", nodes
    yield "rollout.n_gpus_per_node", each
    yield "async_training.staleness_threshold", loop["staleness"]
    yield "async_training.require_batches", max(1, taken // mini)
    yield "async_training.trigger_parameter_sync_step", max(1, loop["prompts"] // taken)
    yield "async_training.partial_rollout", loop["swap"] == "continue"


_Keys = Callable[[Table, int], Iterator[tuple[str, Any]]]
_FORMS: Mapping[str, tuple[tuple[str, str], _Keys]] = {  # with shared GPUs, with servers' own
    "nemo-rl": (("uv run examples/run_grpo.py", "uv run examples/run_grpo.py"), _nemo),
    "verl": (
        (
            "python -m verl.trainer.main_ppo",
            "python -m verl.experimental.fully_async_policy.fully_async_main",
        ),
        _verl,
    ),
}
