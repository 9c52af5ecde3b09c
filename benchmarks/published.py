"""Methods of sharing updates beside published comparisons, and the rows that are not simulated.

    python -m benchmarks.published

Nothing is fitted to these rows. Where ours differ, a second column shows what a single plain reason
would explain.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sim.jobs.sharing.kind import answer
from sim.jobs.sharing.loading import from_scenario
from sim.jobs.sharing.scenario import SharingScenario
from sim.jobs.sharing.setup import SharingSetup
from sim.kind import load

Settings = dict[str, Any]


@dataclass(frozen=True)
class PublishedFigure:
    """A published figure, ours, and ours with what would explain the rest."""

    case: str
    measured: float
    simulated: float
    explained: float


# Wang et al. 2020, table 2a: ms an iteration, ResNet-50, 32 nodes of 8 V100s, 10 Gb/s (assumed).
SLOWMO = {"all-reduce": 420.0, "SGP": 304.0, "local SGD, 12 steps": 294.0, "overlapped SGP": 271.0}

# BytePS docs/performance.md, NVLink + TCP: how much faster than Horovod with NCCL, batch 64 a GPU.
BYTEPS = {"resnet50": 0.44, "vgg16": 1.00}

# BytePS README: scaling efficiency of BERT-large on 32 nodes of 8 V100s, 100 Gb/s RDMA.
BERT = {"BytePS": 0.90, "Horovod": 0.70}

# The other rows of the collection that these come from: how many, and why they are left out.
NOT_SIMULATED = {
    "SlowMo, table 2b (3 rows)": "Transformer-big, an encoder-decoder: no model file can say that",
    "BytePS, PCIe + RDMA (2)": "the GPU, the number of nodes and its NIC's PCIe are not stated",
    "DiLoCo, table 2 (5)": "perplexities, and multiples of a compute time that is not given",
    "BMTrain README (10)": "samples a GPU and second, as printed, would exceed a V100's peak",
    "GPipe, tables 2 and 3 (20)": "pipelines, in multiples of a row without seconds",
    "Switch Transformer, table 1 (9)": "encoder-decoders with experts; no updates are shared",
    "GShard (1)": "an encoder-decoder with experts, in days; no updates are shared",
    "FSDP, section 5.4 (3)": "bounds and drops, partly without a batch; no updates are shared",
    "ZeRO, abstract (1)": "petaflop/s without the model's shape; no updates are shared",
}
_RING: Settings = {"method": "all_reduce", "worker": "node"}
# Beside byteps-vgg16: Horovod, with a fusion buffer of 64 MiB by default.
_HOROVOD = _RING | {"overlap": True, "bucket": "64 MiB", "workers": 4, "batch": 64, "steps": 10}
_EXPOSED: Settings = {"overlap": False, "bucket": "25 MiB"}
_BERT: Settings = {
    "model": "bert-large",
    "model.seq": 128,  # assumed: phase 1, all that 64 sequences leave room for
    "model.predictions": 20,
    "topology": "dgx-1-v100",
    "stack": "bert-pytorch",
    "network.nics": 1,
    "network.bandwidth": "100 Gb/s",
}
_BERT_STEP: Settings = {"precision": "fp16", "optimizer": "lamb", "workers": 32}


def slowmo() -> Iterator[PublishedFigure]:
    """Ms an iteration; explained: steps as long as theirs, and twice the network."""
    ring = _RING | {"workers": 32, "batch": 32, "steps": 48}
    methods: dict[str, tuple[str, Settings]] = {
        "all-reduce": ("local-sgd", {"sharing": ring}),
        "SGP": ("gossip-sgp", {}),
        "local SGD, 12 steps": ("local-sgd", {}),
        "overlapped SGP": ("gossip-sgp", {"sharing.overlap": True}),
    }
    shortest = _setup(*methods["overlapped SGP"])
    missing = SLOWMO["overlapped SGP"] / 1e3 - _step(shortest)
    slowdown = 1.0 + missing / shortest.workloads[0].seconds
    slower: Settings = {"sharing.group": [{"ranks": list(range(32)), "slowdown": slowdown}]}
    slower["network.bandwidth"] = "20 Gb/s"
    for method, (name, settings) in methods.items():
        ours, theirs = (_step(_setup(name, settings | more)) for more in ({}, slower))
        yield PublishedFigure(method, SLOWMO[method], 1e3 * ours, 1e3 * theirs)


def byteps() -> Iterator[PublishedFigure]:
    """Gain over an all-reduce, 4 nodes of 8 V100s; explained: a ring that hides behind nothing."""
    for model, gain in BYTEPS.items():
        spare = _step(_setup("byteps-vgg16", {"model": model}))
        hidden, exposed = (
            _step(_setup("byteps-vgg16", {"model": model, "sharing": _HOROVOD | keys}))
            for keys in ({}, _EXPOSED)
        )
        yield PublishedFigure(model, gain, hidden / spare - 1.0, exposed / spare - 1.0)


def bert() -> Iterator[PublishedFigure]:
    """Scaling efficiency of 32 nodes; explained: a ring that hides behind nothing."""
    byteps = {f"sharing.{key}": value for key, value in _BERT_STEP.items()} | {"sharing.shards": 32}
    alone, hidden, exposed = (
        _step(_setup("byteps-vgg16", _BERT | {"sharing": _HOROVOD | _BERT_STEP | keys}))
        for keys in ({"workers": 1}, {}, _EXPOSED)
    )
    spare = alone / _step(_setup("byteps-vgg16", _BERT | byteps))
    hidden, exposed = alone / hidden, alone / exposed
    yield PublishedFigure("BytePS", BERT["BytePS"], spare, spare)
    yield PublishedFigure("Horovod", BERT["Horovod"], hidden, exposed)


def _setup(name: str, settings: Settings) -> SharingSetup:
    scenario = load(name, settings)
    assert isinstance(scenario, SharingScenario), name
    return from_scenario(scenario)


def _step(setup: SharingSetup) -> float:
    return answer(setup).time / setup.plan.steps


def text() -> str:
    """All of it as a person reads it."""
    head = f"  {'':<20} measured  simulated  explained"
    lines = ["SlowMo (Wang et al. 2020), table 2a, ms an iteration", head]
    lines += [_row(line, "8.0f") for line in slowmo()]
    lines += [
        "  The order is theirs. What would explain the rest: GPUs that do 118 images/s where none",
        "  waits, a third of what V100s can (data loading, 2019's software), and a network",
        "  of 20 Gb/s; the 10 Gb/s of the table are assumed.",
        "",
        "BytePS over all-reduce (docs/performance.md, NVLink + TCP; 4 nodes assumed)",
        head,
        *(_row(line, "8.0%") for line in byteps()),
        "",
        "BERT-large on 256 V100s, scaling efficiency (BytePS README; 128 tokens assumed)",
        head,
        *(_row(line, "8.0%") for line in bert()),
        "  What would explain the rest: a ring that hides behind nothing. Ours fills the link and",
        "  runs beside the backward pass, from the first bucket on.",
        "",
        "Rows that cannot be simulated, and why",
    ]
    return "\n".join([*lines, *(f"  {rows}: {why}" for rows, why in NOT_SIMULATED.items())])


def _row(line: PublishedFigure, form: str) -> str:
    cells = (line.measured, line.simulated, line.explained)
    return f"  {line.case:<20} " + "   ".join(format(cell, form) for cell in cells)


if __name__ == "__main__":
    print(text())
