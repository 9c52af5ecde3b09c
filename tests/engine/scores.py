"""Random scores: steps of every kind in an order that cannot deadlock."""

import random

from sim.engine.folded import LinkClass, Meet, Part, Pass, Score, Step, Transfer
from sim.engine.timeline import Role

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
        lead = max(device, host) + rng.choice((0.0, rng.uniform(0, 1)))
        parts, sync = (("compute", device),), rng.random() < 0.2
        step = Pass(
            index, f"P{index}", device, host, lead, parts, self.after(role), sync, joins=joins
        )
        self.add(role, "compute", step)

    def meet(self, role: int, transfers: tuple[int, ...], *, joined: bool = False) -> None:
        index = self.index(role)
        stream = "compute" if joined else self.rng.choice(STREAMS)
        sync = stream == "compute" and self.rng.random() < 0.3
        after = () if joined else self.after(role)
        self.add(role, stream, Meet(index, f"M{index}", transfers, after, joined, sync))


def random_score(seed: int, *, roles: int = 4, steps: int = 40, shared: bool = False) -> Score:
    """A score of random passes and transfers; with `shared` the transfers share few links."""
    rng = random.Random(seed)
    writer, transfers = _Writer(rng, roles), []
    for _ in range(steps):
        if rng.random() < 0.5:
            writer.compute(rng.randrange(roles))
            continue
        members = rng.sample(range(roles), rng.randint(1, min(3, roles)))
        number = len(transfers)
        transfers.append(_transfer(rng, number, len(members), shared))
        for role in members:
            if rng.random() < 0.3:
                writer.compute(role, joins=(number,))
                writer.meet(role, (number,), joined=True)
            else:
                writer.meet(role, (number,))
    parts = tuple(
        Part(Role(index=i, name=f"role {i}", stage=i, ranks=1, first_rank=i), streams)
        for i, streams in enumerate(writer.streams)
    )
    count = 3 if shared else max(len(transfers), 1)
    links = tuple(LinkClass(f"link {i}", 1, rng.uniform(0.5, 4.0)) for i in range(count))
    return Score(parts=parts, transfers=tuple(transfers), links=links)


def _transfer(rng: random.Random, number: int, arity: int, shared: bool) -> Transfer:
    size = rng.choice((0.0, rng.uniform(0, 4)))
    on = tuple(sorted(rng.sample(range(3), rng.randint(1, 3)))) if shared else (number,)
    loads = tuple((link, rng.uniform(0.2, 1.0)) for link in on)
    return Transfer(
        name=f"T{number}", cause="communication", kind="send", arity=arity,
        latency=rng.choice((0.0, rng.uniform(0, 1))), size=size,
        loads=loads if size > 0 else (), bytes=size, ranks=arity,
    )  # fmt: skip
