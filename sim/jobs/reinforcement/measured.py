"""Measured loops as scenarios: tables of NeMo RL and verl.

A row holds the values that its table prints. Constants in this file hold further settings, from the
software's own recipes. All other values are assumed; they are equal for all rows, and rows list
them. NeMo RL prints mean lengths, verl does not; neither prints their spread.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from math import isnan
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.errors import InputError

_SIGMA = 0.6  # standard deviation of the logarithm of lengths; assumed
_CORRELATION = 0.5  # correlation of the lengths of a prompt's answers; assumed
_PROMPT = 130  # tokens; assumed: word problems with their template
_STEPS = 3  # figures are means over this many steps


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoop:
    """A row: its scenario as a `document`, `measured` figures by name (s), and the assumptions
    (`assumed`). Rows of one `pair` are compared with the pair's first row. If a figure of the
    software includes more causes than its name says, `parts` lists all its causes. `lacks` says why
    a row has no scenario."""

    id: str
    document: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    pair: str = ""
    lacks: str = ""


def rows(table: str, records: Sequence[Mapping[str, Any]]) -> Iterator[MeasuredLoop]:
    """Yield the rows of a table. Raises `InputError` if the columns fit no known table."""
    columns = set(records[0])
    reader = next((read for needed, read in _READERS if needed <= columns), None)
    if reader is None:
        raise InputError(table, "its columns fit no known table", "give a table of NeMo RL or verl")
    for number, record in enumerate(records, 1):
        yield reader(f"{table} {number}", record)


# --- NeMo RL --------------------------------------------------------------------------------------

_MODELS = {
    "Qwen3-235B": "qwen3-235b-a22b",
    "Qwen3-30B3A": "qwen3-30b-a3b",
    "Qwen3-32B": "qwen3-32b",
    "LLAMA3.1_8B": "llama3-8b",
    "DeepSeek V3": "deepseek-v3",
    "Nemotron-3-Nano-30B-A3B": "nemotron-3-nano",
}
_CLUSTERS = {"H100": "dgx-h100-ndr", "GB200": "gb200-nvl72"}
# examples/configs/recipes/llm/performance of NVIDIA-NeMo/RL: num_generations_per_prompt, and
# activation_checkpointing.
_ANSWERS = {"Qwen3-235B": 32, "DeepSeek V3": 16}
_CHECKPOINTED = ("Qwen3-235B", "DeepSeek V3", "LLAMA3.1_8B")
# gpu_memory_utilization in these recipes; all others have 0.6 on shared GPUs (grpo_math_1B.yaml).
_MEMORY = {("GB200", "Qwen3-235B"): 0.4, ("GB200", "DeepSeek V3"): 0.3}
_SEPARATE_MEMORY = 0.8
# Layers of the first and the last stage: num_layers_in_first_pipeline_stage, ..._last_...
_ENDS = {("Qwen3-235B", 8): (11, 11), ("Qwen3-235B", 4): (23, 23), ("DeepSeek V3", 8): (7, 6)}
_DRAFTS = "speculative_config = deepseek_mtp: a draft of one token; its acceptance is not printed"


def _nemo(name: str, row: Mapping[str, Any]) -> MeasuredLoop:
    cluster = str(row["section"]).partition(" ")[0]
    model, policy = str(row["Model"]), str(row["On/Off_policy"])
    name = f"{name}, {model} on {row['#-GPUs']} {cluster}, {policy.lower()}"
    measured = {"step": float(row["Total_Step_time(s)"])}
    if model not in _MODELS:
        return MeasuredLoop(id=name, measured=measured, lacks=f"no model {model} is described")
    gpus, whole = int(row["#-GPUs"]), int(row["T-Max_Sequence_Length"])
    each = _ANSWERS.get(model, 32)
    off = 0 if policy == "On policy" else int(policy.partition("-")[0])
    gen_tp, gen_pp = _numbers(row["Generation_[TP,PP]"])
    tp, cp, ep, pp = _numbers(row["Training_[TP,CP,EP,PP,VPP]"])[:4]
    servers: dict[str, Any] = {
        "tuning": {"memory": _MEMORY.get((cluster, model), 0.6)},
        "shared": True,
        "layout": {"tp": gen_tp, "pp": gen_pp},
    }
    if off:  # half of the nodes generate: colocated.resources.num_nodes of the recipes
        tuning = {"memory": _SEPARATE_MEMORY}
        servers |= {"tuning": tuning, "shared": False, "gpus": gpus // 2}
    batch, samples = int(row["T-GBS"]), int(row["G-GBS"])
    answer = whole - _PROMPT
    document = {
        "name": name,
        "model": _MODELS[model],
        "topology": _CLUSTERS[cluster],
        "stack": "megatron-core",
        "gpus": gpus,
        "plan": {
            "tp": tp, "cp": cp, "ep": ep, "pp": pp, "zero": 1, "global_batch": batch,
            "microbatch": 1, "sequence_parallel": tp > 1,
            "recompute": "full" if model in _CHECKPOINTED else "none",
            **({"layers": _layers(model, pp)} if (model, pp) in _ENDS else {}),
        },
        "reinforcement": {
            "prompts": samples // each,
            "answers": each,
            "steps": _STEPS,
            "staleness": float(off),
            "swap": "continue" if off else "drain",  # in_flight_weight_updates
            "recompute": False,  # recompute_kv_cache_after_weight_updates
            "old": batch < samples,  # force_on_policy_ratio: one update takes all answers
            "reference": True,  # reference_policy_kl_penalty = 0.01
            "row": whole,  # sequence_packing.train_mb_tokens
            "prompt": {"law": "constant", "value": _PROMPT, "cap": _PROMPT},
            "answer": _lengths(float(row["G-Average_Seq_len"]), answer),
            "servers": servers,
        },
    }  # fmt: skip
    assumed = [f"spread of lengths: lognormal of sigma {_SIGMA:g}", f"prompts of {_PROMPT} tokens"]
    if model == "DeepSeek V3":
        assumed.append(f"no speculative decoding ({_DRAFTS})")
    return MeasuredLoop(
        id=name,
        document=document,
        measured=measured,
        assumed=tuple(assumed),
        pair=f"{row['section']}, {row['date']}, {model}",
    )


def _numbers(text: Any) -> list[int]:
    """The numbers of a text such as "[2,2,16,8,n/a]"; cells that are no numbers count as 1."""
    cells = str(text).strip("[]").split(",")
    return [int(cell) if cell.strip().isdigit() else 1 for cell in cells]


def _layers(model: str, stages: int) -> list[int]:
    """The number of layers of each stage, for models whose first and last stages differ."""
    layers = {"Qwen3-235B": 94, "DeepSeek V3": 61}[model]
    first, last = _ENDS[model, stages]
    middle = (layers - first - last) // max(stages - 2, 1)
    return [first, *[middle] * (stages - 2), last]


def _lengths(mean: float, cap: int) -> dict[str, Any]:
    return {"law": "lognormal", "mean": mean, "sigma": _SIGMA, "cap": cap,
            "correlation": _CORRELATION}  # fmt: skip


# --- verl -----------------------------------------------------------------------------------------

# Tokens of an answer; assumed. With the first guess, 4,000, updates were four times too long, so
# this value was chosen with the measured rows in view. So verl's rows test the order and the ratios
# of steps, not the level.
_VERL_MEAN = 1200.0
# Seconds for each token of the padded batch in a process of verl, from messages of its commits a
# month before the runs' recipe: `ray.put` of 6,400 x 20,480 tokens takes 28.85 s, or 19.86 s with
# many threads (04726dbf1). Taking a batch needs 0.74 s if giving it needs 2.58 s (ac2f790f5).
_VERL_GIVES, _VERL_CONTROLLER = (seconds / (6400 * 20480) for seconds in (28.85, 19.86))
_VERL_TAKES = 0.74 / 2.58 * _VERL_GIVES
_VERL_WORKERS = 8  # rollout.agent.num_workers: processes that hand on written answers
_VERL_PLACES = 16  # prompts at once per server (fully_async_rollouter.py, max_concurrent_samples)
# The causes in verl's timers. "gen" of a colocated step includes waking the servers with the new
# weights (agent_loop.py, generate_sequences). "step" of an asynchronous step ends before weights
# are sent. Its "gen" waits for answers that a process of the servers hands on one after the other
# (fully_async_trainer.py, fit; fully_async_rollouter.py, _consumer_worker).
_VERL_COLOCATED = {"generation": ("generation", "weights to servers", "sleep and wake")}
_VERL_WAITS = {"generation": ("generation", "reward")}
_VERL_SEQUENCES = 1024  # max_num_seqs, verl/trainer/config/rollout/rollout.yaml at that time
_VERL_PROMPTS = 512  # prompts of a step: total_rollout_steps = 512 * 400 for 400 steps
_OF_VERL = {
    "Qwen2.5-Math-7B": "qwen2.5-7b",
    "Qwen3-30B-A3B-Base": "qwen3-30b-a3b",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
}
_PHASES = {
    "step": "step_s",
    "generation": "gen_s",
    "old log-probabilities": "old_log_prob_s",
    "reference log-probabilities": "ref_s",
    "update": "update_actor_s",
}
_VERL_ASYNC = _VERL_WAITS | {"step": (*_VERL_WAITS["generation"], *list(_PHASES)[2:])}


def _verl(name: str, row: Mapping[str, Any]) -> MeasuredLoop:
    model, colocated = str(row["model"]), str(row["mode"]).startswith("colocate")
    rollout, train = int(row["gpus_rollout"]), int(row["gpus_train"])
    name = f"{name}, {model}, {row['mode']}"
    measured = {figure: float(row[key]) for figure, key in _PHASES.items() if _said(row[key])}
    mini, each = int(row["ppo_mini_batch"]), int(row["rollout_n"])
    taken = 0
    if _said(row["require_batches"]):
        taken = mini * int(float(row["require_batches"]))
    elif _said(row["sync_every"]):  # the number of batches of a step
        taken = _VERL_PROMPTS // int(float(row["sync_every"]))
    answer, experts = int(row["max_response"]), "30B" in model
    partial = str(row["partial_rollout"]).lower() == "true"
    plan: dict[str, Any] = {"global_batch": mini * each, "microbatch": 1}
    # shell/grpo_30b_a3b_base_math_megatron_96_32.sh, shell/dapo_7b_math_fsdp2_64_64.sh
    plan |= (
        {"tp": 2, "cp": 2, "ep": 8, "zero": 1, "sequence_parallel": True, "recompute": "none",
         "offload": {"optimizer": 1.0}}
        if experts
        else {"axes": {"ulysses": 4}, "dp": 2, "zero": 3, "dp_replicate": train // 8,
              "recompute": "full"}
    )  # fmt: skip
    document = {
        "name": name,
        "model": _OF_VERL[model],
        "topology": "h20-node",
        "stack": "megatron-core" if experts else "torchtitan-eager",
        "gpus": train if colocated else rollout + train,
        "plan": plan,
        "reinforcement": {
            "prompts": _VERL_PROMPTS,
            "answers": each,
            "steps": _STEPS,
            "chunk": taken,
            **verl_processes(answer + 2048, 0 if colocated else rollout // 4),
            "parked": ["weights"] if experts else [],  # actor.megatron.param_offload
            # actor.ppo_max_token_len_per_gpu, of all GPUs of a Ulysses group
            "row": (answer + 2048) * (2 if experts else 8),
            "staleness": float(row["staleness"]) if _said(row["staleness"]) else 0.0,
            "swap": "continue" if partial else "drain",
            "old": colocated,  # async_training.use_rollout_log_probs = True
            "reference": "ref_s" in row and _said(row["ref_s"]),
            "prompt": {"law": "constant", "value": _PROMPT, "cap": 2048},
            "answer": _lengths(_VERL_MEAN, answer) | {"sigma": 1.0},
            "servers": {
                "tuning": {
                    "memory": 0.7 if experts else 0.8,
                    "sequences": _VERL_SEQUENCES,
                    "budget": 2048 + answer,  # rollout.max_num_batched_tokens
                    **({"graphs": 0} if experts else {}),  # rollout.enforce_eager = True
                },
                "shared": colocated,
                "gpus": 0 if colocated else rollout,
                "layout": {"tp": 4},
            },
        },
    }
    assumed = (
        f"mean length {_VERL_MEAN:g} and its spread (sigma 1)",
        f"prompts of {_PROMPT} tokens",
        f"{_VERL_PROMPTS} prompts a step",
    )
    return MeasuredLoop(
        id=name,
        document=document,
        measured=measured,
        parts=_VERL_COLOCATED if colocated else _VERL_ASYNC,
        assumed=assumed,
        pair=f"verl, {model}",
    )


def verl_processes(padded: int, servers: int) -> dict[str, Any]:
    """Keys of a loop that describe verl's processes. A batch of answers goes through a single
    process, each answer padded to `padded` tokens. `servers` is the number of asynchronous servers
    (0: colocated). For them the number of prompts at a time is limited, and another process puts
    answers into the queue one after the other."""
    keys = {"deal": "answers", "controller": _VERL_CONTROLLER, "collected": _VERL_TAKES}
    if not servers:
        return keys | {"collected": _VERL_TAKES + _VERL_GIVES / _VERL_WORKERS}
    giving = {"law": "constant", "value": _VERL_GIVES * padded, "workers": 1}
    return keys | {"concurrent": _VERL_PLACES * servers, "reward": {"service": giving}}


def _weight_sync(name: str, row: Mapping[str, Any]) -> MeasuredLoop:
    """A row that measures only the transfer of weights, as a loop with short answers. A checkpoint
    engine sends buckets; without an engine, each tensor is sent by itself. The row without an
    engine calibrates the cost of a tensor (`WeightTransfer`), so the row tests nothing."""
    train, rollout = int(row["trainer_ranks"]), int(row["rollout_ranks"])
    buckets = str(row["checkpoint_engine"]).lower() == "true"
    name = f"{name}, {train} to {rollout} GPUs, {'buckets' if buckets else 'tensor by tensor'}"
    document = {
        "name": name,
        "model": _OF_VERL[str(row["model"])],
        "topology": "h20-node",
        "gpus": train + rollout,
        "plan": {"ep": 8, "zero": 1, "global_batch": 32, "recompute": "full"},
        "reinforcement": {
            "prompts": 8,
            "answers": 4,
            "steps": 1,
            "prompt": {"law": "constant", "value": 64, "cap": 64},
            "answer": {"law": "constant", "value": 64, "cap": 64},
            "servers": {"gpus": rollout, "layout": {"tp": 4}},
            "weights": {"way": "buckets", "tensor": 0.0} if buckets else {},
        },
    }
    calibrates = () if buckets else ("this row sets the cost of a tensor, so it tests nothing",)
    assumed = ("servers of 4 GPUs", *calibrates)
    measured = {"weights to servers": float(row["sync_s"])}
    return MeasuredLoop(id=name, document=document, measured=measured, assumed=assumed)


def _said(cell: Any) -> bool:
    return not (cell is None or cell == "" or (isinstance(cell, float) and isnan(cell)))


_READERS = (
    ({"G-GBS", "Total_Step_time(s)"}, _nemo),
    ({"gpus_rollout", "step_s"}, _verl),
    ({"rollout_ranks", "sync_s"}, _weight_sync),
)
