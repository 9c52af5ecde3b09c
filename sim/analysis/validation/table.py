"""Measurement tables: each row is a measured run, which becomes a setup that can be simulated.

The columns are described in the tables' README: model shape, layout, software, cluster, step time.
A row's own measurement of an all-reduce says in which state the cluster was.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import StringIO
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.analysis.validation.settings import NO_SETTINGS, changed_stack, changed_topology, of_plan
from sim.analysis.validation.unprinted import UNKNOWN, settled
from sim.collectives.algorithms import ring
from sim.collectives.libraries import backend
from sim.collectives.schedule import GroupShape
from sim.config import catalog, gate, reads
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware import stack as stacks
from sim.hardware.cluster.topology import Topology
from sim.hardware.stack import Stack
from sim.interface.frameworks.megatron.pipeline_layout import unrolled
from sim.model.checkpointing import MODES, SELECTIVE
from sim.model.columns import blank, filled, from_columns, true, whole
from sim.model.transformer import Transformer
from sim.parallel.plan import WHOLE, Plan
from sim.program.operations import MeasuredBandwidth
from sim.scenario.setup import PlanSetup, assemble

if TYPE_CHECKING:
    import pandas as pd


def cluster_of(
    row: Mapping[str, Any], all_reduce: float | None, settings: Mapping[str, Any] = NO_SETTINGS
) -> Topology:
    """Return the cluster that a row names, or a state of it, with `settings` (dotted keys) applied.

    The bus bandwidth (B/s) of a large `all_reduce` over all devices of the job tells the states
    apart. It is compared with bandwidths of a similar number of devices: with the measured
    bandwidth of each state, and with the library's bandwidth on the healthy cluster. The state with
    the nearest bandwidth is taken. Raises `InputError`.
    """
    where = str(row["id"])
    cluster = changed_topology(str(row["cluster"]), settings, where)
    gpus = int(row["gpus"])
    if all_reduce is None or gpus <= cluster.gpus_per_node:
        return cluster
    nearest, distance = cluster, float("inf")
    for name in cluster.states:
        state = changed_topology(name, settings, cluster.name)
        slow = _measured(state, gpus)
        usual = _bus_bandwidth(cluster, slow.size, gpus)
        if abs(log(all_reduce / slow.bus_bandwidth)) < min(abs(log(all_reduce / usual)), distance):
            nearest, distance = state, abs(log(all_reduce / slow.bus_bandwidth))
    return nearest


def _measured(state: Topology, gpus: int) -> MeasuredBandwidth:
    """Return the state's measured all-reduce of the number of devices nearest to `gpus`."""
    known = (
        *(state.network.measured if state.network else ()),
        *(state.checks.measured if state.checks else ()),
    )
    reduced = [row for row in known if row.collective == "all_reduce"]
    if not reduced:
        fault = "is a state of a cluster, but lists no measured all-reduce"
        raise InputError(state.name, fault, "add one to network.measured or checks.measured")
    return min(reduced, key=lambda row: abs(log(row.gpus / gpus)))


def _bus_bandwidth(cluster: Topology, size: float, gpus: int) -> float:
    """Return the bandwidth (B/s) that the library's all-reduce reaches on a healthy cluster."""
    machine = Machine(cluster.with_gpus(gpus), backend.load(cluster.backend, where=cluster.name))
    shape = GroupShape.of(gpus, cluster.gpus_per_node)
    call = machine.call("all_reduce", size, shape)
    seconds = call.duration(machine.backend.call_cost(call))
    return ring.cost("all_reduce", gpus).bytes * size / seconds


def layers_of(layout: str) -> tuple[int, ...]:
    """Return the layers of each chunk, in the order of the model. Raises `ValueError`.

    >>> layers_of("Et*2|(t*3|)*2tmL")
    (2, 3, 3, 1)
    """
    text = unrolled(layout.replace(" ", "").replace(",", ""))
    if not re.fullmatch(r"Et*(\|t*)*m*L", text):
        raise ValueError(f"pp_layout = {layout!r}; write it like 'Et*4|(t*4|)*14tmL'")
    return tuple(chunk.count("t") for chunk in text.split("|") if chunk)


REQUIRED = (
    "id", "cluster", "family", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq",
    "gated_mlp", "tied_embeddings", "gpus", "tp", "pp", "dp", "zero", "microbatch", "global_batch",
    "interleave", "schedule", "recompute", "sequence_parallel", "precision", "attention",
    "software", "step_time_s",
)  # fmt: skip
# Columns that measured layouts of one job have in common.
JOB = (
    "cluster", "software", "family", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab",
    "seq", "gpus", "global_batch", "precision",
)  # fmt: skip
_PLAN_COUNTS = ("tp", "cp", "pp", "dp", "ep", "zero", "microbatch", "global_batch", "interleave")
_MODEL_COUNTS = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq")
_COUNTS = ("gpus", *_PLAN_COUNTS, *_MODEL_COUNTS)
# Schedules that tables call by other names. Two are the automatic schedules of the zero-bubble
# paper, with one and two times the memory of 1F1B (arXiv 2401.10241, section 5.1). The third is
# Primus' basic zero bubble with one chunk per stage (AMD-AGI/Primus,
# scheduler/algorithms/zerobubble.py).
_SCHEDULES: Mapping[str, Mapping[str, Any]] = {
    "none": {"schedule": "1f1b"},
    "zb-1p": {"schedule": "zb-auto", "schedule_memory": 1.0},
    "zb-2p": {"schedule": "zb-auto", "schedule_memory": 2.0},
    "zb-b": {"schedule": "zb-h1", "interleave": 1},
}
# Columns whose names and values are those of a plan; a row or a script may have them.
_OPTIONAL = ("context", "moments", "tp_comm_overlap")
_ONE_IF_EMPTY = ("cp", "ep", "interleave")
_SHARDED = ("zero_group", "fsdp_group")  # ranks among which ZeRO shards
_MAY_BE_ZERO = ("zero", "offload_layers", *_SHARDED)
# NeMo's and Megatron-Bridge's performance recipes: peft.target_modules = ["linear_qkv"], dim = 16.
_LORA = {"rank": 16, "modules": ["linear_qkv"]}
# Tables without the column `task` note LoRA in words. MLPerf's rules put adapters beside both
# linear layers of attention, after dropout (mlcommons/training, llama2_70b_lora:
# lora_target_modules "qkv_proj,o_proj", lora_dropout 0.1; NeMo's: peft.target_modules
# ["attention"]).
_NOTED_LORA = re.compile(r"LoRA rank (\d+)")
_ATTENTION = ["linear_qkv", "linear_proj"]
_RECIPES = {
    "fp8-cs": "current-scaling",
    "fp8-ds": "delayed-scaling",
    "fp8": "delayed-scaling",  # the default of Megatron-LM's --fp8-recipe
    "mxfp8_cublas_rceil": "mxfp8",
}


# Stacks for software that has no stack, by a word of the software's name. Both have code or a
# compiler in common.
_LINEAGE = {
    "paxml": "maxtext",  # GSPMD on XLA, as are T5X and Alpa (google/paxml, README)
    "t5x": "maxtext",
    "alpa": "maxtext",
    "neox": "megatron-deepspeed",  # EleutherAI/gpt-neox, README: Megatron with DeepSpeed
    "yalm": "megatron-deepspeed",
    "metaseq": "llm-foundry-fsdp",  # facebookresearch/metaseq: fairscale's FSDP
    "olmo": "torchtitan-compile",  # allenai/OLMo-core: FSDP2 and torch.compile
    "llama": "megatron-core",  # Dubey et al. 2024, section 3.3: 4D parallelism, interleaved 1F1B
    "megatron": "megatron-core",
}
_OFFLOADED = re.compile(r"(?:(\d+) % )?(optimizer|parameter|activations)(?:, overlapped copies)?")


def _refuse_ragged(text: str, where: str) -> None:
    """Raise `InputError` for a row with more or fewer cells than there are headings."""
    rows = csv.reader(StringIO(text))
    headings = next(rows, [])
    for cells in rows:
        if cells and len(cells) != len(headings):
            fault = f"{len(cells)} cells below {len(headings)} headings"
            raise InputError(f"{where}, line {rows.line_num}", fault, "correct that line")


def read(path: Path) -> "pd.DataFrame":
    """Read a table of measured runs. Raises `InputError` for a missing file or column."""
    import pandas as pd

    try:
        text = reads.text(path)
        _refuse_ragged(text, str(path))
        frame = pd.read_csv(StringIO(text), dtype={"note": str, "assumed": str})
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(str(path), f"is not a CSV table ({reason})", "check the file") from None
    missing = [column for column in REQUIRED if column not in frame.columns]
    if missing:
        remedy = "docs/measuring.md lists the columns under 'Runs that you measured'"
        raise InputError(str(path), f"column {missing[0]!r} is missing", remedy)
    return frame


def records(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries. Raises `InputError` where there are none."""
    rows = read(path).to_dict("records")
    if not rows:
        raise InputError(str(path), "has no rows", "name a CSV of measured runs")
    return [{str(key): value for key, value in row.items()} for row in rows]


def empty(row: Mapping[str, Any], column: str) -> bool:
    """Return whether a row's cell is empty."""
    return blank(row.get(column))


def number(row: Mapping[str, Any], column: str) -> float | None:
    """Return a measured figure; None for an empty cell. Raises `InputError` for anything else."""
    if empty(row, column):
        return None
    value = row[column]
    figure = _float(value)
    if not 0 < figure < float("inf"):
        fault = f"{column} = {gate.shown(value)} is not a positive number"
        raise InputError(str(row["id"]), fault, "correct the cell or leave it empty")
    return figure


def count(row: Mapping[str, Any], column: str) -> int:
    """Return a cell that counts something. Raises `InputError` for anything but a whole number."""
    if column in _ONE_IF_EMPTY and empty(row, column):
        return 1
    if empty(row, column):
        raise InputError(str(row["id"]), f"the cell of {column} is empty", "fill it in")
    try:
        figure = whole(row, column)
    except ValueError as error:
        raise InputError.of(str(row["id"]), error) from None
    if not figure and column not in _MAY_BE_ZERO:
        raise InputError(str(row["id"]), f"{column} is 0", "write at least 1")
    return figure


def setup_of(row: Mapping[str, Any], settings: Mapping[str, Any] = NO_SETTINGS) -> PlanSetup:
    """Return a row's job and machine with `settings` (`sim.analysis.validation.settings`) applied.

    Raises `InputError` with the reason where a row has no setup.
    """
    where = str(row["id"])
    stack = _stack(str(row["software"]), where)
    row = filled({**row, **_scripted(row, stack)})
    if settings:
        stack = changed_stack(str(row["software"]), _precision(row)["precision"], settings, where)
    row |= {c: count(row, c) for c in _COUNTS if c != "microbatch" or not empty(row, c)}
    model = from_columns(row)
    reached = number(row, "measured_allreduce_gbs")
    cluster = cluster_of(row, reached and 1e9 * reached, settings)
    topology = cluster.with_gpus(row["gpus"], _each(row))
    return settled(
        row,
        lambda choice: assemble(
            where, model=model, stack=stack, topology=topology, plan=_plan(choice, model, settings)
        ),
    )


def _stack(software: str, where: str) -> Stack:
    """Return a row's stack. Raises `InputError`; for software without a stack, the message may
    name a stack that shares its code."""
    stack = next((stack for word, stack in _LINEAGE.items() if word in software.lower()), "")
    if stack and not catalog.has("topologies/stacks", software):
        fault = f"no stack named {software!r}; the stack {stack} shares its code or compiler"
        raise InputError(where, fault, f"add --stack-of '{software}={stack}' to use it")
    return stacks.load(software, where=where)


def run_by(
    tables: Sequence[list[dict[str, Any]]], stack_of: Mapping[str, str]
) -> list[list[dict[str, Any]]]:
    """Return the tables with the stacks that `stack_of` gives to software. Raises `InputError` for
    software that no row names, and for an unknown stack."""
    named = {str(row["software"]) for rows in tables for row in rows}
    for software, stack in stack_of.items():
        catalog.find("topologies/stacks", stack, where="--stack-of")
        if software not in named:
            fault = f"no row has software = {software!r}"
            raise InputError.unknown("--stack-of", fault, software, sorted(named))
    return [
        [row | {"software": stack_of.get(str(row["software"]), row["software"])} for row in rows]
        for rows in tables
    ]


def _scripted(row: Mapping[str, Any], stack: Stack) -> dict[str, Any]:
    """Return the settings that a row leaves open and the software's script for its model states."""
    assumed = str(row.get("assumed")).split()

    def known(column: str) -> bool:
        return not (column in assumed or empty(row, column) or row[column] == UNKNOWN)

    names = [str(row.get(key)) for key in ("task", "model", "cluster")]
    settings = stack.scripted(*names, " on ".join(names[1:]))
    return {column: value for column, value in settings.items() if not known(column)}


def _each(row: Mapping[str, Any]) -> int | None:
    """Return the GPUs of each node (a slice of TPUs), where the row gives the number of slices."""
    return None if empty(row, "slices") else row["gpus"] // count(row, "slices")


def _plan(row: Mapping[str, Any], model: Transformer, settings: Mapping[str, Any]) -> Plan:
    data = {column: row[column] for column in _PLAN_COUNTS}
    data["recompute"] = _recompute(row)
    data |= _SCHEDULES.get(row["schedule"], {"schedule": row["schedule"]})
    data["sequence_parallel"] = _true(row, "sequence_parallel")
    data |= {"no_sync": True} if _true(row, "no_sync") else {}
    data["drains"] = _drains(row)
    data |= _precision(row) | _layers(row) | _sharded(row) | _experts(row)
    data["offload"] = _offload(row)
    data["lora"] = _lora(row)
    data["cuda_graph"] = _graphs(row)
    data |= {key: row[key] for key in _OPTIONAL if not empty(row, key)}
    data["optimizer"] = "lamb" if model.family == "bert" else "adam"
    data |= of_plan(settings)
    plan = catalog.validate(data, Plan, str(row["id"]))
    # Some tables and scripts print these two keys at any tp; at tp 1 there is nothing to split.
    if plan.tp == 1:
        plan = replace(plan, sequence_parallel=False, tp_comm_overlap=None)
    if plan.pp > 1 and plan.zero < 2 and plan.lora is None:
        plan = replace(plan, defer_embedding_wgrad_compute=_defers(row))
    return plan if plan.cp > 1 else replace(plan, context=None)


def _defers(row: Mapping[str, Any]) -> bool:
    """Return whether the vocabulary's weight gradients of all microbatches are deferred. If a
    script defers only the gradients of the last microbatches, none are deferred here."""
    microbatches = row["global_batch"] // (row["microbatch"] * row["dp"])
    limit = number(row, "wgrad_deferral_limit")
    return limit is not None and microbatches <= limit


def _lora(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the adapters of a row that trains adapters only."""
    if row.get("task") == "lora":
        return _LORA
    noted = _NOTED_LORA.search(str(row.get("note")))
    return {"rank": int(noted[1]), "modules": _ATTENTION, "dropout": True} if noted else None


def _drains(row: Mapping[str, Any]) -> int:
    """Return how often the pipeline drains in a step. The column `local_batch` has the number of a
    rank's sequences before each drain."""
    if row["pp"] == 1 or empty(row, "local_batch"):
        return 1
    return max(int(row["global_batch"]) // int(row["dp"] * count(row, "local_batch")), 1)


def _sharded(row: Mapping[str, Any]) -> dict[str, int]:
    """Return how many ranks shard states and how many replicate them, if the row says so."""
    sizes = [count(row, column) for column in _SHARDED if not empty(row, column)]
    if not sizes or not row["zero"] or not 0 < sizes[0] < row["dp"]:
        return {}
    return {"dp": sizes[0], "dp_replicate": row["dp"] // sizes[0]}


def _layers(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layers of each chunk, where the row says them."""
    layout = row.get("pp_layout")
    if not isinstance(layout, str):
        return {}
    try:
        return {"layers": [*layers_of(layout)]}
    except ValueError as error:
        raise InputError.of(str(row["id"]), error) from None


def _offload(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the parts that lie on the host, with their shares. Parts are joined by "+"; a part may
    have a share before its name, as in "25 % optimizer:cpu" and "optimizer+parameter:cpu". The
    column `offload_layers` counts the layers whose activations are offloaded."""
    printed, shares = row.get("offload"), dict[str, float]()
    if not empty(row, "offload_layers"):
        shares["activations"] = count(row, "offload_layers") / row["layers"]
    if not isinstance(printed, str) or printed.strip() in ("", "none"):
        return shares
    for part in printed.removesuffix(":cpu").split("+"):
        found = _OFFLOADED.fullmatch(part.strip())
        if found is None:
            remedy = "write it like 'optimizer+parameter:cpu'"
            raise InputError(str(row["id"]), f"offload is {printed}", remedy)
        percent, state = found.groups()
        shares[f"{state}s" if state == "parameter" else state] = float(percent or 100) / 100
    return shares


def _graphs(row: Mapping[str, Any]) -> list[str]:
    """Return the scopes of CUDA graphs, which are printed after the name of the capturing code.
    "none" in "none:attn+mlp" means no graphs. An empty list of scopes means attn and mlp. Some
    tables print scopes letter by letter."""
    printed = row.get("cuda_graph")
    if not isinstance(printed, str) or not printed:
        return []
    way, _, scopes = printed.partition(":")
    if way == WHOLE or way == "none":
        return [WHOLE] * (way == WHOLE)
    if not scopes:
        return ["attn", "mlp"]
    letters = scopes.split("+")
    return ["".join(letters)] if all(len(letter) == 1 for letter in letters) else letters


def _precision(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the precision of products and its recipe. Tables print a recipe as a precision of its
    own, by a short name, or with a remark after it."""
    printed = row.get("fp8_recipe")
    if row["precision"] == "nvfp4":
        return {"precision": "fp4", "recipe": "nvfp4"}
    if isinstance(printed, Mapping):
        return {"precision": row["precision"], "recipe": printed}
    name = printed.split()[0] if isinstance(printed, str) and printed.strip() else ""
    return {"precision": row["precision"], "recipe": _RECIPES.get(name, name)}


# Names in published rows of the dispatchers that send tokens to their experts.
_DISPATCHERS = {"alltoall": "flat", "deepep": "deepep", "hybridep": "hierarchical"}


def _experts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return how tokens reach their experts, and whether the exchange is overlapped."""
    printed = row.get("dispatcher")
    keys: dict[str, Any] = {"overlap_experts": True} if _true(row, "a2a_overlap") else {}
    if isinstance(printed, str) and printed:
        if printed not in _DISPATCHERS:
            fault = f"dispatcher {printed!r} is not known"
            raise InputError.unknown(str(row["id"]), fault, printed, list(_DISPATCHERS))
        keys["dispatcher"] = _DISPATCHERS[printed]
    return keys


def _recompute(row: Mapping[str, Any]) -> str | list[str]:
    """Return the mode of recomputation, or the modules that a separate column names."""
    mode, modules = row["recompute"], row.get("recompute_modules")
    if mode not in MODES:
        raise InputError(str(row["id"]), f"recompute is {mode}", "write a known mode")
    return modules.split() if mode == SELECTIVE and isinstance(modules, str) else str(mode)


def _float(value: Any) -> float:
    """Return the number of a cell; NaN for a cell that is no valid number."""
    try:
        return float("nan") if gate.fault_of(value) else float(value)
    except (TypeError, ValueError):
        return float("nan")


def _true(row: Mapping[str, Any], column: str) -> bool:
    """Return whether a cell says yes. Raises `InputError` for an unknown word."""
    try:
        return true(row.get(column))
    except ValueError as error:
        raise InputError.of(str(row["id"]), error, f"{column} = ") from None
