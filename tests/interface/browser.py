"""A browser for tests of pages: Chromium by Playwright, where this machine has both."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; the test is skipped, and says why, where there is none."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    play = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with play.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield running
        running.close()
