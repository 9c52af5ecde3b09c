"""What is shipped: the data travel in the wheel, torch does not come with the base install."""

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import metadata, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sim

ROOT = Path(sim.__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("clustersim-*.whl")
    return built


@pytest.mark.parametrize("folder", ["measurements", "models", "topologies", "scenarios"])
def test_the_data_travel_in_the_wheel(wheel: Path, folder: str) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    found = (ROOT / folder).rglob("*.*")
    files = [path.relative_to(ROOT) for path in found if path.suffix in (".toml", ".csv", ".md")]
    assert files
    assert packed >= {f"sim/data/{path.as_posix()}" for path in files}


def test_a_wheel_runs_a_scenario_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = "import sim; print(sim.__file__, sim.run('gpt2-one-gpu').ranks)"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert shown == f"{tmp_path / 'site' / 'sim' / '__init__.py'} 1\n"


def needed(name: str, distributions: set[str]) -> set[str]:
    """A distribution and all that it needs without any extra."""
    if name not in distributions:
        distributions.add(name)
        for line in requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed(canonicalize_name(requirement.name), distributions)
    return distributions


def test_the_base_install_pulls_in_no_torch() -> None:
    base = needed("clustersim", set())
    assert {"simpy", "numpy", "pandas", "matplotlib", "pydantic", "click", "tqdm"} <= base
    assert [name for name in base if name.startswith(("torch", "nvidia", "triton"))] == []
    assert {"jupyterlab", "pytest", "ruff"}.isdisjoint(base)


def test_torch_is_an_extra_and_pinned_for_the_tests_only() -> None:
    assert PROJECT["optional-dependencies"]["torch"] == ["torch>=2.4"]
    assert "torch==2.13.0\n" in (ROOT / "constraints.txt").read_text()


def test_the_names_are_the_promised_ones() -> None:
    described = metadata("clustersim")
    assert (described["Name"], described["License-Expression"]) == ("clustersim", "Apache-2.0")
    assert PROJECT["scripts"] == {"sim": "sim.interface.cli.main:main"}
    assert set(PROJECT["optional-dependencies"]) >= {"torch", "notebook", "dev"}
