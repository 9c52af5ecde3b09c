"""The same Llama twice: captured from transformers, and by the blocks of `sim.model`."""

from collections import Counter
from dataclasses import replace

import pytest

import sim
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.setup import RecordedScenario
from sim.parallel.job import stage_kernels
from sim.scenario.scenario import Scenario
from sim.scenario.setup import from_scenario
from tests.jobs.capturing.llama import (
    CLUSTER,
    CONFIG,
    LENGTH,
    STACK,
    WORLD,
    planned,
    recorded,
    sums,
)

pytest.importorskip("transformers")

SCRIPT = f"""
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

dist.init_process_group("nccl")
config = LlamaConfig(**{CONFIG!r}, attn_implementation="sdpa", use_cache=False)
with torch.device("cuda"):
    model = LlamaForCausalLM(config)
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for _ in range(2):
    tokens = torch.randint({CONFIG["vocab_size"]}, (1, {LENGTH})).to("cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return recorded(SCRIPT, tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    folder = tmp_path_factory.mktemp("model")
    plan = {"global_batch": WORLD, "microbatch": 1, "zero": 3, "recompute": "none"}
    return planned(folder, layers=CONFIG["num_hidden_layers"], **plan)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    shard = "    fully_shard(layer"
    script = SCRIPT.replace(shard, f"    layer.compile()\n{shard}")
    return recorded(script, tmp_path_factory.mktemp("compiled"))


def test_products_and_attention_are_equal(recording: Recording, closed: Scenario) -> None:
    own = [kernel_of(operator) for operator in recording.operators]
    seen = Counter(own[event.operator] for event in recording.events if event.kind == "kernel")
    here = sums(seen)
    job = from_scenario(closed).job
    there = sums(sum((Counter({k: n}) for k, n in stage_kernels(job, 0)), Counter()))
    for kind in ("gemm", "attention"):
        assert here[kind][0] == there[kind][0], kind
        assert here[kind][1] == pytest.approx(there[kind][1], rel=1e-12), kind


def test_the_step_is_the_same_within_five_percent(recording: Recording, closed: Scenario) -> None:
    played = sim.run(RecordedScenario(record=(recording,), topology=CLUSTER, stack=STACK))
    computed = sim.run(closed)
    assert played.step_time == pytest.approx(computed.step_time, rel=0.05)
    assert played.parameters == computed.parameters
    assert played.tokens_per_second == pytest.approx(computed.tokens_per_second, rel=0.05)


def test_compiled_layers_are_those_of_the_compiled_stack(
    compiled: Recording, closed: Scenario
) -> None:
    """SwiGLU moves the same bytes, back and forth, and the step is as long."""
    own = replace(closed, stack="torchtitan-compile")
    there = {kernel.name: kernel for kernel, _ in stage_kernels(from_scenario(own).job, 0)}
    here = {kernel.name: kernel for kernel in map(kernel_of, compiled.operators)}
    for name, fused in {"swiglu": "mul_silu", "swiglu grad": "mul_silu_silu_backward_view"}.items():
        assert here[f"poi_fused__unsafe_view_{fused}"].bytes == there[name].bytes
    played = sim.run(RecordedScenario(record=(compiled,), topology=CLUSTER, stack=own.stack))
    assert played.step_time == pytest.approx(sim.run(own).step_time, rel=0.05)
