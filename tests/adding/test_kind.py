"""A kind of scenario is one folder: questions can be asked of it, and no other file knows it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

import sim
from sim import jobs, questions
from sim.config import reads
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.interface.serve.questions import Questions
from sim.interface.serve.states import Bases, base_of

FOLDER = '''"""How long does a cluster rest?"""

KEYS = ("rest",)


def claims(name):
    return False
'''

KIND = '''"""A cluster that rests for so long."""

from dataclasses import dataclass
from typing import ClassVar

from sim.config.units import PositiveSeconds
from sim.engine.timeline import Timeline
from sim.results.answer import Inputs, JobAnswer
from sim.results.likely import Pace
from sim.scenario.setup import load_topology
from sim.scenario.setup import machine
from sim.scenario.scenario import BaseScenario

LACKS = ("rests: it has no step", "ask how long")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resting(BaseScenario):
    kind: ClassVar[str] = "sim.jobs.resting.kind"
    rest: PositiveSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Rested(JobAnswer):
    view = "sim.jobs.resting.view"
    unwritten = ("timeline",)
    seconds: float

    @property
    def columns(self):
        return {"seconds": self.seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    kind: ClassVar[str] = "sim.jobs.resting.kind"
    job: ClassVar[None] = None
    name: str
    machine: object
    seconds: float
    columns = {}


SCENARIO, ANSWER = Resting, Rested


def set_up(scenario, *, task=None, brief=False):
    on = machine(load_topology(scenario), None, (), scenario.name)
    return Rest(name=scenario.name, machine=on, seconds=scenario.rest)


def answer(setup, *, engine="auto", unfold=False):
    return Rested(
        scenario=setup.name, inputs=Inputs(gpus=setup.machine.topology.gpus), fits=True, events=0,
        wall_seconds=0.0, seconds=setup.seconds, timeline=Timeline(roles=(), spans=(), end=0.0),
    )


def pace(setup):
    rested = answer(setup)
    return Pace(
        topology=setup.machine.topology, seconds=setup.seconds, tokens=1.0, size=1e9, replicas=1,
        inputs=rested.inputs, fits=True,
    )
'''

VIEW = '''"""What is read of it."""


from sim.interface.document.nodes import document


def view(answer):
    return document(f"{answer.scenario} rests for {answer.seconds:g} s")
'''

JOB = 'topology = "dgx-h100-ndr"\nrest = "20 s"\ntokens = 1000.0\n'


@pytest.fixture(autouse=True)
def resting(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = here / "kinds" / "resting"
    own.mkdir(parents=True)
    for name, source in (("__init__", FOLDER), ("kind", KIND), ("view", VIEW)):
        (own / f"{name}.py").write_text(source)
    monkeypatch.setattr(jobs, "__path__", [*jobs.__path__, str(own.parent)])
    (here / "night.toml").write_text(JOB)


def test_its_file_is_read_checked_and_played() -> None:
    assert str(sim.run("night.toml")) == "night rests for 20 s"
    assert sim.run("night.toml", {"rest": "5 s"}).to_dict()["seconds"] == 5.0
    with pytest.raises(InputError, match="did you mean 'rest'"):
        sim.load("night.toml", {"rist": "5 s"})
    done = CliRunner().invoke(main, ["run", "night.toml", "--json"])
    assert (done.exit_code, '"seconds": 20.0' in done.stdout) == (0, True)


def test_it_is_swept_and_has_a_cost() -> None:
    swept = sim.sweep("night.toml", {"rest": ["5 s", "10 s"]}, jobs=1)
    assert swept.frame["seconds"].tolist() == [5.0, 10.0]
    spent = sim.cost("night.toml", price="1 USD/h")
    assert spent.dollars == pytest.approx(1000 * 20 / 3600 * sim.run("night.toml").inputs.gpus)
    assert sim.goodput("night.toml", days=2).tokens > 0.0


def test_what_it_lacks_is_refused_in_its_own_words() -> None:
    with pytest.raises(InputError, match="night: rests: it has no step; ask how long"):
        sim.explain("night.toml")
    with pytest.raises(InputError, match="compare: no comparison of such jobs is known"):
        sim.compare("night.toml", ": rest=5 s")
    assert questions.seeds(sim.load("night.toml")) is None


def test_a_misspelt_key_is_answered_by_the_kind_that_has_it(here: Path) -> None:
    (here / "night.toml").write_text(JOB.replace("rest =", "rests ="))
    with pytest.raises(InputError, match="unknown key 'rests'; did you mean 'rest'"):
        sim.load("night.toml")


def test_its_own_figures_are_printed_of_a_sweep() -> None:
    assert "seconds" in str(sim.sweep("night.toml", {"rest": ["5 s", "10 s"]}, jobs=1))


def test_the_page_has_controls_for_its_keys_and_shows_its_answer() -> None:
    bases, questions = Bases(base_of("night.toml", {})), Questions()
    with reads.only(bases.places):
        answer = questions.answer(bases.state({"settings": {"rest": "5 s"}}), "rest")
        assert answer["title"] == "night rests for 5 s"
        controls = {one["key"]: one["value"] for own in answer["groups"] for one in own["controls"]}
        assert controls["rest"] == "5 s"
        assert controls["topology"] == "dgx-h100-ndr"
        assert questions.charts(bases.state({})) == {"html": ""}
        assert "'rest'" in questions.answer(bases.state({"settings": {"rist": "5 s"}}))["fault"]
