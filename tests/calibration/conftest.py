"""A process for a GPU that is not there, where torch's inside is known."""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context

import pytest

from sim.capturing.versions import KNOWN

try:
    there = ".".join(version("torch").split(".")[:2]) in KNOWN
except PackageNotFoundError:
    there = False
collect_ignore_glob = [] if there else ["test_cuda*.py"]


@pytest.fixture(scope="session")
def fresh() -> Iterator[Executor]:
    """Autograd makes its queues for devices with a process's first backward pass."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        yield process
