"""The same Llama twice: captured from transformers, and by the blocks of `sim.model`."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import sim
from sim.capturing.capture import capture_script
from sim.model.kernels import Kernel
from sim.parallel.stage_kernels import stage_kernels
from sim.recording.kernels import kernel_of
from sim.recording.recording import Recording
from sim.scenario.scenario import RecordedScenario, Scenario, described
from sim.scenario.setup import from_scenario

pytest.importorskip("transformers")

LENGTH, WORLD = 8192, 64
CONFIG = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": LENGTH,
}
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
STACK, CLUSTER = "torchtitan-eager", "dgx-h100-ndr"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    script: Path = tmp_path_factory.mktemp("llama") / "train.py"
    script.write_text(SCRIPT)
    return capture_script(script, world=WORLD)[0]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    config = tmp_path_factory.mktemp("model") / "config.json"
    kind = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-6}
    config.write_text(json.dumps({**CONFIG, **kind, "tie_word_embeddings": False}))
    plan = {"global_batch": WORLD, "microbatch": 1, "zero": 3, "recompute": "none"}
    job = {"model": str(config), "topology": CLUSTER, "gpus": WORLD, "stack": STACK, "plan": plan}
    return described(job, {"model.seq": LENGTH})


def sums(kernels: Counter[Kernel]) -> dict[str, tuple[int, float]]:
    """Kernels and FLOPs by kind."""
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for kernel, often in kernels.items():
        found[kernel.family][0] += often
        found[kernel.family][1] += often * kernel.flops
    return {kind: (int(count), flops) for kind, (count, flops) in found.items()}


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
