"""The report page in a real browser, where there is one."""

import shutil
import subprocess

import pytest

from sim.outputs import report
from sim.scenario.scenario import load
from sim.simulate import simulate

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_the_page_renders_with_all_its_tables(tmp_path):
    page = tmp_path / "report.html"
    result = simulate(load("gpt3-175b-megatron"))
    report.write(result, page)
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    shot = tmp_path / "page.png"
    for action in ("--dump-dom", f"--screenshot={shot}"):
        done = subprocess.run(
            [str(BROWSER), *QUIET, profile, "--window-size=900,1400", action, page.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        if action == "--dump-dom":
            dom = done.stdout
    step = f"{result.step_time:.1f} s"
    assert all(words in dom for words in ("Where the time goes", "Stages", "Memory", step))
    assert dom.count("<table") >= 3
    # A blank page of this size compresses to a few kB.
    assert shot.stat().st_size > 30_000
