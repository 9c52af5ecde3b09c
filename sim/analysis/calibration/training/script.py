"""Write a described job as a training script of plain torch. Jobs without a script are refused."""

import os
from typing import Any

from sim.analysis.calibration.timing.calls.attention import BACKENDS
from sim.analysis.calibration.timing.calls.tensors import DTYPES
from sim.config.errors import InputError
from sim.model.checkpointing import MODES
from sim.model.transformer import Transformer
from sim.parallel.job import Job
from sim.parallel.memory import memory
from sim.parallel.step import training_step

PRECISIONS = ("fp32", "tf32", "bf16")
# Kernels of Megatron-LM, apex and TransformerEngine, which plain torch does not have.
_FOREIGN = (
    "bias_gelu", "masked_softmax", "bias_dropout_add", "rotary", "swiglu", "cross_entropy",
    "composed_gelu", "vocab_parallel", "overlap_tensor", "split_gather", "layout_copies",
)  # fmt: skip
_UNBUILT = ("window", "chunk", "qk_norm", "sinks", "latent", "output_norms", "embedding_norm",
            "decoder_seq")  # fmt: skip
# Classes of torch.optim and their options, by the names of `sim.model.optimizers`.
_OPTIMIZERS = {"adam": ("AdamW", ""), "sgd": ("SGD", ""), "momentum": ("SGD", ", momentum=0.9")}
# The factor on the predicted memory: torch's libraries, the profiler that counts allocations, and
# freed blocks that are kept need memory, too. A job of 17.5 GiB was killed on a host of 23.5 GiB.
_MARGIN = 1.5


def script_of(job: Job, name: str, device: str, *, steps: int = 20) -> str:
    """Return the text of a script that trains `steps` steps of a job on "cpu" or "cuda", after a
    first, untimed step. `check` must accept the job."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("train.py.jinja").render(
        name=name, steps=steps, device=device, **_facts(job, device)
    )


def _facts(job: Job, device: str) -> dict[str, Any]:
    """Return the values of a job that the template needs."""
    plan, model, stack = job.plan, job.execution.shape, job.stack
    ranks, sharded = plan.data_parallel, plan.zero == 3 and plan.data_parallel > 1
    optimizer, options = _OPTIMIZERS[plan.optimizer]
    fused = f"fused={stack.fused_optimizer}"
    options = f", {fused if stack.fused_optimizer else 'foreach=True'}{options}"
    if stack.graph and optimizer == "AdamW":
        options += ", capturable=True"
    offered = [BACKENDS[name] for name in stack.attention if name in BACKENDS]
    backends = [f"SDPBackend.{name}" for name in (*offered, BACKENDS["math"])]
    flash = device == "cuda" and model.attention == "flash"
    contexts = [f"sdpa_kernel([{', '.join(backends)}], set_priority=True)"] if flash else []
    if plan.recompute != "none":
        contexts.insert(0, f"set_checkpoint_early_stop({job.rule.early_stop})")
    fusion = stack.fusion
    return {
        "model": model, "plan": plan, "ranks": ranks, "sharded": sharded,
        "dtype": DTYPES[plan.precision], "recompute": plan.recompute, "backends": flash,
        "no_sync": ranks > 1 and not sharded and plan.microbatches > 1, "contexts": contexts,
        "packed": fusion.packed_projections, "compiled": fusion.compiled,
        "composed_norm": model.normalisation == "rmsnorm" and not (fusion.norm or fusion.compiled),
        "logits_fp32": fusion.logits_fp32, "bucket": stack.bucket / 2**20,
        "masters": plan.precision == "bf16" and stack.master_weights, "clip": stack.clip,
        "fresh": fusion.gradients == "fresh", "graph": stack.graph,
        "optimizer": optimizer, "options": options,
    }  # fmt: skip


def check(job: Job, name: str, device: str) -> None:
    """Raise `InputError` unless a script of plain torch can run the job on `device`."""
    _check_model(job, name)
    _check_plan(job, name, device)
    _check_stack(job, device)
    if device == "cpu":
        _check_memory(job, name)


def _check_memory(job: Job, name: str) -> None:
    """Raise `InputError` unless all ranks together fit into this host's memory. Linux overcommits
    memory, so the kernel would otherwise kill this or another process."""
    needed = _MARGIN * memory(job, training_step(job), 0).total * job.plan.data_parallel
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > host:
        fault = f"may need {needed / 2**30:.1f} GiB, but this host has {host / 2**30:.1f} GiB"
        raise InputError(name, fault, "take fewer layers (model.layers), or a larger machine")


def _check_model(job: Job, name: str) -> None:
    model = job.model
    foreign = _foreign(job.execution.shape) if model.alike else []
    if model.blocks or set(model.kinds) != {"dense"}:
        foreign.append(f"pattern = {model.pattern!r}")
    if foreign:
        fault = f"`sim measure` cannot build a model with {', '.join(foreign)}"
        raise InputError(f"{name}, model", fault, "take a GPT, Llama or BERT model")


def _foreign(model: Transformer) -> list[str]:
    """Return the features of a model for which no torch module is written."""
    foreign = [key for key in _UNBUILT if getattr(model, key) not in (0, "none", None)]
    if model.norm_weights is not None:
        foreign.append(f"norm_weights = {model.norm_weights}")
    if model.positions in ("alibi", "relative"):
        foreign.append(f"positions = {model.positions!r}")
    if model.value_head != model.head:
        foreign.append("value_head")
    return foreign


def _check_plan(job: Job, name: str, device: str) -> None:
    plan, where = job.plan, f"{name}, plan"
    for axis in ("tp", "pp", "cp"):
        if getattr(plan, axis) > 1:
            fault = f"`sim measure` cannot run {axis} = {getattr(plan, axis)}"
            raise InputError(
                where, fault, f"set {axis} = 1; dp runs as DDP (zero = 0) or FSDP (zero = 3)"
            )
    if plan.data_parallel > 1 and plan.zero not in (0, 3):
        fault = f"`sim measure` cannot run zero = {plan.zero}"
        raise InputError(where, fault, "set zero = 0 (DDP) or 3 (FSDP)")
    if plan.recompute not in MODES or job.rule.saves:
        fault = "`sim measure` cannot recompute single modules or operators"
        raise InputError(where, fault, 'set recompute = "none", "selective" or "full"')
    if plan.optimizer not in _OPTIMIZERS or plan.moments != "fp32":
        own = f"optimizer = {plan.optimizer!r} with moments = {plan.moments!r}"
        fault = f"`sim measure` cannot run {own}"
        raise InputError(where, fault, f"take {', '.join(_OPTIMIZERS)}, in fp32")
    if plan.lora is not None:
        raise InputError(where, "`sim measure` cannot run adapters", "leave out lora")
    if plan.precision not in PRECISIONS or (plan.precision == "tf32" and device == "cpu"):
        offered = "fp32 or bf16" if device == "cpu" else "fp32, tf32 or bf16"
        fault = f"`sim measure` cannot run precision = {plan.precision!r}"
        raise InputError(where, fault, f"set {offered}")


def _check_stack(job: Job, device: str) -> None:
    fusion, where = job.stack.fusion, f"stack {job.stack.name}"
    foreign = [key for key in _FOREIGN if getattr(fusion, key) and not fusion.compiled]
    if fusion.gradients not in ("fresh", "grad"):
        foreign.append(f"gradients = {fusion.gradients!r}")
    if job.stack.graph and device == "cpu":
        raise InputError(where, "a CPU has no CUDA graphs", 'set stack = "pytorch-cpu"')
    if foreign:
        fault = f"has kernels that plain torch does not have ({', '.join(foreign)})"
        raise InputError(where, fault, 'set stack = "pytorch-eager", or "pytorch-cpu" on CPUs')
