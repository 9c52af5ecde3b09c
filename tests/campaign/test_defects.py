"""Defects that the simulator had, brought back one at a time in a copy of the tree: the law of
their class, or the test that states it, finds each of them, and finds nothing without it."""

import compileall
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

import pytest

from tests.campaign.laws import LAWS

ROOT = Path(__file__).parents[2]
SKIPPED = shutil.ignore_patterns(
    ".git", ".venv", "out", "docs", "notebooks", "*_cache", "__pycache__"
)
CP: dict[str, Any] = {
    "model": "llama3-8b", "topology": "dgx-a100-hdr", "stack": "megatron-core", "gpus": 8,
    "plan": {"global_batch": 1, "cp": 8, "zero": 0, "precision": "bf16", "recompute": "full"},
    "change": {"node.bandwidth": "20 GB/s"},
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "model": "mixtral-8x7b", "topology": "dgx-h100-ndr", "stack": "megatron-core", "gpus": 16,
    "plan": {"ep": 4, "cp": 2, "global_batch": 64, "precision": "bf16"},
    "change": {"model.layers": 2},
}  # fmt: skip
FP8 = {**EXPERTS, "plan": {**EXPERTS["plan"], "precision": "fp8"}}
OFFLOAD: dict[str, Any] = {
    "model": "llama2-7b", "topology": "dgx-a100-hdr", "stack": "deepspeed", "gpus": 8,
    "plan": {"zero": 3, "global_batch": 16, "precision": "bf16", "offload": {"parameters": 1.0}},
    "change": {"model.layers": 2},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """`before` is the code of today, `after` what brings the defect back. `law` finds it on `job`,
    or `test` does."""

    name: str
    path: str
    before: str
    after: str
    law: str = ""
    job: dict[str, Any] | None = None
    test: str = ""


DEFECTS = (
    Defect(
        name="roles that meet others form a team: a false deadlock with a slow rank",
        path="sim/engine/lowering.py",
        before="if not self.together or any(kinds != {roles} for kinds in alike):",
        after="if not self.together or len(teams) > 1:",
        law="with a slow rank the same work plays, and takes no less",
        job=EXPERTS,
    ),
    Defect(
        name="MFU counts empty slots of experts",
        path="sim/model/counts.py",
        before="empty_slots=False",
        after="empty_slots=True",
        law="room for all tokens drops none",
        job=EXPERTS,
    ),
    Defect(
        name="nobody waits for offloaded parameters without overlap",
        path="sim/parallel/offload.py",
        before="    stream = _stream(job, FROM_HOST)\n",
        after="    stream = FROM_HOST\n",
        law="copies that nothing hides are waited for",
        job=OFFLOAD,
    ),
    Defect(
        name="updated parameters never return to the host",
        path="sim/parallel/offload.py",
        before="size *= offload.parameters * (1.0 - offload.optimizer)",
        after="size *= 0.0",
        law="updated shards go back to the host",
        job=OFFLOAD,
    ),
    Defect(
        name="transfers of one communicator do not share its links",
        path="sim/engine/fold.py",
        before="scopes_beside(program)",
        after="frozenset()",
        law="no link carries more than it can",
        job=CP,
    ),
    Defect(
        name="outer gradients are sent in 16 bits",
        path="sim/jobs/sharing/methods/local_sgd.py",
        before="    sends_fp32: ClassVar[bool] = True\n",
        after="    sends_fp32: ClassVar[bool] = False\n",
        test="tests/jobs/sharing/test_groups.py",
    ),
    Defect(
        name="error feedback takes no memory",
        path="sim/parallel/memory.py",
        before="if error := _error_bytes(job, group):",
        after="if error := 0.0 * _error_bytes(job, group):",
        test="tests/parallel/test_compressed.py",
    ),
    Defect(
        name="every schedule exchanges as the stack does",
        path="sim/parallel/step.py",
        before="if entry is not None and entry.exchange is not None:",
        after="if False:",
        test="tests/adding/test_schedule.py",
    ),
    Defect(
        name="gradients leave layer by layer where activations are offloaded",
        path="sim/parallel/zero.py",
        before="        if self.job.plan.zero < 2:\n            numbers",
        after="        if False:\n            numbers",
        test="tests/parallel/test_offload.py",
    ),
    Defect(
        name="every block that uses the word embedding has a copy of it",
        path="sim/parallel/chunks.py",
        before="in using[:1] else",
        after="in using else",
        test="tests/model/test_mtp.py",
    ),
    Defect(
        name="a pipeline that does not drain takes shards of gradients",
        path="sim/parallel/undrained.py",
        before="(plan.zero > 1, f",
        after="(False, f",
        test="tests/parallel/test_versions.py::test_what_versions_do_not_go_with_is_refused",
    ),
    Defect(
        name="the columns of experts end a dense model's row",
        path="sim/model/columns.py",
        before='if "experts" in model.blocks:',
        after="if True:",
        test="tests/analysis/validation/test_validate.py",
    ),
    Defect(
        name="software without a stack is nobody's",
        path="sim/analysis/validation/table.py",
        before="if stack and not catalog.has",
        after="if False and not catalog.has",
        test="tests/analysis/validation/test_validate.py",
    ),
    Defect(
        name="nothing is printed as JSON where nothing fits",
        path="sim/interface/cli/files.py",
        before="if form.as_json:\n                    click.echo(json",
        after="if False:\n                    click.echo(json",
        test="tests/interface/cli/test_help.py",
    ),
    Defect(
        name="a store of a newer format is opened",
        path="sim/analysis/sweeps/store.py",
        before="""(stored := self._number("PRAGMA user_version")) != FORMAT""",
        after="""(stored := self._number("PRAGMA user_version")) < 0""",
        test="tests/analysis/sweeps/test_store.py",
    ),
    Defect(
        name="what a script adds to a variable is lost",
        path="sim/interface/frameworks/shell.py",
        before="""if any(child.type == "+=" for child in node.children):""",
        after="if False:",
        test="tests/interface/frameworks/test_shell.py",
    ),
    Defect(
        name="an import writes over files",
        path="sim/interface/starting.py",
        before="if path.exists() and not force:",
        after="if False:",
        test="tests/interface/cli/test_help.py",
    ),
    Defect(
        name="layers end before the first decoder with a traceback",
        path="sim/model/transformer.py",
        before="if self.decoder_seq and DECODER not in self.kinds:",
        after="if False:",
        test="tests/model/test_encoder_decoder.py",
    ),
    Defect(
        name="a model has any number of layers",
        path="sim/model/model.py",
        before="if self.layers > ",
        after="if 0 > ",
        test="tests/model/test_convolution.py",
    ),
    Defect(
        name="names steer the terminal",
        path="sim/config/gate.py",
        before="_STEERING.search(text):",
        after="not text:",
        test="tests/config/test_errors.py",
    ),
    Defect(
        name="stages of an order from a file take turns",
        path="sim/parallel/step.py",
        before="or schedule.steps > 1 or is_file(job.plan.pipeline)",
        after="or schedule.steps > 1",
        test="tests/parallel/test_schedule_runtime.py",
    ),
    Defect(
        name="a job that waits for nodes is struck",
        path="sim/engine/training_run.py",
        before="return self._activity in _RUNNING",
        after="return True",
        test="tests/jobs/sharing/test_goodput.py",
    ),
    Defect(
        name="MFU of 8-bit products is of one peak only",
        path="sim/results/assemble.py",
        before="if BYTES[precision] < 2 else {}",
        after="if False else {}",
        law="MFU is said of the usual peak",
        job=FP8,
    ),
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("copy") / "tree"
    shutil.copytree(ROOT, copy, ignore=SKIPPED)
    compileall.compile_dir(
        copy / "sim", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH
    )
    return copy


@pytest.fixture
def broken(tree: Path, defect: Defect) -> Iterator[Path]:
    path = tree / defect.path
    text = path.read_text()
    assert text.count(defect.before) == 1, f"{defect.path} has {defect.before!r} no longer"
    path.write_text(text.replace(defect.before, defect.after))
    yield tree
    path.write_text(text)


def ended(tree: Path, *words: str) -> int:
    """The exit code of a module: 1 where it finds a defect."""
    command = [sys.executable, "-B", "-m", *words]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    return subprocess.run(command, cwd=tree, env=environment, check=False).returncode


def replayed(tree: Path, *defects: Defect) -> int:
    """Whether the laws of defects find something on their jobs."""
    files = [f"{number}.json" for number, _ in enumerate(defects)]
    for file, defect in zip(files, defects, strict=True):
        trial = {"class": "LawTrial", "law": defect.law, "part": "dense", "number": 1}
        (tree / file).write_text(json.dumps({**trial, "job": defect.job}))
    return ended(tree, "tests.campaign", "--replay", *files)


@pytest.mark.long
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_that_comes_back_is_found(broken: Path, defect: Defect) -> None:
    if defect.law:
        assert replayed(broken, defect) == 1
    else:
        assert ended(broken, "pytest", "-xq", "-n0", "-pno:cacheprovider", defect.test) == 1


@pytest.mark.long
def test_the_laws_hold_without_the_defects(tree: Path) -> None:
    assert replayed(tree, *(own for own in DEFECTS if own.law)) == 0


def test_laws_that_find_defects_are_laws() -> None:
    assert {defect.law for defect in DEFECTS if defect.law} <= LAWS.keys()
