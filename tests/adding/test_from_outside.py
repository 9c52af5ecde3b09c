"""Methods of a single file, and packages that bring schedules and devices along."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import tomli_w
from click.testing import CliRunner

from sim.analysis.program_version import program_version
from sim.config import reads
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.jobs.sharing.plan import Sharing
from sim.kind import described, document

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
RING = re.search(
    r"`sim/jobs/sharing/methods/ring_local_sgd\.py`\)?:\n\n```python\n(.*?)```", PAGE, re.S
)

HEAD = """
from dataclasses import dataclass
from typing import Literal
from sim.jobs.sharing.plan import Sharing
@dataclass(frozen=True, slots=True, kw_only=True)
class Mine(Sharing):
"""


def test_a_method_of_a_file_is_that_of_jobs_that_name_it_or_of_all(tmp_path: Path) -> None:
    assert RING
    path = tmp_path / "of_a_file.py"
    path.write_text(RING[1].replace("ring_local_sgd", "of_a_file").replace("RingLocalSGD", "Mine"))
    question = (
        "import sys; from sim.interface.cli.main import main\n"
        "named = ['compare', 'ps-bsp', 'named.toml']\n"
        "for words in (['run', 'ps-async'], [*named[:2], ': sharing.method=of_a_file'], named):\n"
        "    main([*words, '--method', sys.argv[1], '--set', 'sharing.steps=3'],"
        " standalone_mode=False)\n"
        "vary = f'sharing.method=gossip,{sys.argv[1]}'\n"
        "main(['sweep', 'ps-bsp', '--vary', vary, '--no-store', '--jobs', '2', '--set',"
        " 'sharing.steps=3'], standalone_mode=False)\n"
    )
    known = {field.name for field in fields(Sharing)}
    scenario = document("ps-bsp")
    scenario["sharing"] = {k: v for k, v in scenario["sharing"].items() if k in known}
    scenario["sharing"]["method"] = "of_a_file"
    (tmp_path / "named.toml").write_text(tomli_w.dumps(scenario))
    words = [sys.executable, "-c", question, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "ps-async: of a file (4 local steps), 8 workers" in ran.stdout  # has no mode
    rows = r"^  (?:ps-bsp|sharing.method=of_a_file|named.toml) +([\d,]+)  "
    paces = re.findall(rows, ran.stdout, re.M)
    assert len({*paces}) == 2  # ps-bsp keeps its own, beside settings and beside a file
    points = re.findall(r"^  \d +(gossip|\S+of_a_file\.py) +([\d.]+ m?s)", ran.stdout, re.M)
    assert len({*dict(points).values()}) == 2  # in other processes, too


def test_a_file_of_a_method_imports_files_beside_it_and_follows_their_changes(
    tmp_path: Path,
) -> None:
    assert RING
    text = RING[1].replace("ring_local_sgd", "beside").replace("Count = 4", "Count = STEPS")
    (tmp_path / "beside.py").write_text(f"from steps_beside import STEPS\n{text}")
    job = {"topology": "dgx-1-v100", "sharing": {"method": "gossip"}}
    path = {"sharing.method": tmp_path / "beside.py"}
    periods, versions = [], set()
    for steps in (1, 12):
        (tmp_path / "steps_beside.py").write_text(f"STEPS = {steps}\n")
        with reads.recorded() as seen:
            periods.append(described({**job}, path).sharing.period)
        versions.add(program_version())
    assert (periods, len(versions)) == ([1, 12], 2)
    assert reads.holds(seen)
    (tmp_path / "steps_beside.py").write_text("STEPS = 3\n")
    assert not reads.holds(seen)


def test_a_page_runs_no_method_of_a_file_that_it_may_not_read(tmp_path: Path) -> None:
    path = tmp_path / "unread.py"
    path.write_text("1/0")
    scenario = document("ps-bsp")
    with reads.only([]), pytest.raises(InputError, match="may not be read here"):
        described(scenario, {"sharing.method": str(path)})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1/0", "cannot be imported (ZeroDivisionError"),
        ("x = 1", "has 0 subclasses of Sharing (from sim.jobs.sharing.plan)"),
        (f"{HEAD}    pass", "Mine has no name of its own"),
        (f"{HEAD}    method: str = 'mine'", "Mine has no start(self, pool)"),
        (
            f"{HEAD}    method: str = 'gossip'\n    def start(self, pool): ...",
            "the method 'gossip' exists already; give it another name",
        ),
        (
            f"{HEAD}    method: Literal['mine'] = 'yours'",
            "method is 'yours', but its Literal has 'mine'; write the same name in both places",
        ),
        (
            f"{HEAD}    method: str = 'mine'\n    group: int = 8\n    def start(self, pool): ...",
            "group is a key of all methods of Sharing; choose another name",
        ),
        (
            f"{HEAD}    method: str = 'mine'\n    def start(self, pool): ...\n"
            "    def check(self, workers, where): ...",
            "Mine.check takes (self, workers, where); write def check(self, workers, nodes, where)",
        ),
        (
            f"{HEAD}    method: str = 'torn'\n    def start(self, pool): pool.trian(1)",
            "fails in line 8: AttributeError: 'WorkerPool' object has no attribute 'trian'",
        ),
    ],
)
def test_a_file_without_a_method_is_a_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / f"odd_{len(text)}.py"
    path.write_text(text)
    refused = CliRunner().invoke(main, ["run", "ps-async", "--method", str(path)])
    assert refused.exit_code == 2
    assert said in refused.output
    assert CliRunner().invoke(main, ["run", "ps-async", "--set", "sharing.steps=3"]).exit_code == 0


def test_an_installed_package_brings_devices_along(tmp_path: Path) -> None:
    """An entry point names the package, whose folder mirrors ours."""
    package, info = tmp_path / "brought_along", tmp_path / "brought_along-1.0.dist-info"
    (package / "topologies" / "devices").mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").touch()
    (package / "topologies" / "devices" / "brought.toml").write_text('like = "a100-80gb-sxm"\n')
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought-along\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sim.plugins]\nmine = brought_along\n")
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(tmp_path)])}
    words = [sys.executable, "-m", "sim", "list", "devices"]
    listed = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "  brought\n" in listed.stdout
