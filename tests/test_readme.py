"""What the documentation shows is what happens: every command, file and piece of code is run."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

from docs.refresh import BLOCK, ROOT, SHOWN
from sim.analysis.validation.table import REQUIRED
from sim.collectives.compression import Compression
from sim.engine.live_cluster import LiveCluster
from sim.engine.routes import Regions
from sim.jobs.sharing.averaging import Averaging
from sim.jobs.sharing.barrier import Barrier
from sim.jobs.sharing.mailboxes import Mailboxes
from sim.jobs.sharing.plan import methods
from sim.jobs.sharing.server import Server
from sim.jobs.sharing.tables import (
    Fault,
    Learning,
    LinkChange,
    MeasuredStep,
    StragglerCause,
    WorkerGroup,
)
from sim.jobs.sharing.update_record import UpdateRecord
from sim.jobs.sharing.worker import Worker
from sim.jobs.sharing.worker_pool import WorkerPool
from sim.variability.laws import LAWS
from tests.collectives.execute import execute

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
# Lines that say how fast this machine is.
CLOCK = re.compile(r"^.*(?:Simulated|simulated in| took | CPU | events, ).*$", re.M)

LONG = {"README", "questions", "inputs", "measuring", "storage"}  # pages of many seconds


def parts(text: str) -> tuple[list[str], list[float]]:
    """Words and numbers of a page of output, apart from how long it took."""
    kept = CLOCK.sub("", text)
    numbers = [float(number.replace(",", "")) for number in NUMBER.findall(kept)]
    return NUMBER.sub(" ", kept).split(), numbers


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] * (page.stem in LONG)) for page in SHOWN],
    ids=lambda page: page.stem,
)
def test_every_command_of_a_page_prints_what_stands_there(page: Path, tmp_path: Path) -> None:
    walk = [sys.executable, "-m", "docs.refresh", "--walk", str(page), str(tmp_path)]
    done = subprocess.run(walk, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    shown = json.loads(done.stdout)
    assert shown
    for command in shown:
        (said, stood), (says, stands) = parts(command["stands"]), parts(command["prints"])
        assert said == says, command["command"]
        assert stands == pytest.approx(stood, rel=0.02, abs=0.02), command["command"]


def test_every_column_that_a_table_needs_is_named() -> None:
    text = (ROOT / "docs" / "measuring.md").read_text()
    assert [column for column in REQUIRED if f"`{column}`" not in text] == []


def test_the_page_on_sharing_names_every_key() -> None:
    text = (ROOT / "docs" / "sharing.md").read_text()
    tables = (
        *methods(),
        MeasuredStep,
        WorkerGroup,
        Fault,
        Regions,
        StragglerCause,
        *LAWS,
        LinkChange,
        Learning,
        Compression,
    )
    keys = {field.name for table in tables for field in fields(table) if field.init} - {"law"}
    assert [key for key in sorted(keys) if f"`{key}`" not in text and f".{key}]" not in text] == []


def test_the_table_of_calls_names_functions_and_their_arguments() -> None:
    text = (ROOT / "docs" / "sharing.md").read_text()
    section = text.partition("## A method of your own")[2].partition("\n## ")[0]
    owners: dict[str, type] = {"averaging": Averaging, "barrier": Barrier, "cluster": LiveCluster}
    owners |= {"mailboxes": Mailboxes, "pool": WorkerPool, "record": UpdateRecord}
    owners |= {"server": Server, "worker": Worker}
    calls = re.findall(r"^\| `(?:\w+\.)?(\w+)\.(\w+)\((.*?)\)` \|", section, re.M)
    assert len(calls) == 22
    for owner, name, arguments in calls:
        known = signature(getattr(owners[owner], name)).parameters
        assert {*filter(None, arguments.split(", "))} <= {*known}, name


def test_the_table_of_ways_names_scenarios_that_are_there() -> None:
    text = (ROOT / "docs" / "sharing.md").read_text()
    section = text.partition("## The ways")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|.*`([\w-]+)` \|$", section, re.M)
    assert len(rows) == 26
    assert [name for name in rows if not (ROOT / "scenarios" / f"{name}.toml").exists()] == []


each_page = pytest.mark.parametrize(
    "page",
    [
        *("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "docs/validation/README.md"),
        *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")),
    ],
)


@each_page
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        there = (ROOT / page).parent / target
        assert target.startswith("https://") or there.exists(), target


@each_page
def test_files_and_targets_that_the_pages_name_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    named = re.findall(r"`((?:sim|tests|topologies|scenarios|notebooks)/[\w./-]+\.\w+)`", text)
    there = [name for name in named if "NAME" not in name and name not in NEW_FILES]
    assert [name for name in there if not (ROOT / name).exists()] == []
    targets = re.findall(r"`?make ([a-z]+)`?", "\n".join(re.findall(r"`make [a-z]+", text)))
    rules = (ROOT / "Makefile").read_text()
    assert [target for target in targets if f"\n{target}:" not in rules] == []


NEW_FILES = {  # the worked examples of CONTRIBUTING.md
    "sim/collectives/algorithms/bruck.py",
    "sim/parallel/schedules/eager.py",
    "sim/model/blocks/narrow.py",
    "sim/jobs/sharing/methods/ring_local_sgd.py",
}


def test_the_collective_of_the_guide_gathers_what_it_should() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (block,) = [
        block["body"] for block in BLOCK.finditer(text) if "def all_gather" in block["body"]
    ]
    example: dict = {}  # type: ignore[type-arg]
    exec(block, example)
    for ranks in range(2, 18):
        plan = example["all_gather"](ranks)
        parts = np.arange(3.0 * ranks * ranks).reshape(ranks, -1)
        assert np.array_equal(execute(plan, parts), np.tile(parts.ravel(), (ranks, 1)))
        assert len(plan.rounds) == example["cost"]("all_gather", ranks).rounds
