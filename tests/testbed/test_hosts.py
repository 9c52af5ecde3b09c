"""The hosts start, execute patterns, and leave nothing behind, however they end."""

import os
import select
import signal
import subprocess
import sys

import pytest

from tests.testbed import wiring
from tests.testbed.hosts import Hosts

pytestmark = pytest.mark.testbed

_KILLED = """
import os, signal
from tests.testbed.hosts import Hosts
with Hosts(2) as hosts:
    print(*(process.pid for process in hosts._processes), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def has_ended(pid: int) -> bool:
    """Wait for the end of a process, up to 5 s."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(descriptor) as process:
        ended, _, _ = select.select([process], [], [], 5.0)
    return bool(ended)


def test_a_host_that_dies_is_reported_and_the_others_end() -> None:
    with Hosts(2) as hosts:
        pids = [process.pid for process in hosts._processes]
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(RuntimeError, match="host 1 has died"):
            hosts.measure("all_reduce", size=1 << 20)
    assert all(map(has_ended, pids))


def test_a_pattern_that_fails_says_why() -> None:
    with Hosts(2) as hosts, pytest.raises(RuntimeError, match="no attribute 'nonsense'"):
        hosts.measure("nonsense")


def test_nothing_outlives_tests_that_are_killed() -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3
    assert all(map(has_ended, pids))


def test_every_host_has_a_namespace_of_its_own() -> None:
    here = os.readlink("/proc/self/ns/net")
    with Hosts(2) as hosts:
        theirs = {os.readlink(f"/proc/{process.pid}/ns/net") for process in hosts._processes}
    assert len(theirs) == 3
    assert here not in theirs


def test_the_shaper_guarantees_less_than_the_link_has() -> None:
    """Otherwise classes that start together exceed it."""
    lines = wiring.shaper("eth0", 1e6, range(1, 8), "dst")
    rates = [
        int(words[words.index("rate") + 1].removesuffix("bit"))
        for words in (line.split() for line in lines if "parent 1:1 " in line and "class" in line)
    ]
    assert len(rates) == 9
    assert sum(rates) <= 0.9 * 8e6
