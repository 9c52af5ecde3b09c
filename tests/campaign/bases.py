"""Jobs that hold, one of every kind, with all files that they reach beside them; mistakes are made
in these."""

import gzip
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from sim.config import catalog
from tests.interface.frameworks.test_documents import TITAN, ZERO
from tests.jobs.traces.synthetic import Machine

TRACE = """{"schemaVersion": 1, "traceEvents": [
 {"ph": "X", "cat": "kernel", "name": "ampere_gemm", "ts": 1.0, "dur": 12.5, "args": {}},
 {"ph": "X", "cat": "kernel", "name": "ncclKernel", "ts": 20, "dur": 40.0, "args":
  {"Collective name": "allreduce", "In msg nelems": 1024, "dtype": "Float", "Group size": 8}}
]}
"""
NCCL = """# nThread 1 nGpus 8
#       size         count      type   redop    root     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    45.10   23.25   40.69      0
     2097152        524288     float     sum      -1    60.20   34.84   60.96      0
"""
ROW = """id,cluster,family,layers,hidden,heads,kv_heads,ffn,vocab,seq,gated_mlp,tied_embeddings,\
gpus,tp,pp,dp,zero,microbatch,global_batch,interleave,schedule,recompute,sequence_parallel,precision,\
attention,software,step_time_s
run-1,dgx-a100-hdr,gpt,12,768,12,12,3072,50304,1024,false,true,8,1,1,8,0,8,64,1,none,none,false,\
fp16,standard,megatron-lm-2021,0.1
"""
MEGATRON = """torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --num-layers 4 \\
 --hidden-size 512 \\
 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 \\
 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 2 \\
 --global-batch-size 64 --bf16 --use-distributed-optimizer --recompute-activations
"""
ORDER = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


@dataclass(frozen=True, kw_only=True)
class Base:
    """A command line, the packaged files that it reaches (renamed `mine`), files of its own."""

    arguments: tuple[str, ...]
    copied: Mapping[str, str] = field(default_factory=dict)  # path here: path there
    own: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @cache  # noqa: B019 - bases are constants
    def files(self) -> dict[str, bytes]:
        """All files by their path in the user's folder."""
        root = catalog.packaged_root()
        copied = {here: (root / there).read_bytes() for here, there in self.copied.items()}
        return copied | {name: text.encode() for name, text in self.own.items()}

    def __hash__(self) -> int:
        return id(self)


def _step(job: str, model: str, topology: str, device: str, stack: str, **more: str) -> Base:
    folders = {
        "models": model,
        "topologies": topology,
        "topologies/devices": device,
        "topologies/stacks": stack,
        "topologies/backends": "nccl",
    }
    return Base(
        arguments=("run", "job.toml"),
        copied={
            f"{folder}/{name}.toml": f"{folder}/{name}.toml" for folder, name in folders.items()
        },
        own={
            "job.toml": f'model = "{model}"\ntopology = "{topology}"\nstack = "{stack}"\n{job}',
            **more,
        },
        keys=(
            "plan.tp",
            "plan.pp",
            "plan.microbatch",
            "plan.global_batch",
            "plan.zero",
            "plan.ep",
            "plan.offload",
            "plan.schedule",
            "plan.interleave",
            "gpus",
            "model.layers",
            "model.seq",
            "model.hidden",
            "model.vocab",
            "network.bandwidth",
            "network.latency",
            "node.bandwidth",
            "device.memory",
            "device.sms",
            "stack.fusion",
            "tokens",
            "jitter",
            "straggler",
            "topology.price",
            "checkpoints.steps",
            "device.gemm.floor",
        ),
        options=("--gpus", "--samples", "--model", "--stack", "--engine", "--profile"),
    )


def _steps() -> str:
    """Two steps of a rank that launches kernels and reduces, as Kineto writes them."""
    rank = Machine()
    for _ in range(4):
        rank.launch(30.0)
        rank.reduce(50.0)
        rank.wait(7, 20)
    with tempfile.TemporaryDirectory() as folder:
        return rank.write(Path(folder) / "trace.json", steps=2).read_text()


def _shared(name: str, model: str, topology: str) -> Base:
    root = catalog.packaged_root()
    text = (root / "scenarios" / f"{name}.toml").read_text()
    copied = {f"topologies/{topology}.toml": f"topologies/{topology}.toml"}
    if model:
        copied[f"models/{model}.toml"] = f"models/{model}.toml"
    return Base(
        arguments=("run", "job.toml"),
        copied=copied,
        own={"job.toml": text},
        keys=(
            "sharing.workers",
            "sharing.steps",
            "sharing.period",
            "sharing.batch",
            "sharing.method",
            "sharing.shards",
            "sharing.overhead",
            "sharing.learning.size",
            "sharing.learning.rate",
            "sharing.learning.unlike",
            "sharing.straggler",
            "sharing.fraction",
            "sharing.late",
            "sharing.times.parameters",
            "sharing.seed",
            "sharing.compression",
            "sharing.failures",
        ),
        options=("--samples", "--gpus"),
    )


DENSE = """gpus = 16
tokens = 1e9
[plan]
tp = 2
pp = 2
microbatch = 2
global_batch = 16
precision = "fp16"
zero = 1
[checkpoints]
steps = 100
storage = "10 GB/s"
[[straggler]]
rank = 3
factor = 1.5
[[jitter.cause]]
name = "kernels"
kind = "lognormal"
sigma = 0.1
[change]
network.bandwidth = "100 Gb/s"
model.layers = 4
"""
EXPERTS = """gpus = 8
[plan]
ep = 4
microbatch = 1
global_batch = 16
precision = "bf16"
[change]
model.layers = 2
"""
OFFLOAD = """gpus = 8
[plan]
zero = 2
microbatch = 2
global_batch = 32
recompute = "full"
precision = "bf16"
[plan.offload]
optimizer = 1.0
activations = 1.0
overlap = true
[change]
model.layers = 2
"""
ORDERED = """gpus = 2
[plan]
pp = 2
global_batch = 2
precision = "fp16"
schedule = "order.csv"
[jitter]
seed = 3
[[jitter.cause]]
name = "seen"
kind = "trace"
file = "trace.csv"
"""
A100 = ("dgx-a100-hdr", "a100-80gb-sxm")
_DENSE = _step(DENSE, "gpt2-124m", *A100, "megatron-lm-2022")

_TESTS = Path(__file__).parents[1]
_FILES = _TESTS / "interface" / "frameworks" / "files"
FRAMEWORKS = (
    ("torchtitan", "job.toml", TITAN),
    ("deepspeed", "zero.json", json.dumps(ZERO)),
    ("nemo", "nemo.yaml", (_FILES / "nemo.yaml").read_text()),
    ("megatron-bridge", "bridge.yaml", (_FILES / "megatron-bridge.yaml").read_text()),
    ("nanotron", "nanotron.yaml", (_FILES / "nanotron.yaml").read_text()),
)
CONFIGS = json.loads((_TESTS / "model" / "hugging_face.json").read_text())
FAMILIES = sorted(CONFIGS)


def _imported(framework: str, name: str, text: str) -> Base:
    model = ("--model=llama3-8b",) if framework == "deepspeed" else ()
    return Base(
        arguments=("import", framework, name, "--topology=dgx-h100-ndr", "--gpus=16", *model),
        own={name: text},
        options=("--gpus", "--topology", "--model", "--name"),
    )


def _config(family: str) -> Base:
    own = {"config.json": json.dumps(CONFIGS[family]["config"])}
    return Base(arguments=("show", "config.json"), own=own)


def _recording(path: Path) -> Base:
    return Base(
        arguments=("run", "record.json", "--topology=dgx-h100-ndr"),
        own={"record.json": _unpacked(path)},
        options=("--gpus", "--topology", "--stack", "--samples"),
    )


def _unpacked(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


BASES = (
    _DENSE,
    _step(EXPERTS, "mixtral-8x7b", *A100, "megatron-core"),
    _step(OFFLOAD, "llama2-7b", *A100, "deepspeed"),
    _step(
        ORDERED,
        "gpt2-124m",
        *A100,
        "megatron-core",
        **{"order.csv": ORDER, "trace.csv": "1.0\n1.0\n1.5\n"},
    ),
    _shared("ps-async", "resnet50", "dgx-1-v100"),
    _shared("local-sgd", "resnet50", "dgx-1-v100-10gbe"),
    _shared("gossip-sgp", "resnet50", "dgx-1-v100-10gbe"),
    _shared("federated", "", "example-hosts"),
    Base(
        arguments=("run", "job.toml", "--samples=20"),
        copied=_DENSE.copied,
        own=_DENSE.own,
        keys=_DENSE.keys,
        options=("--samples",),
    ),
    Base(
        arguments=("goodput", "job.toml", "--days=0.02"),
        copied={
            **_DENSE.copied,
            "topologies/failures/llama3.toml": "topologies/failures/llama3.toml",
        },
        own=_DENSE.own,
        keys=(
            "recovery.restart",
            "recovery.interval",
            "recovery.spares",
            "recovery.storage",
            "recovery.detection",
            "gpus_per_node",
        ),
        options=("--days", "--seed", "--failures"),
    ),
    Base(
        arguments=("cost", "job.toml"),
        copied=_DENSE.copied,
        own=_DENSE.own,
        keys=(
            "topology.price",
            "topology.price.hour",
            "topology.price.host",
            "topology.price.pue",
        ),
        options=("--tokens", "--price", "--goodput"),
    ),
    Base(
        arguments=("sweep", "job.toml", "--vary=plan.tp=1,2", "--jobs=1"),
        copied=_DENSE.copied,
        own=_DENSE.own,
        options=(
            "--vary",
            "--samples",
            "--csv",
            "--vary=plan.microbatch",
            "--vary=network.bandwidth",
            "--out",
            "--store",
        ),
    ),
    Base(
        arguments=("workers", "job.toml", "--counts=1,2"),
        own={"job.toml": Path(catalog.find("scenarios", "ps-bsp")).read_text()},
        keys=("sharing.steps", "sharing.batch"),
        options=("--counts", "--critical-batch", "--least-samples"),
    ),
    Base(
        arguments=("calibrate", "import", "trace.json"),
        own={"trace.json": TRACE},
        options=("--out", "--topology", "--rows", "--kind"),
    ),
    Base(
        arguments=("calibrate", "import", "log.txt"),
        own={"log.txt": NCCL},
        options=("--out", "--topology", "--note"),
    ),
    Base(
        arguments=("validate", "runs.csv", "--jobs=1"),
        own={"runs.csv": ROW},
        options=("--at-most", "--rows", "--set=plan.microbatch", "--set=network.bandwidth"),
    ),
    Base(
        arguments=("show", "topologies/dgx-a100-hdr.toml", "--picture=x.png"),
        copied=_DENSE.copied,
        options=("--gpus", "--picture"),
    ),
    Base(arguments=("show", "models/gpt2-124m.toml"), copied=_DENSE.copied),
    _shared("async-local-sgd", "gpt2-124m", "dgx-a100-hdr"),
    _shared("easgd", "resnet50", "dgx-1-v100"),
    Base(
        arguments=(
            "collective",
            "all_reduce",
            "1 MiB",
            "topologies/dgx-a100-hdr.toml",
            "--gpus=16",
        ),
        copied=_DENSE.copied,
        options=("--gpus", "--algorithm", "--sizes", "--slow", "--slow=node0.nic0", "--trace"),
    ),
    Base(
        arguments=(
            *("plan", "gpt2-124m", "dgx-a100-hdr", "--gpus=2", "--global-batch=4", "--jobs=1"),
            *("--only=microbatch=2", "--only=recompute=none", "--only=zero=0,1"),
        ),
        copied=_DENSE.copied,
        options=(
            *("--gpus", "--global-batch", "--seq", "--stack", "--precision", "--within", "--emit"),
            *("--only=tp", "--without=zero", "--price", "--only"),
        ),
    ),
    Base(
        arguments=("explain", "job.toml"),
        copied=_DENSE.copied,
        own=_DENSE.own,
        keys=_DENSE.keys,
        options=("--profile", "--picture"),
    ),
    Base(
        arguments=("compare", "job.toml", ": plan.microbatch=1"),
        copied=_DENSE.copied,
        own=_DENSE.own,
        keys=_DENSE.keys,
        options=("--target", "--price"),
    ),
    Base(
        arguments=("replay", "trace.json"),
        own={"trace.json": _steps()},
        options=("--kernels", "--kernels=gemm", "--host", "--topology", "--gpus", "--remove"),
    ),
    Base(
        arguments=("import", "megatron", "arguments.sh", "--topology=dgx-a100-hdr"),
        own={"arguments.sh": MEGATRON},
        options=("--gpus", "--topology", "--model", "--name"),
    ),
    *(_imported(framework, name, text) for framework, name, text in FRAMEWORKS),
    *(_config(family) for family in FAMILIES),
    _recording(_TESTS / "jobs/capturing/recordings/ddp-2.12.json.gz"),
    _recording(_TESTS / "jobs/capturing/recordings/fsdp2-2.12.json.gz"),
    _recording(_TESTS / "jobs/recorded/traces/ddp-0.json.gz"),
    Base(
        arguments=("calibrate", "import", "trace.json"),
        own={"trace.json": _unpacked(_TESTS / "jobs/traces/recorded/ddp-0-of-2.json.gz")},
    ),
)
