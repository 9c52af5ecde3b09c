"""Servers for tests: small models on an H100, and servers that never leap."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from sim.engine.live_cluster import LiveCluster
from sim.engine.machine import Machine
from sim.hardware.cluster import topology
from sim.jobs.generation import engine
from sim.jobs.generation.batch import Batch
from sim.jobs.generation.layout import Layout
from sim.jobs.generation.server import Answer, Request, Server, Speed
from sim.model.reading import load
from sim.scenario.setup import machine


@cache
def h100s() -> Machine:
    return machine(topology.load("dgx-h100-ndr").with_gpus(64), None, (), "test")


@cache
def speed(model: str = "llama3-8b", changes: tuple[tuple[str, Any], ...] = (), **of: Any) -> Speed:
    own = replace(engine.load("vllm"), **dict(changes))
    return Speed(load(model), h100s(), own, Layout(**of))


class _OneByOne(Batch):
    def leap(self) -> int:
        super().leap()
        return 1


class Stepping(Server):
    """A server that plays every step by itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.batch = _OneByOne(self.speed)


def requests(seed: int, number: int, longest: int = 300) -> list[Request]:
    """Prompts in groups of up to four equal ones."""
    rng = random.Random(seed)
    found: list[Request] = []
    while len(found) < number:
        prompt, group = rng.randint(1, 200), rng.randint(1, 4)
        key = (seed, len(found)) if rng.random() < 0.7 else None
        found += [Request(prompt, rng.randint(1, longest), key) for _ in range(group)]
    return found[:number]


def play(
    kind: type[Server], of: Speed, asked: Sequence[Request], gap: float = 0.0
) -> tuple[Server, list[Answer]]:
    """Requests that arrive `gap` seconds apart, until all are answered."""
    cluster = LiveCluster(of.machine)
    server = kind(cluster, of, keep=True)
    done = []

    def arrive() -> Any:
        for request in asked:
            done.append(server.submit(request))
            if gap:
                yield cluster.sleep(gap)
        yield cluster.sleep(0.0)

    cluster.start(arrive())
    cluster.run()
    return server, [event.value for event in done]
