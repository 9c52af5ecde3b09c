"""What a row depends on is what was read for it: edit any of it, and the row is computed anew."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sim.analysis.sweeps import sweep
from sim.collectives.libraries import backend
from sim.config import catalog, reads
from sim.config.errors import InputError
from tests.hardware.kernels.test_profile import HEADER, ROWS, TOML

# A job that reaches a file of every kind, all of them the user's own.
JOB = """
model = "mine"
topology = "here"
stack = "ours"
gpus = 16

[plan]
pp = 2
microbatch = 2
global_batch = 64
precision = "fp16"
schedule = "order.csv"

[[jitter.cause]]
name = "seen"
kind = "trace"
file = "trace.csv"

[change]
"topology.device" = "chip"
device.profile = "chip"
"""
ORDER = "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n"
FABRIC = """
backend = "lib"
measurements = "fabric.csv"
[constants.network.infiniband]
fraction = 0.9
"""
POINT = {"plan.dp": 8}
COPIED = {
    "models/mine.toml": "gpt2-124m",
    "topologies/devices/chip.toml": "a100-80gb-sxm",
    "topologies/backends/lib.toml": "nccl",
    "topologies/stacks/ours.toml": "megatron-lm-2022",
}
# Each edit changes the answer: what a file said, what it says then.
EDITS = {
    "job.toml": ("pp = 2", "pp = 2\nzero = 1"),
    "order.csv": ("1F1,1F2,1F3,1B0,1B1", "1B0,1F1,1B1,1F2,1F3"),
    "trace.csv": ("1.5", "2.5"),
    "models/mine.toml": ("layers = 12", "layers = 14"),
    "topologies/here.toml": ('"200 Gb/s"', '"20 Gb/s"'),
    "topologies/devices/chip.toml": ("memory_bandwidth = ", 'memory_bandwidth = "1 TB/s" #'),
    "topologies/backends/lib.toml": ('launch = "8.5 us"', 'launch = "908.5 us"'),
    "fabric.toml": ("fraction = 0.9", "fraction = 0.09"),
    "topologies/profiles/chip.csv": ("9e-4", "9e-2"),
    "topologies/profiles/chip.toml": ("prologue = \"7 us\"", "prologue = \"700 us\""),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("models", *(f"topologies/{name}" for name in
                               ("devices", "backends", "stacks", "profiles"))):  # fmt: skip
        (tmp_path / folder).mkdir(parents=True)
    for name, original in COPIED.items():
        shutil.copy(catalog.find(str(Path(name).parent), original), tmp_path / name)
    cluster = catalog.find("topologies", "dgx-a100-hdr").read_text()
    written = {
        "job.toml": JOB,
        "order.csv": ORDER + ORDER.replace("0F", "1F").replace("0B", "1B"),
        "trace.csv": "1.0\n1.0\n1.5\n",
        "fabric.toml": FABRIC,
        "topologies/here.toml": cluster.replace("name =", 'backend = "fabric.toml"\nname =', 1),
        "topologies/profiles/chip.toml": TOML.replace("mine", "chip").replace(
            "a100-80gb-sxm", "chip"
        ),
        "topologies/profiles/chip.csv": HEADER + ROWS,
    }
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def row() -> str:
    """The row of the job from the store, its wall-clock columns aside."""
    frame = sweep.sweep("job.toml", [POINT], samples=8, store=Path("runs.db"), jobs=1)
    return str(frame.drop(columns=sweep.WALL).to_json())


def fresh() -> str:
    frame = sweep.sweep("job.toml", [POINT], samples=8, jobs=1)
    return str(frame.drop(columns=sweep.WALL).to_json())


def test_a_row_is_computed_anew_when_any_file_that_it_reaches_was_edited(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = row()
    for name, (old, new) in EDITS.items():
        path = folder / name
        text = path.read_text()
        assert old in text, name
        path.write_text(text.replace(old, new))
        edited = row()
        assert edited != before, name
        assert edited == fresh(), name
        path.write_text(text)  # as it was: so is the row, and nothing is computed
        with monkeypatch.context() as nothing:
            nothing.setattr("sim.questions.figures", None)
            assert row() == before, name


def test_every_file_that_is_read_for_a_row_is_among_what_it_depends_on(folder: Path) -> None:
    task = sweep.SweepTask(scenario="job.toml", points=[("", POINT)], samples=8)
    ((_, _, seen),) = sweep.answers(task)
    files = {name for look, name in seen if look == "content"}
    assert files > EDITS.keys()
    opened = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, check=True)
    looked_at = {reads.name_of(Path(name)) for name in opened.stdout.decode().split("\n") if name}
    assert len(looked_at) > len(EDITS)
    assert {os.path.relpath(name) if name[0] == "/" else name for name in looked_at} <= files


WATCHED = """
import sys
from sim.config.reads import packaged_root
from sim.analysis.sweeps.sweep import SweepTask, answers
opened = set()
def watch(event, arguments):
    name = str(arguments[0]) if event == "open" else ""
    if name.endswith((".toml", ".csv", ".json")) and "site-packages" not in name:
        opened.add(name)
sys.addaudithook(watch)
answers(SweepTask(scenario="job.toml", points=[("", {"plan.dp": 8})], samples=8))
print(*opened, sep="\\n")
"""


def test_a_file_that_would_now_be_found_first_is_a_change_too(folder: Path) -> None:
    before = row()
    shutil.move(folder / "topologies/stacks/ours.toml", folder / "kept.toml")
    shutil.copy(catalog.find("topologies/stacks", "megatron-core"), "topologies/stacks/ours.toml")
    assert row() != before


def test_a_backend_is_read_again_in_the_same_process_when_its_file_changed(folder: Path) -> None:
    before = backend.load("fabric.toml")
    assert backend.load("fabric.toml") is before
    (folder / "fabric.toml").write_text(FABRIC.replace("0.9", "0.5"))
    assert backend.load("fabric.toml") != before


def test_an_edit_of_the_same_size_within_a_tick_of_the_clock_is_seen(folder: Path) -> None:
    path = Path("trace.csv")
    for number in range(200):
        path.write_text(f"{number:03}\n")
        with reads.recorded() as seen:
            assert reads.text(path) == f"{number:03}\n"
        assert reads.holds(seen)
        path.write_text(f"{number + 1:03}\n")
        assert not reads.holds(seen)


def test_a_pipe_or_an_endless_device_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo("pipe.csv")
    for name in ("pipe.csv", "/dev/zero"):
        with pytest.raises(InputError, match="is a pipe or a device, not a file"):
            reads.content(Path(name))


def test_a_file_larger_than_any_table_is_refused_before_it_fills_memory(folder: Path) -> None:
    with open("large.csv", "wb") as file:
        file.truncate(reads.MOST + 1)
    with pytest.raises(InputError, match=r"is larger than 256 MiB; take the part .* fewer steps"):
        reads.content(Path("large.csv"))
