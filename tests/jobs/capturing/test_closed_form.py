"""The same Llama twice: captured from transformers, and by the blocks of `sim.model`."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import sim
from sim.config.checked import altered
from sim.jobs.capturing.capture import capture_script
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


STAGES, MICROBATCHES, SHORT = 4, 8, 2048
STAGED = f"""
import sys, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding)

dist.init_process_group("nccl")
stage, last = dist.get_rank(), {STAGES} - 1
config = LlamaConfig(**{CONFIG!r}, attn_implementation="sdpa", use_cache=False)
vocabulary, hidden = config.vocab_size, config.hidden_size


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden) if stage == 0 else None
        self.layers = nn.ModuleList(LlamaDecoderLayer(config, index) for index in range(2))
        self.rotary = LlamaRotaryEmbedding(config)
        self.norm = LlamaRMSNorm(hidden) if stage == last else None
        self.head = nn.Linear(hidden, vocabulary, bias=False) if stage == last else None

    def forward(self, x):
        x = self.embedding(x) if stage == 0 else x
        positions = self.rotary(x, torch.arange(x.shape[1], device=x.device)[None])
        for layer in self.layers:
            x = layer(x, position_embeddings=positions)
        return self.head(self.norm(x)) if stage == last else x


def loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


with torch.device("cuda"):
    part = Part().to(torch.bfloat16)
pipe = PipelineStage(part, stage, {STAGES}, torch.device("cuda"))
schedule = Schedule1F1B(pipe, {MICROBATCHES}, loss_fn=loss)
optimizer = torch.optim.AdamW(part.parameters(), lr=1e-4, fused=True)
for _ in range(2):
    tokens = torch.randint(vocabulary, ({MICROBATCHES}, {SHORT})).to("cuda")
    given = [tokens] if stage == 0 else []
    target = {{"target": tokens}} if stage == last else {{}}
    schedule.step(*given, **target, return_outputs="outputs" in sys.argv)
    torch.nn.utils.clip_grad_norm_(part.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.long
def test_a_pipeline_of_torch_is_the_closed_form_and_keeps_the_outputs_that_it_returns(
    tmp_path: Path,
) -> None:
    """Weights of 16 bits are their own masters in the script, and not in the plan."""
    script = tmp_path / "train.py"
    script.write_text(STAGED)
    usual, kept = (
        sim.run(
            RecordedScenario(
                record=capture_script(script, given, world=STAGES, stages=True),
                topology=CLUSTER,
                stack=STACK,
            )
        )
        for given in ((), ("outputs",))
    )
    plan = {"pp": STAGES, "global_batch": MICROBATCHES, "moments": "bf16"}
    closed = planned(tmp_path, layers=2 * STAGES, **plan)
    computed = sim.run(altered(closed, {"gpus": STAGES, "change": {"model.seq": SHORT}}, "test"))
    optimizer = computed.breakdown["optimizer"] - usual.breakdown["optimizer"]
    assert usual.step_time == pytest.approx(computed.step_time - optimizer, rel=0.01)
    parts = computed.memory_per_gpu
    masters = parts["optimizer"] / 2
    ours = computed.stages[-1]["memory"] - masters
    assert usual.stages[-1]["memory"] == pytest.approx(ours, rel=0.05)
    logits = 2 * MICROBATCHES * SHORT * CONFIG["vocab_size"]
    more = kept.stages[-1]["memory"] - usual.stages[-1]["memory"]
    assert logits < more < 2.2 * logits  # each, and all joined
