"""A Llama of the 8B model's layers: captured from a script, and laid out by `sim.model`."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from sim.jobs.capturing.capture import capture_script
from sim.jobs.recorded.recording import Recording
from sim.kind import described
from sim.model.kernels import Kernel
from sim.scenario.scenario import Scenario

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
STACK, CLUSTER = "torchtitan-eager", "dgx-h100-ndr"


def recorded(script: str, folder: Path) -> Recording:
    """The first rank of a script."""
    path = folder / "train.py"
    path.write_text(script)
    return capture_script(path, world=WORLD)[0]


def planned(folder: Path, *, layers: int, **plan: Any) -> Scenario:
    """The same model under a plan."""
    config = folder / "config.json"
    kind = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-6}
    own = {**CONFIG, **kind, "num_hidden_layers": layers, "tie_word_embeddings": False}
    config.write_text(json.dumps(own))
    job = {"model": str(config), "topology": CLUSTER, "gpus": WORLD, "stack": STACK, "plan": plan}
    return described(job, {"model.seq": LENGTH})


def sums(kernels: Counter[Kernel]) -> dict[str, tuple[int, float]]:
    """Kernels and FLOPs by kind."""
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for kernel, often in kernels.items():
        found[kernel.family][0] += often
        found[kernel.family][1] += often * kernel.flops
    return {kind: (int(count), flops) for kind, (count, flops) in found.items()}
