"""What the host costs: calls over nodes, steps, exchanges that it waits for, lack of memory."""

from dataclasses import replace
from typing import Any

import pytest

from sim.hardware import stack as stacks
from sim.hardware.cluster import topology as topologies
from sim.hardware.stack import Stack
from sim.model.transformer import Transformer
from sim.parallel.plan import Plan
from sim.scenario.setup import PlanSetup, assemble
from sim.simulate import answer

MODEL = Transformer(
    tied_embeddings=True, layers=8, hidden=1024, heads=16, ffn=4096, vocab=32000, seq=1024
)


def stack(**changes: object) -> Stack:
    return replace(stacks.load("megatron-lm-2021"), **changes)  # type: ignore[arg-type]


def job(gpus: int = 8, *, software: Stack, **plan: object) -> PlanSetup:
    given: dict[str, object] = {"global_batch": 32, "microbatch": 1, "precision": "fp16", **plan}
    topology = topologies.load("dgx-a100-hdr").with_gpus(gpus)
    return assemble(
        "test",
        model=MODEL,
        stack=software,
        topology=topology,
        plan=Plan(**given),  # type: ignore[arg-type]
    )


def test_a_host_that_waits_for_exchanges_is_slower_where_it_is_the_limit() -> None:
    slow = {"launch_forward": 1e-4, "launch_backward": 1e-4}
    ahead = answer(job(software=stack(exchange_sync=False, **slow), pp=8)).step_time
    waiting = answer(job(software=stack(exchange_sync=True, **slow), pp=8)).step_time
    assert waiting > 1.02 * ahead


def test_a_host_that_waits_costs_nothing_where_launches_are_free() -> None:
    free: dict[str, Any] = {
        "operator_forward": {},
        "operator_backward": {},
        "launch_forward": 0.0,
        "launch_backward": 0.0,
        "launch_collective": 0.0,
        "layer_forward": 0.0,
        "layer_backward": 0.0,
    }
    ahead = answer(job(software=stack(exchange_sync=False, **free), pp=8)).step_time
    waiting = answer(job(software=stack(exchange_sync=True, **free), pp=8)).step_time
    assert waiting == pytest.approx(ahead, rel=1e-12)


def test_a_stack_without_fused_attention_keeps_scores() -> None:
    fused = replace(MODEL, attention="flash")
    topology = topologies.load("dgx-a100-hdr").with_gpus(8)
    plan = Plan(global_batch=8, precision="fp16")

    def attention(software: Stack) -> str:
        setup = assemble("test", model=fused, stack=software, topology=topology, plan=plan)
        return setup.job.model.attention

    assert attention(stack(attention=())) == "standard"
    assert attention(stack()) == "flash"
