"""A program beside what the papers say of its job."""

import math
from collections.abc import Iterator

from sim.model.counts import model_flops, parameters
from sim.model.transformer import Transformer
from sim.scenario.setup import PlanSetup
from tests.reference import papers
from tests.reference.counted import executed, sent

SAME = 1e-4  # a vocabulary is padded until its shards are equal
FORMULAS = {
    "tensor communication": papers.tensor_bytes,
    "pipeline communication": papers.pipeline_bytes,
    "context communication": papers.context_bytes,
    "expert communication": papers.expert_bytes,
    "data communication": papers.data_bytes,
}


def decoder(model: Transformer) -> papers.Decoder:
    experts = model.blocks.get("experts", {})
    return papers.Decoder(
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        groups=model.kv_heads,
        inner=experts.get("ffn", model.ffn),
        gated=model.gated_mlp,
        vocabulary=model.vocab,
        tokens=model.seq,
        biases=model.bias,
        learned_positions=model.positions == "learned",
        tied=model.tied_embeddings,
        norms=2 if model.normalisation == "layernorm" else 1,
        experts=experts.get("experts", 0),
        chosen=experts.get("top_k", 0),
    )


def layout(setup: PlanSetup) -> papers.Layout:
    job = setup.job
    plan, stack = job.plan, job.stack
    return papers.Layout(
        tensor=plan.tp,
        context=plan.cp,
        data=plan.data_parallel,
        expert=plan.ep,
        stages=plan.pp,
        pieces=plan.pp * plan.interleave,
        microbatches=plan.microbatches,
        reductions=plan.microbatches if plan.zero >= 2 and not job.no_sync else 1,
        b=plan.microbatch,
        sequence_parallel=plan.sequence_parallel,
        again=plan.recompute == "full",
        attention_again=plan.recompute in ("full", "selective"),
        zero=plan.zero,
        reduced=stack.reduced_bytes(plan.precision),
        scattered=stack.scatter_gather and not plan.sequence_parallel and plan.tp > 1,
    )


def pairs(setup: PlanSetup) -> Iterator[tuple[str, float, float]]:
    """What a program has of each quantity, and what the papers say."""
    model, step, plan = decoder(setup.job.model), layout(setup), setup.job.plan
    yield "parameters", parameters(setup.job.model), papers.parameters(model)
    batch = plan.global_batch
    yield "model FLOPs", model_flops(setup.job.model, batch), papers.model_flops(model, batch)
    flash = setup.job.model.attention == "flash" and setup.job.stack.attention
    expected = papers.executed_flops(model, batch, step, flash=bool(flash))
    ranks = plan.tp * plan.cp * plan.data_parallel
    yield "executed FLOPs", executed(setup.program) * ranks, expected
    found = sent(setup.program, plan.microbatches)
    yield from ((cause, found[cause], formula(model, step)) for cause, formula in FORMULAS.items())


def differences(setup: PlanSetup) -> dict[str, str]:
    """Quantities of which program and papers disagree, in words."""
    return {
        name: f"{name}: {found:.6g}, by the papers {expected:.6g}"
        for name, found, expected in pairs(setup)
        if not math.isclose(found, expected, rel_tol=SAME, abs_tol=1e3)
    }


def known(setup: PlanSetup) -> bool:
    """Whether the papers' decoder is this model, and their layout this plan."""
    model = setup.job.model
    if not isinstance(model, Transformer) or model.family not in ("gpt", "llama", "moe"):
        return False
    if model.latent or model.predictions or model.mtp or model.window or model.chunk:
        return False
    if setup.job.plan.axes:  # Ulysses' exchange of heads, for one
        return False
    usual = model.pattern in ("dense", "experts") and model.heads * model.head == model.hidden
    return usual and setup.job.plan.lora is None and setup.program.ends
