"""Random folded programs: steps of every kind in an order that cannot deadlock."""

import random
from math import inf

from sim.engine.costs import Cost
from sim.engine.folded import (
    CommunicateStep,
    ComputeStep,
    FoldedProgram,
    LinkClass,
    RoleProgram,
    Step,
    Traffic,
    Transfer,
)
from sim.engine.timeline import Role
from sim.program.causes import COMPUTE, PIPELINE
from sim.program.durations import Duration

STREAMS = ("compute", "send", "data")


class _Writer:
    """Appends steps to the streams of roles, in one global order."""

    def __init__(self, rng: random.Random, roles: int) -> None:
        self.rng = rng
        self.streams: list[dict[str, list[Step]]] = [{"compute": []} for _ in range(roles)]
        self.count = [0] * roles

    def index(self, role: int) -> int:
        self.count[role] += 1
        return self.count[role] - 1

    def add(self, role: int, stream: str, step: Step) -> None:
        self.streams[role].setdefault(stream, []).append(step)

    def after(self, role: int) -> tuple[int, ...]:
        known = self.count[role] - 1
        return tuple({self.rng.randrange(known) for _ in range(self.rng.randrange(3))} if known
                     else ())  # fmt: skip

    def compute(self, role: int, joins: tuple[int, ...] = ()) -> None:
        index, rng = self.index(role), self.rng
        device, host = (
            rng.choice((0.0, 1.0, rng.uniform(0, 5))),
            rng.choice((0.0, rng.uniform(0, 4))),
        )
        lead = max(device, host) + rng.choice((0.0, rng.random(), 1.0)) * min(device, host)
        wait = rng.choice((-inf, -inf, 0.0, rng.uniform(0, device + host)))
        own = Duration(device, host, lead, wait)
        cost, sync = Cost(own, {COMPUTE: device}), rng.random() < 0.2
        step = ComputeStep(index, f"C{index}", cost, self.after(role), sync, joins=joins)
        self.add(role, "compute", step)

    def communicate(self, role: int, transfers: tuple[int, ...], *, joined: bool = False) -> None:
        index = self.index(role)
        stream = "compute" if joined else self.rng.choice(STREAMS)
        sync = stream == "compute" and self.rng.random() < 0.3
        after = () if joined else self.after(role)
        step = CommunicateStep(index, f"T{index}", transfers, after, joined, sync)
        self.add(role, stream, step)


def random_program(
    seed: int, *, roles: int = 4, steps: int = 40, shared: bool = False
) -> FoldedProgram:
    """A program of random computations and transfers; with `shared` these share few links."""
    rng = random.Random(seed)
    writer, loads = _Writer(rng, roles), _Loads(rng, shared)
    transfers: list[Transfer] = []
    for _ in range(steps):
        if rng.random() < 0.5:
            writer.compute(rng.randrange(roles))
            continue
        members = rng.sample(range(roles), rng.randint(1, min(3, roles)))
        number = len(transfers)
        transfers.append(loads.transfer(number, len(members)))
        for role in members:
            if rng.random() < 0.3:
                writer.compute(role, joins=(number,))
                writer.communicate(role, (number,), joined=True)
            else:
                writer.communicate(role, (number,))
    programs = tuple(
        RoleProgram(Role(index=i, name=f"role {i}", stage=i, ranks=1, first_rank=i), streams)
        for i, streams in enumerate(writer.streams)
    )
    return FoldedProgram(roles=programs, transfers=tuple(transfers), links=tuple(loads.links))


class _Loads:
    """Links, and transfers that load them: three for all if `shared`, else one for each."""

    def __init__(self, rng: random.Random, shared: bool) -> None:
        self.rng, self.shared = rng, shared
        self.links = [self._link(number) for number in range(3)] if shared else []

    def _link(self, number: int) -> LinkClass:
        return LinkClass(f"link {number}", 1, self.rng.uniform(0.5, 4.0))

    def transfer(self, number: int, arity: int) -> Transfer:
        rng = self.rng
        size = rng.choice((0.0, rng.uniform(0, 4)))
        if not self.shared:
            self.links.append(self._link(number))
        on = sorted(rng.sample(range(3), rng.randint(1, 3))) if self.shared else [number]
        loads = tuple((link, rng.uniform(0.2, 1.0)) for link in on) if size > 0 else ()
        return transfer(
            f"T{number}",
            size=size,
            loads=loads,
            links=self.links,
            arity=arity,
            latency=rng.choice((0.0, rng.uniform(0, 1))),
        )


def transfer(
    name: str,
    *,
    size: float = 0.0,
    loads: tuple[tuple[int, float], ...] = (),
    links: list[LinkClass] | None = None,
    arity: int = 1,
    latency: float = 0.0,
) -> Transfer:
    """A transfer of so many bytes that loads some of the `links`."""
    alone = max((size * load / (links or [])[link].capacity for link, load in loads), default=0.0)
    return Transfer(
        name=name,
        cause=PIPELINE,
        kind="send",
        arity=arity,
        traffic=Traffic(latency, size, loads, alone),
        bytes=size,
        ranks=arity,
    )
