"""A loader starves a step by exactly what its narrowest link lacks, and shares every link."""

from copy import deepcopy
from typing import Any

import pytest

from sim import kind
from sim.config.errors import InputError
from sim.program.causes import LOADING
from sim.results.result import Result

BATCH, GPUS = 32, 16
JOB = {
    "name": "loaded",
    "model": "llama3-8b",
    "topology": "dgx-h100-ndr",
    "gpus": GPUS,
    "plan": {"global_batch": BATCH, "tp": 4, "dp": 4, "microbatch": 2},
    "change": {
        "model.layers": 2,
        "storage.kind": "parallel",
        "storage.latency": "0 s",
    },
}
FREE = {"storage.read": "9e6 GB/s", "storage.bandwidth": "9e6 GB/s"}
SMALL = {"loader.read": "1 kB"}


OTHER = {"change": {"model.layers": 2}}  # a job whose cluster has no storage of its own


def played(
    settings: dict[str, Any] | None = None, more: dict[str, Any] | None = None, **how: Any
) -> Result:
    document = deepcopy(JOB | (more or {}))
    result = kind.answer(kind.set_up(kind.described(document, settings or {})), **how)
    assert isinstance(result, Result)
    return result


@pytest.fixture(scope="module")
def step() -> float:
    """The step without a loader."""
    return played().step_time


def test_a_loader_without_limits_takes_no_time(step: float) -> None:
    result = played(SMALL | FREE)
    assert result.step_time == pytest.approx(step, rel=1e-9)
    assert result.loading
    assert (result.loading["waits"], LOADING in result.breakdown) == (0.0, False)


PER_REPLICA = BATCH / 4
LIMITS: dict[str, tuple[dict[str, Any], float]] = {
    "workers": (FREE | {"loader.rate": 0.5, "loader.workers": 4}, PER_REPLICA / (4 * 0.5)),
    "cores": (
        FREE | {"host.cores": 12, "loader.rate": 0.5, "loader.workers": 1000},
        BATCH / 2 / (4 * 0.5),
    ),
    "storage": (FREE | {"storage.read": "1 GB/s", "loader.read": "1 GB"}, BATCH),
    "operations": (FREE | {"storage.operations": 4, "loader.operations": 3}, BATCH * 3 / 4),
    "client": (FREE | {"storage.bandwidth": "1 GB/s", "loader.read": "1 GB"}, BATCH / 2),
    "pcie": (FREE | {"host.bandwidth": "1 GB/s", "host.generation": 0, "host.efficiency": 1.0,
                     "host.gpudirect": False, "loader.copied": "2 GB"}, PER_REPLICA / 4 * 2),
}  # fmt: skip


@pytest.mark.parametrize("limit", LIMITS)
def test_a_step_that_waits_is_as_long_as_its_samples_take_on_the_narrowest_link(
    limit: str, step: float
) -> None:
    settings, seconds = LIMITS[limit]
    result = played(SMALL | {"loader.prefetch": 4} | settings)
    assert result.step_time == pytest.approx(seconds, rel=1e-6)
    assert result.loading
    assert result.loading["limit"] == limit
    assert result.loading["waits"] == pytest.approx(seconds - step, rel=1e-6)
    assert sum(result.breakdown.values()) == pytest.approx(result.step_time, rel=1e-9)


def test_drives_of_a_node_are_its_own() -> None:
    own = {"topology.storage": {"kind": "nvme"}, "host.read": "25 GB/s", "loader.read": "25 GB"}
    result = played(own, OTHER | {"topology": "dgx-a100-hdr"})
    assert result.step_time == pytest.approx(BATCH / 2, rel=1e-6)


def test_more_workers_never_slow_a_step() -> None:
    times = [
        played(SMALL | FREE | {"loader.rate": 20, "loader.workers": workers}).step_time
        for workers in (1, 2, 4, 16, 1000)
    ]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("unfold", [False, True])
def test_every_link_carries_the_bytes_of_all_samples(unfold: bool) -> None:
    store = {"kind": "parallel", "read": "40 GB/s", "write": "20 GB/s", "operations": 1e6}
    sizes = {"topology.storage": store, "loader.read": "3 MB", "loader.copied": "5 MB"}
    on = OTHER | {"topology": "dgx-a100-hdr"}
    result, plain = played(sizes, on, unfold=unfold), played({}, on, unfold=unfold)

    def carried(answer: Result, kind_: str) -> float:
        return sum(load.bytes for load in answer.links if load.name.startswith(kind_))

    assert carried(result, "storage-down") == pytest.approx(BATCH * 3e6)
    assert carried(result, "operations") == pytest.approx(BATCH)
    if unfold:  # folded, a class of links is listed once
        more = carried(result, "nic-down") - carried(plain, "nic-down")
        assert more == pytest.approx(BATCH * 3e6)
        assert carried(result, "pcie-down") == pytest.approx(BATCH * 5e6)
        assert carried(result, "pcie-up") == pytest.approx(BATCH * 3e6)
        assert carried(result, "memory") == pytest.approx(BATCH * 8e6)


@pytest.mark.parametrize("nodes", [0, 1, 2])
@pytest.mark.parametrize("network", ["its own", "the NICs"])
def test_folded_is_as_long_as_unfolded_and_the_clock_as_the_replay(
    nodes: int, network: str
) -> None:
    settings = {
        "gpus": 32, "plan.dp": 8, "loader.read": "100 MB", "loader.copied": "150 MB",
        "loader.rate": 50, "loader.workers": 8, "storage.read": "1 GB/s", "storage.nodes": nodes,
        "host.generation": 3,
    }  # fmt: skip
    more = {}
    if network == "the NICs":
        store = {"kind": "parallel", "read": "1 GB/s", "write": "1 GB/s", "nodes": nodes}
        more = OTHER | {"topology": "h100-grand-teton-roce"}
        settings = {k: v for k, v in settings.items() if not k.startswith(("storage", "host"))}
        settings |= {"topology.storage": store}
    ways: tuple[dict[str, Any], ...] = {}, {"engine": "clock"}, {"unfold": True}
    times = [played(settings, more, **how).step_time for how in ways]
    assert times == pytest.approx([times[0]] * 3, rel=1e-9)


@pytest.mark.parametrize("nodes", [0, 2, 3])
def test_stores_that_span_pods_are_folded_as_they_are(nodes: int) -> None:
    """Three nodes to a store, four to a pod: a store is read from one pod, another from two."""
    store = {"kind": "parallel", "read": "9e5 GB/s", "write": "9 GB/s", "nodes": nodes}
    pods = {"network.nodes_per_pod": 4, "network.oversubscription": 8}
    more = {"topology": "h100-grand-teton-roce", "gpus": 64, "change": OTHER["change"] | pods}
    settings = {"plan.dp": 16, "loader.read": "1 GB", "topology.storage": store}
    folded, unfolded = (played(settings, more, unfold=way).step_time for way in (False, True))
    assert folded == pytest.approx(unfolded, rel=1e-9)


def test_without_prefetch_a_step_begins_when_its_samples_are_there(step: float) -> None:
    limits = {"loader.rate": 4, "loader.workers": 4, "loader.prefetch": 0}
    result = played(SMALL | FREE | limits)
    assert result.step_time == pytest.approx(step + PER_REPLICA / 16, rel=1e-9)


def test_samples_in_the_making_keep_no_more_workers_busy_than_there_are_of_them() -> None:
    many = {"loader.rate": 0.5, "loader.workers": 1000, "host.cores": 2000}
    one, four = (
        played(SMALL | FREE | many | {"loader.prefetch": ahead}).step_time for ahead in (1, 4)
    )
    assert one == pytest.approx(2.0)  # each worker has one sample of a step, for 2 s
    assert four < one


def test_decoding_on_the_device_takes_the_device_s_time(step: float) -> None:
    device = {"loader.decoding": "device", "loader.device_rate": 100.0}
    result = played(SMALL | FREE | device)
    assert result.step_time == pytest.approx(step + PER_REPLICA / 4 / 100.0, rel=1e-9)
    assert result.breakdown["decoding"] == pytest.approx(PER_REPLICA / 4 / 100.0)


def test_waiting_for_the_first_byte_keeps_workers_busy_and_no_core() -> None:
    slow = {"storage.latency": "500 ms", "loader.workers": 4, "loader.operations": 2}
    result = played(SMALL | FREE | slow)
    assert result.step_time == pytest.approx(PER_REPLICA * 2 * 0.5 / 4, rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"loader.read": "0 B"}, "read.* positive"),
        (SMALL | {"loader.decoding": "device"}, "belong together"),
        (SMALL | {"host.cores": 8, "loader.rate": 1}, "all 8 host cores serve the devices"),
        (SMALL | {"storage.kind": "nvme"}, "drives are the hosts' own"),
    ],
)
def test_a_loader_that_cannot_be_is_refused(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        played(settings)


def test_a_loader_without_storage_is_refused() -> None:
    with pytest.raises(InputError, match="does not say what its storage is"):
        played(SMALL, OTHER | {"topology": "dgx-a100-hdr"})
