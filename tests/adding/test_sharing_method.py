"""A sharing method is one file: one is added in a folder of its own and run end to end."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import sim
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.jobs.sharing import methods
from sim.jobs.sharing.outcome import Outcome

METHOD = '''
"""Every worker trains alone; now and then one is sent to rest."""

from dataclasses import dataclass
from itertools import count
from typing import Literal

from sim.engine.live_cluster import Process
from sim.jobs.sharing.plan import Sharing
from sim.jobs.sharing.tables import Count
from sim.jobs.sharing.worker import Worker
from sim.jobs.sharing.worker_pool import WorkerPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone(Sharing):
    """Rests a second after every `stretch` steps."""

    method: Literal["alone"] = "alone"
    stretch: Count = 5

    @property
    def details(self) -> list[str]:
        return [f"{self.stretch} steps a stretch"]

    def start(self, pool: WorkerPool) -> None:
        def train(worker: Worker) -> Process:
            for step in count():
                gradient = yield from worker.compute(step)
                yield from worker.apply(gradient)
                pool.record.update(0, worker.workload.batch, pool.average)
                if (step + 1) % self.stretch == 0:
                    yield from worker.wait(pool.cluster.sleep(1.0))

        pool.train(train)
'''

SCENARIO = """
topology = "dgx-1-v100"

[sharing]
method = "alone"
workers = 4
steps = 10

[sharing.times]
forward = "100 ms"
backward = "200 ms"
parameters = 1e6

[sharing.learning]
task = "quadratic"
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder, file = tmp_path / "more_methods", tmp_path / "alone.toml"
    folder.mkdir()
    (folder / "alone.py").write_text(METHOD)
    file.write_text(SCENARIO)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(folder)])
    yield file
    sys.modules.pop("sim.jobs.sharing.methods.alone", None)


def test_an_added_method_runs_with_its_keys(scenario: Path) -> None:
    outcome: object = sim.run(sim.load(scenario, {"sharing.stretch": 2}))
    assert isinstance(outcome, Outcome)
    assert outcome.time == pytest.approx(10 * 0.3 + 4 * 1.0)  # over with its last update
    assert outcome.updates == 40
    assert outcome.shares["waiting"] == pytest.approx(4.0 / 7.0)
    assert outcome.curve[-1][2] < outcome.curve[0][2]
    assert str(outcome).startswith("alone: alone (2 steps a stretch), 4 workers")


def test_an_added_method_runs_by_the_command(scenario: Path) -> None:
    picture = scenario.with_suffix(".png")
    words = ["run", str(scenario), "--json", "--picture", str(picture)]
    result = CliRunner().invoke(main, words)
    assert json.loads(result.stdout.splitlines()[-1])["method"] == "alone (5 steps a stretch)"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_added_method_refuses_what_it_does_not_know(scenario: Path) -> None:
    with pytest.raises(
        InputError, match="""'strech' for method = "alone"; did you mean 'stretch'"""
    ):
        sim.load(scenario, {"sharing.strech": 2})
    with pytest.raises(InputError, match="it belongs to alone"):
        sim.load("ps-async", {"sharing.stretch": 2})


def test_without_its_file_a_method_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "alone.toml").write_text(SCENARIO)
    with pytest.raises(InputError, match='method = "alone" is unknown'):
        sim.load(tmp_path / "alone.toml")
