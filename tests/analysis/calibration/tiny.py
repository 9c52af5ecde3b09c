"""Tiny jobs of each family, small enough to run in milliseconds."""

from dataclasses import replace
from typing import Any

from sim.hardware import device, stack
from sim.model.transformer import Transformer
from sim.parallel.job import Chunk, Job
from sim.parallel.plan import Plan
from sim.parallel.resolved import resolved

GPT = Transformer(
    tied_embeddings=True, layers=2, hidden=32, heads=4, ffn=96, vocab=60, seq=16, dropout=False
)
LLAMA = replace(
    GPT,
    kv_heads=2,
    gated_mlp=True,
    positions="rotary",
    normalisation="rmsnorm",
    bias=False,
    tied_embeddings=False,
)
BERT = replace(GPT, causal=False, post_norm=True, token_types=2, predictions=3, pooler=True)
FAMILIES = {"gpt": GPT, "llama": LLAMA, "bert": BERT}


def job(model: Transformer, *, dp: int = 1, stack_name: str = "pytorch-cpu", **plan: Any) -> Job:
    """A job of `dp` ranks; the device does not matter, as nothing is timed on it."""
    settings = dict(precision="fp32", microbatch=2, global_batch=2 * dp) | plan
    return Job(
        model=model,
        plan=resolved(Plan(**settings), dp),
        stack=stack.load(stack_name),
        device=device.load("h100-80gb-sxm"),
        chunks=((Chunk(model.row),),),
    )


def trained(script: str) -> dict[str, Any]:
    """The names of a script of a job that has been run."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(script, "train.py", "exec"), names)
    return names
