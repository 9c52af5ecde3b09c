"""The documentation as a site."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs import reference
from docs.refresh import ROOT


def test_the_reference_has_every_key_as_it_is_now() -> None:
    assert reference.page() == reference.PAGE.read_text(), "run python -m docs.reference"


def test_the_reference_says_what_a_key_may_hold() -> None:
    text = reference.page()
    assert '| `bandwidth` | text such as `"400 Gb/s"` | *needed* |' in text
    assert '| `precision` | `"fp32"`, `"tf32"`, `"fp16"`' in text
    assert "| `tp` | whole number, at least 1 | `1` |" in text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.long
def test_every_page_is_in_the_site_with_its_pictures(site: Path) -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md"]
    names = [page.relative_to(ROOT / "docs").with_suffix("") for page in pages]
    assert [name for name in names if not (site / name / "index.html").exists()] == []
    assert "```" not in (site / "measuring" / "index.html").read_text()


def test_the_site_asks_no_other_server(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetched = re.findall(
            r"<(?:script|img|link)[^>]+(?:src|href)=\"(https?:[^\"]+)", page.read_text()
        )
        assert fetched == [], page
