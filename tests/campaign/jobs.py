"""Valid jobs of every kind, drawn from a number: small, so that a law takes milliseconds."""

import random
from collections.abc import Callable

from tests.campaign import company_jobs, features, rollout_jobs

Document = features.Document

# Those whose every law of `laws.ALL` holds; servers, loops and companies have their own.
PARTS = ("dense", "experts", "offload", "features", "shared")
_STACKS = {"fp16": "megatron-lm-2022", "bf16": "megatron-core"}


def drawn(kind: str, number: int) -> Document:
    """The scenario of a number, as its file has it."""
    return _DRAWN[kind](random.Random(number))


def _layout(chance: random.Random, *, tp: int, pp: int, gpus: int) -> Document:
    """A plan of what is not left to expert and data parallelism."""
    microbatch, dp = chance.choice((1, 2)), gpus // (tp * pp)
    interleave = chance.choice((1, 2)) if pp > 1 else 1
    plan: Document = {
        "tp": tp,
        "pp": pp,
        "microbatch": microbatch,
        "global_batch": dp * microbatch * pp * chance.choice((1, 2, 4)),
        "zero": chance.choice((0, 1, 2) if pp == 1 else (0, 1)),
        "recompute": chance.choice(("none", "full", "selective")),
    }
    if interleave > 1:
        plan |= {"schedule": "interleaved", "interleave": interleave}
    elif pp > 1:
        plan["schedule"] = chance.choice(("1f1b", "gpipe", "zb-h1"))
    if tp > 1:
        plan["sequence_parallel"] = chance.choice((True, False))
    return plan


def _beside(chance: random.Random, gpus: int, layers: int) -> Document:
    """What may be slow, and how many layers are left of the model."""
    own: Document = {"change": {"model.layers": layers}}
    if chance.random() < 0.3:
        slow = chance.choice(({"rank": chance.randrange(gpus)}, {"link": "node0.nic0"}))
        own["straggler"] = [{**slow, "factor": chance.choice((1.1, 1.5, 3.0))}]
    cause = {"name": "kernels", "kind": "lognormal", "sigma": chance.choice((0.05, 0.2))}
    return own | {"jitter": {"seed": chance.randrange(100), "cause": [cause]}}


def _dense(chance: random.Random) -> Document:
    tp, pp = chance.choice(((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (8, 1)))
    gpus = chance.choice((8, 16, 32))
    model = chance.choice(("gpt2-124m", "llama2-7b", "bert-large"))
    model = "llama2-7b" if tp == 8 else model  # the others' heads are not divided by 8
    topology, precision = chance.choice(
        (("dgx-a100-hdr", "fp16"), ("dgx-h100-ndr", "bf16"), ("dgx-1-v100", "fp16"))
    )
    plan = _layout(chance, tp=tp, pp=pp, gpus=gpus)
    if chance.random() < 0.2 and model == "llama2-7b" and gpus // (tp * pp) % 2 == 0:
        plan["cp"] = 2
    layers = pp * plan.get("interleave", 1) * chance.choice((1, 2))
    return {
        "model": model,
        "topology": topology,
        "stack": _STACKS[precision],
        "gpus": gpus,
        "plan": plan | {"precision": precision},
        **_beside(chance, gpus, layers),
    }


def _experts(chance: random.Random) -> Document:
    model, ep = chance.choice((("mixtral-8x7b", 8), ("gpt-oss-20b", 8), ("qwen3-30b-a3b", 8)))
    pp, gpus = chance.choice((1, 2)), chance.choice((8, 16))
    plan = _layout(chance, tp=1, pp=pp, gpus=gpus)
    plan["ep"] = chance.choice([size for size in (1, 2, 4, ep) if gpus // pp % size == 0])
    if chance.random() < 0.4:  # the axes that false deadlocks had between them
        plan |= chance.choice(({"cp": 2}, {"cp": 4}, {"axes": {"ulysses": 2}}))
    if chance.random() < 0.3:
        routing = {"law": "zipf", "exponent": chance.choice((0.2, 0.8))}
    else:
        routing = {"law": "balanced"}
    layers = pp * plan.get("interleave", 1)
    own = _beside(chance, gpus, layers)
    own["change"]["model.blocks.experts.routing"] = routing
    return {
        "model": model,
        "topology": chance.choice(("dgx-a100-hdr", "dgx-h100-ndr")),
        "stack": "megatron-core",
        "gpus": gpus,
        "plan": plan | {"precision": "bf16"},
        **own,
    }


def _offload(chance: random.Random) -> Document:
    gpus = chance.choice((8, 16))
    plan = _layout(chance, tp=1, pp=1, gpus=gpus)
    plan["zero"] = chance.choice((1, 2, 3))
    offload: Document = {"optimizer": chance.choice((0.5, 1.0))}
    if plan["recompute"] == "full":
        offload |= {
            "activations": chance.choice((0.5, 1.0)),
            "overlap": chance.choice((True, False)),
        }
    if plan["zero"] == 3 and chance.random() < 0.5:
        offload["parameters"] = 1.0
    return {
        "model": chance.choice(("llama2-7b", "gpt2-124m")),
        "topology": chance.choice(("dgx-a100-hdr", "dgx-h100-ndr")),
        "stack": "deepspeed",
        "gpus": gpus,
        "plan": plan | {"precision": "bf16", "offload": offload},
        **_beside(chance, gpus, chance.choice((1, 2, 3))),
    }


_METHODS: tuple[Document, ...] = (
    {"method": "all_reduce"},
    {"method": "all_reduce", "overlap": True},
    {"method": "data_parallel"},
    {"method": "parameter_server", "mode": "bsp", "shards": 2},
    {"method": "parameter_server", "mode": "bsp", "overlap": True},
    {"method": "parameter_server", "mode": "async", "shards": 2},
    {"method": "parameter_server", "mode": "async", "buffer": 2, "compensation": 1.0},
    {"method": "parameter_server", "mode": "ssp", "bound": 2},
    {"method": "parameter_server", "mode": "ssp", "bound": 1, "cached": True},
    {"method": "parameter_server", "mode": "backup", "backup": 1},
    {"method": "parameter_server", "servers": "spare", "shards": 2},
    {"method": "parameter_server", "servers": "colocated", "shards": 2},
    {"method": "local_sgd", "period": 2},
    {"method": "local_sgd", "period": 4, "fragments": 2, "overlap": 1},
    {"method": "local_sgd", "period": 4, "site": 2, "site_period": 2},
    {"method": "async_local_sgd", "period": 2},
    {"method": "async_local_sgd", "period": 2, "buffer": 2},
    {"method": "elastic", "period": 2, "moving_rate": 0.9},
    {"method": "gossip", "algorithm": "d_psgd"},
    {"method": "gossip", "algorithm": "ad_psgd", "graph": "complete"},
    {"method": "gossip", "algorithm": "sgp", "overlap": True},
    {"method": "gossip", "algorithm": "random_pairs", "period": 2},
    {"method": "federated", "period": 2, "fraction": 0.5},
    {"method": "federated", "period": 3, "fraction": 0.7, "unequal": 1.0, "late": 0.3,
     "online": "2 s", "offline": "1 s"},
    {"method": "hogwild"},
)  # fmt: skip


def _shared(chance: random.Random) -> Document:
    sharing = dict(chance.choice(_METHODS))
    workers = chance.choice((2, 4, 6, 8))
    sharing |= {
        "workers": workers,
        "batch": 8,
        "steps": chance.choice((4, 8, 12)),
        "seed": chance.randrange(100),
        "learning": {
            "task": chance.choice(("quadratic", "logistic", "perceptron")),
            "size": 8,
            "rate": 0.05,
        },
        "times": {
            "forward": f"{chance.choice((1, 30))} ms",
            "backward": f"{chance.choice((2, 60))} ms",
            "parameters": chance.choice((1e5, 2.5e7)),
        },
    }
    if chance.random() < 0.5:
        slow: Document = {"kind": "lognormal", "sigma": 0.2}
        if chance.random() < 0.5:
            slow["ranks"] = [chance.randrange(workers)]
        sharing["straggler"] = [slow]
    if chance.random() < 0.2 and sharing["method"] in ("all_reduce", "gossip"):
        sharing["compression"] = {"kind": "int8"}
    topology = chance.choice(("dgx-1-v100", "dgx-1-v100-10gbe", "example-hosts"))
    if sharing["method"] in ("hogwild", "data_parallel"):
        topology = "dgx-2-v100"
    return {"topology": topology, "sharing": sharing}


_DRAWN: dict[str, Callable[[random.Random], Document]] = {
    "dense": _dense,
    "experts": _experts,
    "offload": _offload,
    "features": features.drawn,
    "shared": _shared,
    "servers": rollout_jobs.servers,
    "loops": rollout_jobs.loops,
    "companies": company_jobs.companies,
}
