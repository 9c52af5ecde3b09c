"""An output of `sim run` is one new file: its option is there, checked and written."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.config.plugins import modules
from sim.interface import outputs
from sim.interface.cli.main import main

BUSY = '''
"""The seconds of every cause."""

HELP = "Write the seconds of every cause"
SUFFIXES = (".txt",)


def write(result, path):
    path.write_text("".join(f"{cause} {time}\\n" for cause, time in result.breakdown.items()))
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user's own outputs, and where the commands run."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "seconds_by_cause.py").write_text(BUSY)
    monkeypatch.setattr(outputs, "__path__", [*outputs.__path__, str(own)])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, ["run", *words])


def test_a_new_output_is_one_new_file(folder: Path) -> None:
    done = invoke("gpt2-one-gpu", "--seconds-by-cause=seconds.txt", "--timeline=spans.csv")
    assert done.exit_code == 0, done.output
    assert done.stderr == "wrote seconds.txt\nwrote spans.csv\n"
    lines = (folder / "seconds.txt").read_text().splitlines()
    assert {line.split()[0] for line in lines} == {"compute", "host", "optimizer"}


def test_help_names_it_with_its_endings(folder: Path) -> None:
    assert "Write the seconds of every cause: .txt." in " ".join(invoke("--help").stdout.split())


def test_it_is_refused_as_others_are(folder: Path) -> None:
    for words in (["--seconds-by-cause=a.pdf"], ["--seconds-by-cause=a.txt", "--samples=3"]):
        done = invoke("gpt2-one-gpu", *words)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert "--seconds-by-cause" in done.stderr


def test_every_output_says_what_it_writes() -> None:
    for name, module in modules("sim.interface.outputs").items():
        assert module.HELP
        assert callable(module.write), name
        assert all(suffix.startswith(".") for suffix in module.SUFFIXES)
