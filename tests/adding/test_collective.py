"""A collective is one file, and a word in the constants of a library of one's own."""

from pathlib import Path

import pytest

from tests.adding.conftest import Add
from tests.adding.walk import invoke, planned, played

SOURCE = '''
"""All-gather by doubling (Bruck et al. 1997): the fewest rounds, each sends all that is held."""

from math import ceil, log2

from sim.collectives.group import LevelLoads, LevelSteps
from sim.collectives.schedule import ChunkSend, ClosedForm, schedule


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
    """Bytes through a port in one node, and through its NICs between nodes."""
    bytes = cost(kind, shape.ranks).bytes
    return LevelLoads(port=bytes) if shape.nodes == 1 else LevelLoads(port=bytes, nic=bytes)


def steps(kind, shape):
    rounds = cost(kind, shape.ranks).rounds
    return LevelSteps(intra=rounds, inter=0) if shape.nodes == 1 else LevelSteps(0, rounds)
'''


@pytest.fixture
def cluster(add: Add, here: Path) -> str:
    """A topology of one's own whose library offers the algorithm."""
    add("sim.collectives.algorithms", "bruck", SOURCE)
    packaged = Path(__file__).parents[2] / "topologies"
    constants = (packaged / "backends" / "nccl.toml").read_text()
    (here / "mine.toml").write_text('further = ["bruck"]\n' + constants)
    rack = (packaged / "dgx-a100-hdr.toml").read_text()
    (here / "rack.toml").write_text('backend = "mine.toml"\n' + rack)
    return "rack.toml"


def test_a_collective_is_taken_where_it_is_faster(cluster: str) -> None:
    """All-gathers among the eight ranks of a node: three rounds instead of seven."""
    usual = {"plan.zero": 3, "gpus": 8}
    spans = played({**usual, "topology": cluster}).timeline.spans
    assert "bruck" in {span.args.get("algorithm") for span in spans}
    usual = {"plan.tp": 8, "plan.sequence_parallel": True, "gpus": 8}
    assert played({**usual, "topology": cluster}).step_time < played(usual).step_time


def test_a_collective_is_shown_and_searched(cluster: str) -> None:
    invoke("show", "bruck", "--picture", "bruck.png")
    assert Path("bruck.png").read_bytes().startswith(b"\x89PNG")
    options = ("--only", "tp=8", "--only", "sequence_parallel=yes")
    mine, usual = planned(*options, topology=cluster), planned(*options)
    assert mine[0]["step_time"] < usual[0]["step_time"]
