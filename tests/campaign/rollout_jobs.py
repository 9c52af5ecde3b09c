"""Servers and loops of reinforcement learning, drawn at random."""

import random

from tests.campaign.features import Document

_WAYS = ("broadcast", "buckets", "sharded")


def _lengths(chance: random.Random, most: int) -> Document:
    law: Document = {"cap": most, "correlation": chance.choice((0.0, 0.5))}
    mean = most // chance.choice((2, 4))
    if chance.random() < 0.3:
        return law | {"law": "constant", "value": mean}
    return law | {"law": "lognormal", "mean": mean, "sigma": chance.choice((0.3, 1.0))}


def servers(chance: random.Random) -> Document:
    """A bare scenario of generation."""
    tp, count = chance.choice((1, 2, 4)), chance.choice((1, 2, 4))
    own: Document = {
        "engine": chance.choice(("vllm", "sglang", "tensorrt-llm")),
        "prompts": chance.choice((1, 7, 40)),
        "answers": chance.choice((1, 4)),
        "prompt": _lengths(chance, chance.choice((32, 600))),
        "answer": _lengths(chance, chance.choice((64, 900))),
        "servers": count,
        "layout": {"tp": tp, "cache": chance.choice(("bf16", "fp8"))},
        "tuning": {"sequences": chance.choice((2, 64, 256))},
        "seed": chance.randrange(100),
    }
    model = chance.choice(("llama3.2-1b", "llama3-8b", "qwen2.5-7b"))
    return {"model": model, "topology": "dgx-h100-ndr", "gpus": tp * count, "generation": own}


def loops(chance: random.Random) -> Document:
    """A loop of a trainer and its servers."""
    answers, gpus = chance.choice((2, 4)), chance.choice((4, 8))
    prompts, staleness = chance.choice((4, 8)), chance.choice((0.0, 0.5, 1.0, 2.0))
    own: Document = {
        "prompts": prompts,
        "answers": answers,
        "steps": 3,
        "seed": chance.randrange(100),
        "staleness": staleness,
        "swap": chance.choice(("drain", "continue", "restart")),
        "recompute": chance.choice((True, False)),
        "deal": chance.choice(("rows", "answers")),
        "prompt": _lengths(chance, 64),
        "answer": _lengths(chance, chance.choice((64, 300))),
        "weights": {"tensor": 0.0, "way": chance.choice(_WAYS)},
        "concurrent": chance.choice((0, 0, 0, 1, 3)),
        "collected": chance.choice((0.0, 1e-5)),
        "parked": chance.choice(([], [], ["weights"])),
        "servers": {"gpus": gpus // 2},
    }
    if chance.random() < 0.3:
        own["oversample"] = 0.5
        own["surplus"] = chance.choice(("drop", "keep"))
    if chance.random() < 0.2:
        own["filtered"] = 0.3
    if chance.random() < 0.3:
        own["chunk"] = prompts // 2
    return {
        "model": "llama3.2-1b",
        "topology": "dgx-h100-ndr",
        "gpus": gpus,
        "plan": {"global_batch": (own.get("chunk") or prompts) * answers},
        "reinforcement": own,
    }
