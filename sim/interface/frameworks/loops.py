"""Read configs of reinforcement learning: NeMo RL's YAML (examples/configs) and verl's overrides or
YAML (verl/trainer/config). A config becomes a `[plan]` and a `[reinforcement]` table.

No config gives the mean length of answers. Half of the longest answer is assumed, with a note.
"""

import re
from collections.abc import Mapping
from typing import Any

from sim.config.errors import InputError
from sim.interface.frameworks import overrides
from sim.interface.frameworks.arguments import Given, Keys, Together, integer, value_of
from sim.interface.frameworks.documents import Words
from sim.interface.frameworks.framework import Base, Framework
from sim.jobs.reinforcement.measured import verl_processes
from sim.model.reading import load

_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_LOOP, _SERVERS, _LAYOUT = "reinforcement", "reinforcement.servers", "reinforcement.servers.layout"
_FSDP = "torchtitan-eager"  # the stack of FSDP2 without a compiler
_NO_FILE = "NAME"  # an argument that no config has, so that `base` always gives the model
_MODELS = {
    "llama-3.1-8b": "llama3-8b",
    "llama-3.1-70b": "llama3-70b",
    "llama-3.2-1b": "llama3.2-1b",
    "llama-3.2-3b": "llama3.2-3b",
    "qwen2.5-7b": "qwen2.5-7b",
    "qwen2.5-math-7b": "qwen2.5-7b",
    "qwen3-32b": "qwen3-32b",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
    "qwen3-235b-a22b": "qwen3-235b-a22b",
    "deepseek-v3": "deepseek-v3",
    "moonlight-16b-a3b": "moonlight-16b-a3b",
}
_SPREAD = {"law": "lognormal", "sigma": 0.6, "correlation": 0.5}


def _words(text: str) -> Words:
    """Return the values of YAML or of overrides on a command line, with references resolved."""
    words = overrides.stated(text)
    return {name: _settled(word, words) for name, word in words.items()}


def _settled(word: tuple[str, ...], words: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return a value, or the value of the key to which it refers.

    >>> _settled(("${policy.length}",), {"policy.length": ("4096",)})
    ('4096',)
    """
    for _ in range(4):
        match = _REFERENCE.fullmatch(word[0]) if len(word) == 1 else None
        if match is None or match[1] not in words:
            break
        word = words[match[1]]
    return word


def _true(given: Given, name: str, default: bool = False) -> bool:
    word = given.get(name, (str(default).lower(),))
    return word[:1] == ("true",)


def _share(given: Given, name: str, default: float) -> float:
    return float(value_of(given, name, float)) if name in given else default


def _of_ours(called: str) -> str:
    """Return the name in models/ of the model that a checkpoint is named after, or "".

    >>> _of_ours("Qwen/Qwen3-30B-A3B-Base"), _of_ours("${MODEL_PATH:-/x/Qwen2.5-Math-7B}")
    ('qwen3-30b-a3b', 'qwen2.5-7b')
    """
    names = _MODELS | {ours: ours for ours in _MODELS.values()}
    found = [name for name in names if name in called.lower()]
    return names[max(found, key=len)] if found else ""


def _lengths(prompt: int, answer: int) -> dict[str, Any]:
    half = max(answer // 2, 1)
    return {
        f"{_LOOP}.prompt": {"law": "constant", "value": min(prompt, 256), "cap": prompt},
        f"{_LOOP}.answer": {**_SPREAD, "mean": half, "cap": answer},
    }


_ASSUMED = "no config gives the mean length of answers: half of the longest answer is assumed"


def _refused(keys: Keys) -> str:
    fault = "starts loops of generation and training, and no plan alone"
    raise InputError("--emit", fault, "name a scenario with [reinforcement] as the model")


def _without_drafts(given: Given, name: str) -> None:
    """Raise `InputError` if speculative decoding is configured."""
    for key in given:
        drafts = "speculative" in key or (key.endswith("mtp.enable") and _true(given, key))
        if drafts and given[key] not in ((), ("null",), ("none",)):
            fault = "speculative decoding is not simulated: servers write a token a step"
            raise InputError(f"{name}, {key}", fault, "leave it out to see the loop without it")


# --- NeMo RL --------------------------------------------------------------------------------------

_P, _M, _D = "policy", "policy.megatron_cfg", "policy.dtensor_cfg"
_G, _V = "policy.generation", "policy.generation.vllm_cfg"
_SEQUENCES = f"{_G}.vllm_kwargs.max_num_seqs"
PARALLEL = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
}


def _nemo_plan(given: Given) -> dict[str, Any]:
    """Return the keys of Megatron's layout, or of DTensor's (FSDP2 with tensor parallelism)."""
    keys: dict[str, Any] = {
        "plan.global_batch": integer(given, f"{_P}.train_global_batch_size", 512),
        "plan.microbatch": integer(given, f"{_P}.train_micro_batch_size", 4),
    }
    megatron = _true(given, f"{_M}.enabled")
    home = _M if megatron else _D
    if megatron:
        sizes = {axis: integer(given, f"{_M}.{name}", 1) for axis, name in PARALLEL.items()}
        keys["plan.zero"] = int(_true(given, f"{_M}.optimizer.use_distributed_optimizer", True))
        keys |= _ends(given, sizes["pp"])
    else:
        names = {"tp": "tensor_parallel_size", "cp": "context_parallel_size"}
        sizes = {axis: integer(given, f"{_D}.{name}", 1) for axis, name in names.items()}
        keys |= {"plan.zero": 3, "software": _FSDP}
    keys |= {f"plan.{axis}": size for axis, size in sizes.items() if size > 1}
    if _true(given, f"{home}.sequence_parallel") and sizes["tp"] > 1:
        keys["plan.sequence_parallel"] = True
    if _true(given, f"{home}.activation_checkpointing"):
        keys["plan.recompute"] = "full"
    return keys


def _ends(given: Given, stages: int) -> dict[str, Any]:
    """Return the layers of each stage, if the first and the last stage have their own number."""
    first, last = (integer(given, f"{_M}.num_layers_in_{end}_pipeline_stage") for end in _END)
    ours = _of_ours(" ".join(given.get(f"{_P}.model_name", ())))
    if not (first and last and ours) or stages < 3:
        return {}
    middle = (load(ours).layers - first - last) // (stages - 2)
    return {"plan.layers": [first, *[middle] * (stages - 2), last]}


_END = ("first", "last")


def _nemo_loop(given: Given) -> dict[str, Any]:
    most = integer(given, f"{_P}.max_total_sequence_length", 512)
    prompts = integer(given, "grpo.num_prompts_per_step", 32)
    answers = integer(given, "grpo.num_generations_per_prompt", 16)
    off = _true(given, "grpo.async_grpo.enabled")
    flying = off and _true(given, "grpo.async_grpo.in_flight_weight_updates")
    prompt = min(max(most // 4, 1), integer(given, "data.max_input_seq_length", most))
    fresh = _true(given, "loss_fn.force_on_policy_ratio")
    keys: dict[str, Any] = {
        f"{_LOOP}.prompts": prompts,
        f"{_LOOP}.answers": answers,
        f"{_LOOP}.reference": _share(given, "loss_fn.reference_policy_kl_penalty", 0.01) > 0.0,
        f"{_LOOP}.old": not fresh,
        f"{_LOOP}.row": most,
        **_lengths(prompt, most - prompt),
    }
    if off:
        age = integer(given, "grpo.async_grpo.max_trajectory_age_steps", 1)
        keys[f"{_LOOP}.staleness"] = float(age)
    if flying:
        again = _true(given, "grpo.async_grpo.recompute_kv_cache_after_weight_updates")
        keys |= {f"{_LOOP}.swap": "continue", f"{_LOOP}.recompute": again}
    return keys


def _ranks(given: Given, argument: str, default: int = 1) -> int:
    """Return the number of ranks in an argument. Raises `InputError` if it is below 1."""
    ranks = integer(given, argument, default)
    if ranks < 1:
        raise InputError(f"argument {argument}", f"{ranks} ranks", "give 1 or more")
    return ranks


def _nemo_servers(given: Given) -> dict[str, Any]:
    each, nodes = (integer(given, f"cluster.{name}", 1) for name in ("gpus_per_node", "num_nodes"))
    tp, ep = (_ranks(given, f"{_V}.{name}_parallel_size") for name in ("tensor", "expert"))
    keys: dict[str, Any] = {
        "gpus": each * nodes,
        f"{_SERVERS}.tuning.memory": _share(given, f"{_V}.gpu_memory_utilization", 0.6),
        f"{_LAYOUT}.tp": tp,
        f"{_LAYOUT}.pp": integer(given, f"{_V}.pipeline_parallel_size", 1),
    }
    if ep > 1:  # vLLM: EP = DP x TP
        keys |= {f"{_LAYOUT}.ep": ep, f"{_LAYOUT}.dp": max(ep // tp, 1)}
    if given.get(f"{_V}.precision") == ("fp8",):
        keys[f"{_LAYOUT}.precision"] = "fp8"
    if _SEQUENCES in given:
        keys[f"{_SERVERS}.tuning.sequences"] = integer(given, _SEQUENCES)
    if _true(given, f"{_G}.colocated.enabled", True):
        return keys | {f"{_SERVERS}.shared": True}
    server_nodes = integer(given, f"{_G}.colocated.resources.num_nodes", 1)
    of = integer(given, f"{_G}.colocated.resources.gpus_per_node", each)
    return keys | {f"{_SERVERS}.gpus": server_nodes * of}


def _nemo_base(given: Given) -> Base:
    _without_drafts(given, "NeMo RL")
    called = " ".join(given.get(f"{_P}.model_name", ()))
    notes = [_ASSUMED]
    if "defaults" in given:
        file = " ".join(given["defaults"])
        notes.append(
            f"values of {file} are not read, only those of grpo_math_1B.yaml; give one whole YAML"
        )
    if not _true(given, f"{_P}.sequence_packing.enabled", True):
        notes.append("rows are packed in the simulation, but padded in this config")
    if _true(given, "grpo.use_dynamic_sampling"):
        notes.append("set reinforcement.filtered: no config says how many groups are dropped")
    return Base(like=_of_ours(called), called=called, notes=tuple(notes))


NEMO_RL = Framework(
    parse=_words,
    render=_refused,
    table=(
        Together(
            (
                *(f"{_P}.train_{size}_batch_size" for size in ("global", "micro")),
                *(f"{home}.{key}" for home in (_M, _D) for key in ("enabled", "sequence_parallel")),
                *(f"{home}.activation_checkpointing" for home in (_M, _D)),
                *(f"{_M}.{name}" for name in PARALLEL.values()),
                *(f"{_M}.num_layers_in_{end}_pipeline_stage" for end in _END),
                *(f"{_D}.{name}_parallel_size" for name in ("tensor", "context")),
                f"{_M}.optimizer.use_distributed_optimizer",
            ),
            _nemo_plan,
        ),
        Together(
            (
                *("grpo.num_prompts_per_step", "grpo.num_generations_per_prompt"),
                *("grpo.async_grpo.enabled", "grpo.async_grpo.max_trajectory_age_steps"),
                "grpo.async_grpo.in_flight_weight_updates",
                "grpo.async_grpo.recompute_kv_cache_after_weight_updates",
                *(f"{_P}.max_total_sequence_length", "data.max_input_seq_length"),
                *("loss_fn.reference_policy_kl_penalty", "loss_fn.force_on_policy_ratio"),
                *(f"{_P}.sequence_packing.enabled", "grpo.use_dynamic_sampling"),
            ),
            _nemo_loop,
        ),
        Together(
            (
                *("cluster.gpus_per_node", "cluster.num_nodes", f"{_V}.precision"),
                *(f"{_V}.{name}_parallel_size" for name in ("tensor", "pipeline", "expert")),
                *(f"{_V}.gpu_memory_utilization", f"{_G}.colocated.enabled", _SEQUENCES),
                *(f"{_G}.colocated.resources.{n}" for n in ("num_nodes", "gpus_per_node")),
            ),
            _nemo_servers,
        ),
    ),
    stack="megatron-core",
    needs=_NO_FILE,
    base=_nemo_base,
    assumed=("defaults", f"{_P}.model_name", f"{_P}.precision"),
    silent={
        "": "defaults",
        "checkpointing logger data_plane data env.math": "*",
        "grpo": """max_num_* val_* max_val_* normalize_rewards use_leave_one_out_baseline seed
            stop_at_* overlong_filtering advantage_clip_* adv_estimator.* reward_* async_grpo.max_g*
            invalid_* malformed_* seq_logprob_* dynamic_sampling_* max_num_epochs""",
        "loss_fn": "* !reference_policy_kl_penalty !force_on_policy_ratio",
        _P: """tokenizer.* hf_config_overrides.* optimizer.* scheduler.* max_grad_norm
            make_sequence_length_* generation_batch_size dynamic_batching.* sequence_packing.*
            logprob_batch_size""",
        _M: """optimizer.* moe_grouped_gemm scheduler.* *_fusion moe_router_* moe_per_layer_*
            empty_unused_* env_vars.* distributed_data_parallel_config.* fp8_cfg.enabled defer_*
            mtp_num_layers checkpoint.*""",
        _G: "temperature top_* stop_* max_new_tokens backend port_* val_*",
        f"{_G}.vllm_kwargs": "moe_backend compilation_config.*",
        _V: "async_engine max_model_len enforce_eager load_format skip_* use_tqdm enable_vllm_*",
        "cluster": "segment_size master_*",
    },
)


# --- verl -----------------------------------------------------------------------------------------

_A = "actor_rollout_ref.actor"
_R = "actor_rollout_ref.rollout"
_TP = f"{_R}.tensor_model_parallel_size"
MEGATRON_RECOMPUTES = f"{_A}.megatron.override_transformer_config.recompute"
RULES, _OF_RECOMPUTES = ("full", "selective"), ("granularity", "method", "num_layers")
BUCKETS = "async_training.checkpoint_engine.enable"
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}


def _verl_plan(given: Given) -> dict[str, Any]:
    """Return the keys of FSDP's groups, or of Megatron's layout."""
    each = integer(given, f"{_R}.n", 1)
    keys: dict[str, Any] = {
        "plan.global_batch": each * integer(given, f"{_A}.ppo_mini_batch_size", 256),
        "plan.microbatch": 1,
    }
    if given.get(f"{_A}.strategy", ("fsdp",)) == ("megatron",) or f"{_A}.megatron.{_MP}" in given:
        sizes = {
            axis: integer(given, f"{_A}.megatron.{name}", 1) for axis, name in PARALLEL.items()
        }
        keys["plan.zero"] = 1
        keys["plan.sequence_parallel"] = sizes["tp"] > 1
        if (rule := " ".join(given.get(f"{MEGATRON_RECOMPUTES}_granularity", ()))) in RULES:
            keys["plan.recompute"] = rule
    else:
        if _true(given, "actor_rollout_ref.model.enable_gradient_checkpointing", True):
            keys["plan.recompute"] = "full"
        sizes = {}
        keys |= {"plan.zero": 3, "software": _FSDP}
        group = integer(given, f"{_A}.fsdp_config.fsdp_size", -1)
        ulysses = _ranks(given, f"{_A}.ulysses_sequence_parallel_size")
        ranks = _trainers(given)
        if ulysses > 1:
            keys["plan.axes"] = {"ulysses": ulysses}
        if 0 < group < ranks:
            keys |= {"plan.dp": max(group // ulysses, 1), "plan.dp_replicate": ranks // group}
    return keys | {f"plan.{axis}": size for axis, size in sizes.items() if size > 1}


_MP = PARALLEL["tp"]


def _trainers(given: Given) -> int:
    return integer(given, "trainer.nnodes", 1) * integer(given, "trainer.n_gpus_per_node", 8)


def _own_servers(given: Given) -> int:
    """Return the number of GPUs of servers that have GPUs of their own."""
    nodes = integer(given, "rollout.nnodes", 0)
    return nodes * integer(given, "rollout.n_gpus_per_node", 8)


def _verl_loop(given: Given) -> dict[str, Any]:
    prompt = integer(given, "data.max_prompt_length", 512)
    answer = integer(given, "data.max_response_length", 512)
    mini = integer(given, f"{_A}.ppo_mini_batch_size", 256)
    taken = mini * integer(given, "async_training.require_batches", 1)
    often = integer(given, "async_training.trigger_parameter_sync_step", 4)
    off = "async_training.staleness_threshold" in given
    divided = integer(given, f"{_A}.ulysses_sequence_parallel_size", 1)
    divided *= integer(given, f"{_A}.megatron.{PARALLEL['cp']}", 1)
    row = integer(given, f"{_A}.ppo_max_token_len_per_gpu", prompt + answer) * divided
    references = ("algorithm.use_kl_in_reward", f"{_A}.use_kl_loss")
    servers = _own_servers(given) // _ranks(given, _TP, 2)
    processes = verl_processes(prompt + answer, servers if off else 0)
    keys: dict[str, Any] = {
        f"{_LOOP}.prompts": taken * often if off else integer(given, "data.train_batch_size", 1024),
        f"{_LOOP}.answers": integer(given, f"{_R}.n", 1),
        **{f"{_LOOP}.{key}": value for key, value in processes.items()},
        f"{_LOOP}.row": max(row, prompt + answer),
        f"{_LOOP}.reference": any(_true(given, name) for name in references),
        f"{_LOOP}.old": not (off and _true(given, "async_training.use_rollout_log_probs", True)),
        **_lengths(prompt, answer),
    }
    if off:
        partial = _true(given, "async_training.partial_rollout")
        keys |= {
            f"{_LOOP}.chunk": taken,
            f"{_LOOP}.staleness": _share(given, "async_training.staleness_threshold", 0.0),
            f"{_LOOP}.swap": "continue" if partial else "drain",
        }
        if _true(given, BUCKETS, True):
            keys |= {f"{_LOOP}.weights.way": "buckets", f"{_LOOP}.weights.tensor": 0.0}
    return keys


def _verl_servers(given: Given) -> dict[str, Any]:
    """Return the keys of the servers. They share the trainer's GPUs unless `rollout` has nodes of
    its own."""
    keys: dict[str, Any] = {
        f"{_SERVERS}.tuning.memory": _share(given, f"{_R}.gpu_memory_utilization", 0.5),
        f"{_LAYOUT}.tp": _ranks(given, _TP, 2),
    }
    if (engine := " ".join(given.get(f"{_R}.name", ()))) in ENGINES:
        keys[f"{_SERVERS}.engine"] = ENGINES[engine]
    if f"{_R}.max_num_seqs" in given:
        keys[f"{_SERVERS}.tuning.sequences"] = integer(given, f"{_R}.max_num_seqs")
    if server_gpus := _own_servers(given):
        return keys | {"gpus": _trainers(given) + server_gpus, f"{_SERVERS}.gpus": server_gpus}
    return keys | {"gpus": _trainers(given), f"{_SERVERS}.shared": True}


def _verl_base(given: Given) -> Base:
    _without_drafts(given, "verl")
    called = " ".join(given.get("actor_rollout_ref.model.path", ()))
    return Base(like=_of_ours(called), called=called, notes=(_ASSUMED,))


VERL = Framework(
    parse=_words,
    render=_refused,
    table=(
        Together(
            (
                *(f"{_A}.ppo_mini_batch_size", f"{_A}.strategy", f"{_A}.fsdp_config.fsdp_size"),
                *(f"{_A}.megatron.{name}" for name in PARALLEL.values()),
                f"{_A}.ulysses_sequence_parallel_size",
                "actor_rollout_ref.model.enable_gradient_checkpointing",
                *(f"{MEGATRON_RECOMPUTES}_{key}" for key in _OF_RECOMPUTES),
                *("trainer.nnodes", "trainer.n_gpus_per_node"),
            ),
            _verl_plan,
        ),
        Together(
            (
                *("data.max_prompt_length", "data.max_response_length", "data.train_batch_size"),
                *(f"{_R}.n", f"{_A}.ppo_max_token_len_per_gpu", f"{_A}.use_kl_loss"),
                *("algorithm.use_kl_in_reward", "async_training.require_batches"),
                "async_training.trigger_parameter_sync_step",
                *("async_training.staleness_threshold", "async_training.partial_rollout"),
                *("async_training.use_rollout_log_probs", BUCKETS),
            ),
            _verl_loop,
        ),
        Together(
            (
                *(f"{_R}.gpu_memory_utilization", _TP, f"{_R}.max_num_seqs", f"{_R}.name"),
                *("rollout.nnodes", "rollout.n_gpus_per_node"),
            ),
            _verl_servers,
        ),
    ),
    stack="megatron-core",
    needs=_NO_FILE,
    base=_verl_base,
    assumed=("actor_rollout_ref.model.path", f"{_A}.use_dynamic_bsz", f"{_R}.name", f"{_R}.mode"),
    silent={
        "": "config-path config-name critic.strategy",
        "reward_model custom_reward_function trainer": "*",
        "data": "*_files *_key truncation return_raw_chat filter_* shuffle seed gen_batch_size",
        "algorithm": "* !use_kl_in_reward",
        "rollout": "total_* test_freq",
        "actor_rollout_ref.model": "use_remove_padding override_config.* use_fused_kernels",
        _A: """optim.* clip_* grad_clip loss_agg_mode entropy_coeff kl_loss_* use_torch_compile
            ppo_micro_batch_size_per_gpu megatron.use_* megatron.override_transformer_config.*""",
        "actor_rollout_ref.ref": "*",
        _R: """temperature top_* val_kwargs.* log_prob_* calculate_log_probs free_cache_engine
            enable_chunked_prefill max_num_batched_tokens enforce_eager""",
        "actor_rollout_ref": "hybrid_engine nccl_timeout",
    },
)  # fmt: skip
