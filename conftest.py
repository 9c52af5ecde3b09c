"""Of a property 20 examples are drawn, which may take as long as a busy machine needs (and 100 with
`--hypothesis-profile=many`); modules are read for doctests only where they have some; the laws of
traffic hold in every test; of a test's cases `few` are run, and the others where all are."""

import gc
import os
from collections.abc import Generator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from tests import invariants

settings.register_profile("many", deadline=None, max_examples=100)
settings.register_profile("few", deadline=None, max_examples=20)
settings.load_profile("few")
invariants.watch()
# Every core has a worker already: a test that wants several processes says how many.
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")
gc.disable()  # until all tests are collected

SOURCES = Path(__file__).parent / "sim"
# Scripts and modules beside tests that need torch: they hold no tests.
SCRIPTS = ("traces/ddp.py", "recorded/ddp.py", "capturing/modules.py", "capturing/fuzz.py")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Modules without doctests are not imported, among them all that need torch."""
    if collection_path.as_posix().endswith(SCRIPTS):
        return True
    inside = collection_path.suffix == ".py" and SOURCES in collection_path.parents
    return True if inside and b">>>" not in collection_path.read_bytes() else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Tests without doctests are not searched for them."""
    found = yield
    has = b">>>" in file_path.read_bytes() if found else False
    return [one for one in found if has or not isinstance(one, DoctestModule)]


def pytest_collection_finish() -> None:
    """What was collected stays: the garbage collector need not go through it again and again."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`few(n)` of the cases of a test, evenly spread, are run; the others are `further`."""
    for _, group in groupby(items, key=lambda item: (item.path, getattr(item, "originalname", ""))):
        cases = list(group)
        if (few := cases[0].get_closest_marker("few")) is None:
            continue
        kept = {number * len(cases) // few.args[0] for number in range(few.args[0])}
        for number in {*range(len(cases))} - kept:
            cases[number].add_marker(pytest.mark.further)
