"""Scripts are started as people start them, and what they raise is theirs."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.interface.cli.main import main
from sim.jobs.capturing.refusals import of_script
from sim.jobs.recorded.file import read

TRAIN = """
import os, sys, torch
from torch import nn
model = nn.Linear(16, 16).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[-1])):
    model(torch.ones(8, 16, device="cuda")).mean().backward()
    optimizer.step()
"""

SPAWNED = """
import sys, torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

def work(place, world, steps):
    dist.init_process_group("nccl", rank=place, world_size=world)
    assert (place, dist.get_world_size()) == (3, 8)
    model = nn.parallel.DistributedDataParallel(nn.Linear(16, 16).to("cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(8, 16, device="cuda")).mean().backward()
        optimizer.step()

if __name__ == "__main__":
    mp.spawn(work, args=(8, int(sys.argv[1])), nprocs=8)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").touch()
    (tmp_path / "own" / "train.py").write_text(TRAIN)
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    for name in ("own", "own.train"):  # of another folder
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def captured(*words: str) -> Result:
    return CliRunner().invoke(main, ["capture", "--out", "record.json.gz", *words])


@pytest.mark.parametrize(
    ("words", "script", "world"),
    [
        ("train.py --world 2 -- 3", "train.py", 2),
        ("-m own.train --world 2 -- 3", "own.train", 2),
        ("-- torchrun --nnodes 2 --nproc-per-node=4 train.py 3", "train.py", 8),
        ("-- torchrun --standalone --nproc_per_node gpu -m own.train 3", "own.train", 8),
        ("-- python -m torch.distributed.run --nproc-per-node=4 train.py 3", "train.py", 4),
        ("-- python -u -m torch.distributed.launch --nproc_per_node 4 train.py 3", "train.py", 4),
        ("-- deepspeed --num_gpus 4 train.py 3", "train.py", 4),
        ("--world 6 -- python train.py 3", "train.py", 6),
    ],
)
def test_launchers_are_understood(folder: Path, words: str, script: str, world: int) -> None:
    result = captured(*words.split())
    assert result.exit_code == 0, result.output
    (own,) = read(Path("record.json.gz"))
    assert (own.script, own.world) == (script, world)
    assert own.arguments[-1] == "3"
    assert any(line.endswith("train.py:7") for line in own.lines)


def test_code_is_run_and_its_lines_are_told(folder: Path) -> None:
    assert captured("-c", TRAIN, "--world", "1", "--", "3").exit_code == 0
    (own,) = read(Path("record.json.gz"))
    assert own.lines[0].startswith("-c:")


def test_a_script_that_starts_processes_runs_as_one_of_them(folder: Path) -> None:
    (folder / "spawn.py").write_text(SPAWNED)
    result = captured("spawn.py", "--world", "8", "--rank", "3", "--", "3")
    assert result.exit_code == 0, result.output
    assert any(event.kind == "collective" for event in read(Path("record.json.gz"))[0].events)


WRONG = "import torch; from torch import nn; x = torch.randn(3, 5, device='cuda')\n{}"


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("\n\nundefined", 1, ('train.py", line 3, in <module>', "NameError: name 'undefined'")),
        ("raise ValueError('a mapping')", 1, ("ValueError: a mapping",)),
        (
            WRONG.format("nn.Linear(4, 4).cuda()(x)"),
            1,
            ('train.py", line 2', "RuntimeError: a and b"),
        ),
        (WRONG.format("x.view(7, 3)"), 1, ('train.py", line 2', "RuntimeError: shape '[7, 3]'")),
        (WRONG.format("x + torch.ones(3, 5)"), 1, ('train.py", line 2', "on the same device")),
        ("open('pin/numpy.bin')", 1, ('train.py", line 1', "FileNotFoundError: [Errno 2] No such")),
        (
            "import numpy_9",
            1,
            ('train.py", line 1', "ModuleNotFoundError: No module named 'numpy_9"),
        ),
        ("raise SystemExit(7)", 7, ()),
        (
            "import argparse; argparse.ArgumentParser().parse_args(['--no'])",
            2,
            ("arguments: --no",),
        ),
    ],
)
def test_what_a_script_raises_is_its_own(
    folder: Path, body: str, code: int, said: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text(body)
    result = captured("train.py", "--world", "1")
    assert result.exit_code == code
    shown = result.output + capfd.readouterr().err
    assert all(words in shown for words in said)
    assert "cannot be recorded" not in shown
    assert "capturing" not in shown  # no frames of the capture
    assert "torch/_" not in shown  # nor of an operator
    assert not Path("record.json.gz").exists()


def test_a_world_other_than_the_launchers_and_a_recording_that_is_dropped_are_noted(
    folder: Path,
) -> None:
    (folder / "train.py").write_text(TRAIN)
    words = ["-c", TRAIN, "--world", "16", "--on", "dgx-h100-ndr", "--", "3"]
    assert "note: the recording is not kept" in CliRunner().invoke(main, ["capture", *words]).stderr
    launched = captured("--world", "16", "--", "torchrun", "--nproc-per-node", "8", "train.py", "3")
    assert "note: the launcher would start 8 ranks; --world says 16" in launched.output


@pytest.mark.parametrize("ending", ["finally", "except Exception"])
def test_a_capture_ends_in_time_with_its_line(folder: Path, ending: str) -> None:
    """Also where a script goes on whatever is raised within its loop."""
    loop = f"while True:\n  try:\n    time.sleep(0.01)\n  {ending}:\n    pass\n"
    (folder / "train.py").write_text(f"import time\n{loop}")
    result = captured("train.py", "--world", "1", "--timeout", "0.5")
    assert result.exit_code == 2
    assert "train.py:4: not done after 0.5 s (before the first optimizer step" in result.output


def test_what_a_script_does_wrong_is_said_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[object] = []
    monkeypatch.setattr("logging.Logger.callHandlers", lambda _, record: logged.append(record))
    wrong = "import torch\ntorch.nn.Linear(4, 4).cuda()(torch.randn(3, 5).cuda())\n"
    (folder / "train.py").write_text(wrong)
    output = captured("train.py", "--world", "1").output
    assert output.count("a and b must have same") == 1
    assert not logged


def test_an_exception_of_a_script_has_its_lines_whatever_its_folder_is_called(folder: Path) -> None:
    (folder / "click").mkdir()
    (folder / "click" / "train.py").write_text("def f():\n  raise KeyError('mine')\nf()\n")
    output = captured("click/train.py", "--world", "1").output
    assert output.index("line 3, in <module>") < output.index("line 2, in f")


def test_packages_installed_beside_a_script_are_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "installed" / "pack-1.0.dist-info").mkdir(parents=True)
    folder = str(tmp_path)
    assert of_script(f"{folder}/train.py", folder)
    assert of_script(f"{folder}/pkg/model.py", folder)
    assert not of_script(f"{folder}/installed/pack/model.py", folder)  # pip install --target
    assert not of_script(f"{folder}/venv/lib/site-packages/pack/model.py", folder)
    assert of_script(f"{folder}/installed/pack/model.py", f"{folder}/installed")  # run there


def test_a_refusal_shows_where_it_came_from_when_asked(folder: Path) -> None:
    (folder / "train.py").write_text("import torch\ntorch.randn(3, device='cuda').nonzero()\n")
    assert "Traceback" not in captured("train.py", "--world", "1").output
    result = captured("train.py", "--world", "1", "--traceback")
    assert "train.py:2: cannot be recorded" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train.py", "no --world"),
        ("train.py --world 2 --step x", "names no step"),
        ("train.py --world 2 --value 3=true", "is not the value of a line"),
        ("train.py --world 2 --marks x -- 3", "marks no steps"),
        ("-- torchrun --nproc-per-node x train.py", "is no number of processes"),
        ("-- torchrun --nproc-per-node 2", "starts no script"),
    ],
)
def test_bad_choices_are_refused_in_a_line(folder: Path, words: str, said: str) -> None:
    result = captured(*words.split())
    assert result.exit_code == 2
    assert said in result.output.splitlines()[-1]
