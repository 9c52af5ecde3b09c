"""A collective is one file, and a word in a topology of one's own."""

from pathlib import Path

import pytest

from sim.collectives.readings import condense
from sim.collectives.schedule import GroupShape, algorithms
from tests.adding.conftest import Add
from tests.adding.walk import invoke, planned, played, usual
from tests.collectives.test_levels import levels

SOURCE = '''
"""All-gather by doubling (Bruck et al. 1997): the fewest rounds, each sends all that is held."""

from math import ceil, floor, log2

from sim.collectives.schedule import ChunkSend, ClosedForm, LevelLoads, LevelSteps, schedule


def all_gather(ranks):
    held, rounds = 1, []
    while held < ranks:
        moved = range(min(held, ranks - held))
        rounds.append(
            [ChunkSend(i, (i - held) % ranks, (i + c) % ranks) for i in range(ranks) for c in moved]
        )
        held += len(moved)
    return schedule("all_gather", ranks, ranks, rounds)


def cost(kind, ranks):
    return ClosedForm(rounds=ceil(log2(ranks)), bytes=(ranks - 1) / ranks)

def loads(kind, shape):
    """Bytes through the busiest port, and all that leave a node: round by round, some members
    reach a peer in the node as long as it is larger than the distance."""
    n, g = shape.ranks, shape.per_node if shape.nodes > 1 else shape.ranks
    rounds = [(held, min(held, n - held)) for held in (1 << i for i in range(ceil(log2(n))))]
    port = sum(moved for held, moved in rounds if held < g) / n
    nic = sum(min(held, g) * moved for held, moved in rounds) / n
    return LevelLoads(port=port) if shape.nodes == 1 else LevelLoads(port=port, nic=nic)


def steps(kind, shape):
    """The rounds of one chunk; those of a distance within a node stay there at best."""
    rounds = ceil(log2(shape.ranks))
    inside = rounds if shape.nodes == 1 else floor(log2(shape.per_node))
    return LevelSteps(intra=inside, inter=rounds - inside)
'''


@pytest.fixture
def cluster(add: Add, here: Path) -> str:
    """A topology of one's own that offers the algorithm beside the library's."""
    add("sim.collectives.algorithms", "doubling", SOURCE)
    packaged = Path(__file__).parents[2] / "topologies"
    rack = (packaged / "dgx-a100-hdr.toml").read_text()
    offered = 'algorithm = ["auto", "doubling"]\n'
    (here / "rack.toml").write_text(rack.replace("[node]\n", "[node]\n" + offered))
    return "rack.toml"


@pytest.mark.parametrize(("nodes", "per_node"), [(1, 8), (2, 8), (4, 8), (2, 4), (4, 2), (3, 1)])
def test_its_loads_are_those_of_its_rounds(add: Add, nodes: int, per_node: int) -> None:
    add("sim.collectives.algorithms", "doubling", SOURCE)
    own, ranks = algorithms()["doubling"], nodes * per_node
    counted = levels(condense(own.all_gather(ranks)).edges, per_node)
    stated = own.loads("all_gather", GroupShape(ranks=ranks, nodes=nodes, per_node=per_node))
    assert stated.port == pytest.approx(counted.port)
    assert stated.nic == pytest.approx(counted.nic)


def test_a_collective_is_taken_where_it_is_faster(cluster: str) -> None:
    """All-gathers among the eight ranks of a node: three rounds instead of seven."""
    sharded = {"plan.zero": 3, "gpus": 8}
    spans = played({**sharded, "topology": cluster}).timeline.spans
    assert "doubling" in {span.args.get("algorithm") for span in spans}
    divided = {"plan.tp": 8, "plan.sequence_parallel": True, "gpus": 8}
    assert played({**divided, "topology": cluster}).step_time < usual(divided).step_time


def test_a_collective_is_shown_and_searched(cluster: str) -> None:
    invoke("show", "doubling", "--picture", "doubling.png")
    assert Path("doubling.png").read_bytes().startswith(b"\x89PNG")
    options = ("--only", "tp=8", "--only", "sequence_parallel=yes")
    mine, packaged = planned(*options, topology=cluster), planned(*options)
    assert mine[0]["step_time"] < packaged[0]["step_time"]
