"""Checkpoints as traffic: they stop training for what their bytes take on the links, no more."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import sim
from sim import kind, questions
from sim.analysis.reliability.saving import Saving, saving
from sim.config.errors import InputError
from sim.engine.training_run import Conduct, Fault, simulate

JOB: dict[str, Any] = {
    "name": "saved",
    "model": "llama3-8b",
    "topology": "dgx-h100-ndr",
    "gpus": 32,
    "plan": {"global_batch": 32, "tp": 8, "dp": 4, "microbatch": 1},
    "change": {"model.layers": 4},
    "checkpoints": {"steps": 50},
}
WIDE = {"storage.bandwidth": "9e5 GB/s", "host.memory_bandwidth": "9e5 GB/s"}
NICS = {"topology": "h100-grand-teton-roce"}  # whose storage is reached over the NICs


def saved(how: dict[str, Any] | None = None, **more: Any) -> tuple[Saving, float, float]:
    """The seconds of a checkpoint, its bytes, and the step's seconds."""
    scenario = kind.described(deepcopy(JOB | more), how or {})
    setup = kind.set_up(scenario)
    pace = questions.pace(setup)
    assert scenario.checkpoints
    return saving(setup, pace, scenario.checkpoints), pace.size, pace.seconds


@pytest.mark.parametrize("writers", ["all", "replica", "first"])
def test_whoever_writes_training_stops_until_all_bytes_are_in_the_storage(writers: str) -> None:
    found, size, _ = saved({"checkpoints.writers": writers, "storage.write": "1 GB/s"})
    assert found.stop == pytest.approx(size / 1e9, rel=1e-9)


def test_a_bandwidth_says_the_same_as_a_storage_of_it() -> None:
    known, size, _ = saved({"checkpoints.storage": "2 GB/s"})
    played, _, _ = saved({"storage.write": "2 GB/s", "storage.read": "2 GB/s"} | WIDE)
    assert known.stop == played.stop == pytest.approx(size / 2e9)
    assert known.read == played.read == pytest.approx(size / 2e9)


def test_the_first_rank_alone_is_held_up_by_its_own_links() -> None:
    wide = WIDE | {"storage.write": "9e5 GB/s"}
    alone, size, _ = saved({"checkpoints.writers": "first"} | wide)
    every, _, _ = saved({"checkpoints.writers": "all"} | wide)
    pcie = kind.set_up(kind.described(deepcopy(JOB))).machine.topology.capacity(("pcie-up", 0, 0))
    assert alone.stop == pytest.approx(size / pcie, rel=1e-6)  # faster than a NIC's 3/4 of them
    assert every.stop == pytest.approx(size / 32 / pcie, rel=1e-6)


def test_asynchronous_checkpoints_stop_training_for_the_copy_and_are_written_beside_steps() -> None:
    slow = {"storage.write": "1 GB/s", "checkpoints.steps": 1000}
    stops, size, step = saved(slow)
    beside, _, _ = saved(slow | {"checkpoints.asynchronous": True})
    assert beside.stop < 0.01 * stops.stop
    assert beside.persist >= stops.stop * (1 - 1e-9)  # the storage is no faster
    assert beside.beside >= size / 1e9 / step


def test_steps_wait_for_a_checkpoint_that_is_not_written_before_the_next_one() -> None:
    late = {"storage.write": "1 GB/s", "checkpoints.steps": 4, "checkpoints.asynchronous": True}
    found, size, step = saved(late)
    assert size / 1e9 > 4 * step
    assert found.beside == 4
    assert found.stop == pytest.approx(size / 1e9 - 4 * step, rel=0.02)


def test_a_checkpoint_slows_the_steps_beside_it_where_they_share_nics() -> None:
    store = {"kind": "parallel", "read": "9e5 GB/s", "write": "9e5 GB/s"}
    host = {"generation": 5, "memory": "2 TB", "memory_bandwidth": "9e5 GB/s", "latency": "0 s"}
    change = {"topology.storage": store, "topology.host": host, "network.bandwidth": "1 GB/s"}
    change |= {"checkpoints.asynchronous": True, "stack.overlap_gradients": False}
    shared, size, _ = saved(change, **NICS)
    own = change | {"topology.storage": store | {"bandwidth": "8 GB/s"}}
    apart, _, _ = saved(own, **NICS)
    assert shared.stop > apart.stop
    nics = 32 * 1e9 * 0.9  # at least what a link's payload is
    assert shared.stop - apart.stop <= size / nics  # no more than its bytes take there


def test_copies_at_peers_are_safe_sooner_and_read_back_sooner() -> None:
    slow = {"storage.write": "1 GB/s", "storage.read": "1 GB/s", "checkpoints.steps": 1000}
    slow |= {"checkpoints.asynchronous": True}
    none, host, peer = (saved(slow | {"checkpoints.copy": c})[0] for c in ("none", "host", "peer"))
    assert none.nearby is None
    assert host.nearby == peer.nearby
    assert host.nearby is not None
    assert host.nearby < peer.read < host.read == none.read
    assert peer.persist < host.persist == none.persist


def test_a_fault_that_breaks_no_node_restarts_from_its_memory() -> None:
    def away(breaks: bool) -> float:
        conduct = Conduct(interval=1e3, stop=1.0, restart=500.0, in_place=100.0, detection=0.0,
                          spares=10**9)  # fmt: skip
        fault = Fault(name="one", rate=1e-4, breaks=breaks)
        ledger = simulate([fault], conduct, seconds=1e6, rng=np.random.default_rng(0))
        return ledger.seconds["restart"] / ledger.faults["one"]

    assert away(False) == pytest.approx(100.0, rel=0.05)
    assert away(True) == pytest.approx(500.0, rel=0.05)


def test_goodput_and_cost_take_their_seconds_from_the_traffic() -> None:
    scenario = kind.described(deepcopy(JOB), {"storage.write": "1 GB/s"})
    found, _, step = saved({"storage.write": "1 GB/s"})
    goodput = sim.goodput(scenario, days=1)
    assert goodput.conduct.stop == pytest.approx(found.stop)
    assert goodput.conduct.restart - 360.0 == pytest.approx(found.read)
    cost = sim.cost(scenario, tokens=1e9)
    each = cost.seconds / (1e9 / (32 * 8192))
    assert each == pytest.approx(step + found.stop / 50)
    set_ = sim.goodput(scenario, days=1, settings={"recovery.storage": "3 GB/s"})
    assert set_.conduct.stop == pytest.approx(set_.checkpoint_bytes / 3e9)


@pytest.mark.parametrize(
    ("settings", "more", "fault"),
    [
        ({"checkpoints.storage": "1 GB/s", "checkpoints.writers": "first"}, {}, "training stops"),
        ({}, NICS, "does not say what its storage is"),
        ({"checkpoints.copy": "peer", "plan.dp": 1}, {"gpus": 8}, "no other nodes"),
    ],
)
def test_a_checkpoint_that_cannot_be_is_refused(
    settings: dict[str, Any], more: dict[str, Any], fault: str
) -> None:
    with pytest.raises(InputError, match=fault):
        saved(settings, **more)


def test_a_plan_that_says_nothing_of_checkpoints_writes_them_to_its_topologys_storage() -> None:
    silent = {key: value for key, value in JOB.items() if key != "checkpoints"}
    change = {"storage.write": "1 GB/s"}
    played = sim.goodput(kind.described(deepcopy(silent), change), days=1)
    assert played.conduct.stop == pytest.approx(played.checkpoint_bytes / 1e9, rel=1e-6)
    away = sim.goodput(kind.described(deepcopy(silent | NICS)), days=1)
    assert away.conduct.stop == pytest.approx(away.checkpoint_bytes / (2e12 * 32 / 16384))
