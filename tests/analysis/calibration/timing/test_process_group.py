"""Ranks that are started here: answers come back, and if a rank dies the others are ended."""

import os
import signal
from importlib.util import find_spec
from multiprocessing import active_children, get_context
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import pytest

from sim.analysis.calibration.timing import process_group
from sim.config.errors import InputError

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


def total(rank: int, share: float) -> float:
    import torch
    import torch.distributed as dist

    shares = torch.tensor([share * (rank + 1)])
    dist.all_reduce(shares)
    return float(shares)


def listening_at(rank: int) -> list[str]:
    """Addresses at which this process listens, as hexadecimal text of /proc/net/tcp and tcp6."""
    assert total(rank, 1.0) == 3.0
    files = [Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    own = {os.readlink(file) for file in files if file.is_symlink()}
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]


def second_fails(rank: int) -> float:
    if rank == 1:
        raise RuntimeError("out of cheese\nredo from start")
    return total(rank, 1.0)


def second_is_killed(rank: int) -> float:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return total(rank, 1.0)


def second_fails_while_the_first_waits_forever(rank: int) -> None:
    if rank == 1:
        raise RuntimeError("out of cheese")
    signal.pause()


def test_ranks_form_a_process_group() -> None:
    assert process_group.run(total, 2, 2.0, threads=1) == 6.0


LOOPBACK = {"0100007F", "0" * 24 + "01000000", "0000000000000000FFFF00000100007F"}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks into Linux's /proc")
def test_ranks_listen_on_the_loopback(monkeypatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    found = process_group.run(listening_at, 2, threads=1)
    assert found
    assert set(found) <= LOOPBACK


@pytest.mark.parametrize(
    ("environment", "asked", "listens"),
    [
        ({}, None, "lo"),
        ({}, "eth1", "eth1"),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, None, "lo"),
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, None, None),
    ],
    ids=["alone", "asked for", "torchrun on a node", "torchrun on two nodes"],
)
@pytest.mark.parametrize("library", ["NCCL", "GLOO"])
def test_an_interface_that_was_asked_for_is_kept(
    environment, asked, listens, library, monkeypatch
) -> None:
    name = f"{library}_SOCKET_IFNAME"
    kept = {key: value for key, value in os.environ.items() if "SOCKET_IFNAME" not in key}
    monkeypatch.setattr(os, "environ", kept | environment | ({name: asked} if asked else {}))
    process_group.listen_here()
    assert os.environ.get(name) == listens


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (second_fails, "rank 1: RuntimeError: out of cheese"),
        (second_is_killed, "rank 1: died by signal"),
    ],
)
def test_the_error_is_that_of_the_rank_that_died_first(task, message) -> None:
    with pytest.raises(InputError, match=message):
        process_group.run(task, 2, threads=1)


def test_a_rank_that_dies_ends_the_others_even_if_they_wait_forever() -> None:
    before = {*active_children()}
    with pytest.raises(InputError, match="rank 1: RuntimeError: out of cheese"):
        process_group.run(second_fails_while_the_first_waits_forever, 2, threads=1)
    assert {*active_children()} == before


def connects_and_waits_forever(rank: int, address: str) -> None:
    connection = Client(address)
    connection.send(rank)
    signal.pause()


def has_ended(connection: Connection) -> bool:
    """Wait until the process at the other end is gone: its connection closes with it."""
    with pytest.raises(EOFError):
        connection.recv()
    return True


def test_ranks_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    address = str(tmp_path / "socket")
    with Listener(address) as listener:
        arguments = (connects_and_waits_forever, 2, address)
        parent = get_context("spawn").Process(target=process_group.run, args=arguments)
        parent.start()
        connections = [listener.accept() for _ in range(2)]
    assert {connection.recv() for connection in connections} == {0, 1}
    parent.kill()
    assert all(map(has_ended, connections))


def test_one_rank_needs_no_process() -> None:
    answer = process_group.run(lambda rank, word: (rank, word, os.getpid()), 1, "a")
    assert answer == (0, "a", os.getpid())


def test_torchrun_with_another_number_of_ranks_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(InputError, match="torchrun started 4 ranks, the scenario has 2"):
        process_group.run(total, 2, 1.0)
