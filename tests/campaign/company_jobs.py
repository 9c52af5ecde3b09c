"""Several jobs on one cluster, drawn at random.

Pods have three nodes. A job has a node of each of two pods, so that jobs meet on uplinks; loaders
and checkpoints meet on one store, too.
"""

import random
from collections.abc import Sequence

from tests.campaign.features import Document

ACROSS = ([0, 3], [1, 4], [2, 5])


def companies(chance: random.Random) -> Document:
    """Two or three jobs of a step's tenths of a second."""
    store = {
        "kind": "parallel",
        "read": "4 GB/s",
        "write": "4 GB/s",
        "nodes": chance.choice((0, 3)),
    }
    change = {
        "network.nodes_per_pod": 3,
        "network.oversubscription": chance.choice((2.0, 8.0, 24.0)),
        "storage": store,
        "host": {"generation": 5, "memory": "2 TB", "memory_bandwidth": "400 GB/s"},
    }
    jobs = [_job(chance, nodes) for nodes in ACROSS[: chance.choice((2, 2, 3))]]
    return {
        "topology": "h100-grand-teton-roce",
        "gpus": 72,
        "steady": 6,
        "change": change,
        "job": [own | {"name": f"job {number}"} for number, own in enumerate(jobs)],
    }


def _job(chance: random.Random, nodes: Sequence[int]) -> Document:
    tp, pp = chance.choice(((8, 1), (8, 2), (4, 2), (2, 1), (8, 1)))
    dp, microbatch = 16 // (tp * pp), chance.choice((1, 2))
    plan: Document = {
        "tp": tp,
        "pp": pp,
        "microbatch": microbatch,
        "global_batch": dp * microbatch * pp * chance.choice((1, 2)),
        "zero": chance.choice((0, 1, 3) if pp == 1 else (0, 1)),
    }
    scenario: Document = {"model": chance.choice(("llama2-7b", "llama3-8b")), "plan": plan}
    if chance.random() < 0.3:
        scenario["loader"] = {"read": f"{chance.choice((1, 50, 200))} MB"}
    if chance.random() < 0.4:
        scenario["checkpoints"] = {"steps": chance.choice((10, 40))}
    overlap = chance.choice((True, False))
    return {
        "scenario": scenario,
        "nodes": list(nodes),
        "start": f"{chance.choice((0, 0, 37, 210))} ms",
        "set": {
            "model.layers": 2,
            "stack.overlap_gradients": overlap,
            "stack.overlap_gather": overlap,
        },
    }
