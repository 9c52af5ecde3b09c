"""CONTRIBUTING.md is true: its table leads to folders, models and tests; its code runs."""

import re
from pathlib import Path

import pytest

import sim
from sim.config.plugins import modules
from tests.adding.conftest import Add
from tests.adding.walk import played

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
ROWS = re.findall(
    r"^\| an? ([\w `-]+) \| `([\w/]+)/` \| (.+?) \| `([\w.-]+)` \| `(\w+\.py)` \|$",
    TEXT,
    re.MULTILINE,
)
SOURCES = dict(re.findall(r"`sim/([\w/]+)\.py`\)?:\n\n```python\n(.*?)```", TEXT, re.DOTALL))


def test_the_table_names_everything_that_can_be_added() -> None:
    named = {folder.replace("/", ".") for _, folder, *_ in ROWS}
    assert {row[0] for row in ROWS} >= {
        "collective", "pipeline schedule", "kind of layer", "mesh axis", "device",
        "sharing method", "output of `sim run`",
    }  # fmt: skip
    for package in named - {"topologies.devices"}:
        assert modules(package)


@pytest.mark.parametrize(("what", "folder", "offers", "like", "test"), ROWS)
def test_each_row_leads_somewhere(
    what: str, folder: str, offers: str, like: str, test: str
) -> None:
    assert (ROOT / folder / like).is_file(), f"what a {what} resembles"
    assert (ROOT / "tests" / "adding" / test).is_file()
    source = (ROOT / folder / like).read_text()
    for word in re.findall(r"`(\w+)[`(]", offers):
        assert re.search(rf"\b{word}\b", source), f"{like} shows {word}"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("parallel/schedules/eager", {"plan.schedule": "eager", "plan.pp": 4}),
        ("model/blocks/narrow", {"model.pattern": "dense, narrow"}),
    ],
)
def test_what_is_worked_through_runs(add: Add, name: str, changes: dict[str, object]) -> None:
    package, _, module = f"sim/{name}".rpartition("/")
    add(package.replace("/", "."), module, SOURCES[name])
    assert played(changes).step_time > 0.0


def test_the_sharing_method_that_is_worked_through_trains(add: Add, here: Path) -> None:
    source = SOURCES["jobs/sharing/methods/ring_local_sgd"]
    add("sim.jobs.sharing.methods", "ring_local_sgd", source)
    table = '[sharing]\nmethod = "ring_local_sgd"\nworkers = 8\nsteps = 40\n'
    (here / "ring.toml").write_text(f'model = "resnet50"\ntopology = "dgx-1-v100"\n\n{table}')
    outcome = sim.run(here / "ring.toml")
    assert outcome.updates == 80, "8 workers, 40 steps, 4 of them an update"
    assert outcome.shares["waiting"] < 0.5
