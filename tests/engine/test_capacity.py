"""No link carries more than it can, whichever transfers of whichever communicators are on it."""

import pytest

import sim
from sim import kind
from sim.engine.play import play
from sim.results.result import Result
from sim.scenario.scenario import BaseScenario
from sim.scenario.setup import from_scenario
from tests.campaign.records import over_capacity

NARROW = 20e9  # B/s, of a port


def sequences(**plan: object) -> BaseScenario:
    """Gradients are summed over the very ranks that exchange keys and values in the passes."""
    job = {"name": "cp", "model": "llama3-8b", "topology": "dgx-a100-hdr", "gpus": 8}
    layout = {"global_batch": 1, "cp": 8, "dp": 1, "zero": 0, **plan}
    return kind.described({**job, "stack": "megatron-core", "plan": layout},
                          {"node.bandwidth": f"{NARROW} B/s"})  # fmt: skip


def result(**plan: object) -> Result:
    found = sim.run(sequences(**plan))
    assert isinstance(found, Result)
    return found


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_transfers_of_one_communicator_share_its_links(recompute: str) -> None:
    setup = from_scenario(sequences(recompute=recompute))
    assert over_capacity(play(setup.program, setup.machine, engine="clock")) == ""


def test_more_bytes_on_a_busy_link_take_longer() -> None:
    once, again = result(), result(recompute="full")
    more = sum(link.bytes for link in again.links) - sum(link.bytes for link in once.links)
    ports = len(once.links)
    assert more > 0.0
    least = more / ports / max(link.capacity for link in once.links)
    assert again.step_time - once.step_time >= 0.99 * least
