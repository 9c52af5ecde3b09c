"""What machines do to files: bits that flip, processes that are killed at any moment."""

import contextlib
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import tomli_w

from sim.analysis.sweeps import table
from sim.analysis.sweeps.store import Store
from sim.analysis.sweeps.sweep import sweep
from sim.config.errors import InputError
from tests.campaign.case import own_folder
from tests.campaign.jobs import Document, drawn

POINTS = 4  # of a sweep
_JOB, _STORE = Path("job.toml"), Path("sweep.db")


@dataclass(frozen=True, slots=True)
class _Harm:
    """What is drawn from a number."""

    kind: ClassVar[str]

    number: int

    def to_dict(self) -> dict[str, Any]:
        return {"number": self.number}

    @classmethod
    def of(cls, content: dict[str, Any]) -> "_Harm":
        return cls(content["number"])


class Flip(_Harm):
    """A bit of a store is flipped: the same rows come, or one line."""

    kind = "flips"

    def violation(self) -> str:
        chance = random.Random(self.number)
        # A store of one job serves many flips.
        document, whole, stored = _stored(self.number // 50)
        _JOB.write_text(tomli_w.dumps(document))
        data = bytearray(stored)
        place = chance.randrange(len(data))
        data[place] ^= 1 << chance.randrange(8)
        _STORE.write_bytes(data)
        try:
            again = _rows(_STORE)
        except InputError:
            return ""
        return "" if again == whole else f"other rows after a flip in byte {place}"


class SweepKill(_Harm):
    """A sweep is killed at some moments: the same command ends with the undisturbed table, and
    rows that were stored stay."""

    kind = "kills"

    def violation(self) -> str:
        chance = random.Random(self.number)
        _JOB.write_text(tomli_w.dumps(_job(chance.randrange(10**6))))
        began = time.perf_counter()
        whole = _rows(None)
        _killed(lambda: _rows(_STORE), chance.uniform(0.0, 1.2) * (time.perf_counter() - began))
        kept = 0
        if _STORE.exists():
            with contextlib.suppress(InputError), Store(_STORE) as store:
                kept = len(store)
        if _rows(_STORE) != whole:
            return "another table after a kill"
        with Store(_STORE) as store:
            return "" if kept <= len(store) == POINTS else f"{kept} rows, then {len(store)}"


class CalibrationKill(_Harm):
    """A calibration of this CPU is killed: what it had measured stays, and the same command ends
    with a profile of all kernels and nothing beside it."""

    kind = "kills"

    def violation(self) -> str | None:
        try:
            import torch  # noqa: F401 - in this process, so that its children have it
        except ImportError:
            return None
        from sim.analysis.calibration import kernel_profile

        chance, out = random.Random(self.number), Path("mine.toml")
        part = kernel_profile.part_of(out)
        cases = _few(chance)
        for _ in range(chance.choice((1, 2))):
            before = _lines(part)
            _killed(lambda: _calibrate(cases, out), chance.uniform(0.0, 0.6))
            if before != _lines(part)[: len(before)] and part.exists():
                return "a measured kernel was lost"
            if out.exists():
                break
        before = _lines(part)
        if not out.exists():
            _in_child(lambda: _calibrate(cases, out))
        if not out.exists():
            return "does not go on"
        # Of two passes the shorter time is used, so that kernels alone are the same.
        kept = {line.rsplit(",", 3)[0] for line in before[1:]}
        final = out.with_suffix(".csv").read_text().splitlines()
        lost = [line for line in kept if not any(own.startswith(line) for own in final)]
        others = {path.name for path in Path().iterdir()} - {"mine.toml", "mine.csv"}
        if lost or others:
            return f"lost {lost}, left {others}"
        from sim.hardware.kernels.profile import load

        load(str(out.absolute()))
        return ""


def harms(number: int) -> Iterator[_Harm]:
    """A kill and five flips; every fourth kill is of a calibration."""
    yield CalibrationKill(number) if number % 4 == 3 else SweepKill(number)
    for flip in range(5):
        yield Flip(5 * number + flip)


def _job(number: int) -> Document:
    """A job of any kind that a sweep asks."""
    return drawn(("dense", "experts", "offload", "shared")[number % 4], number)


def _rows(store: Path | None) -> str:
    key = "sharing.steps" if "[sharing]" in _JOB.read_text() else "plan.microbatch"
    points = [{key: 2**power} for power in range(POINTS)]
    frame = sweep(str(_JOB), points, store=store, jobs=1)
    return str(frame.drop(columns=[table.WALL], errors="ignore").to_csv())


@cache
def _stored(number: int) -> tuple[Document, str, bytes]:
    """A job, its rows, and its store as a file."""
    document = _job(number)
    with own_folder():
        _JOB.write_text(tomli_w.dumps(document))
        return document, _rows(_STORE), _STORE.read_bytes()


def _killed(act: Callable[[], object], after: float) -> None:
    """Do something in a child that is killed after so many seconds."""
    child = _started(act)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _in_child(act: Callable[[], object]) -> None:
    os.waitpid(_started(act), 0)


def _started(act: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    return child


def _few(chance: random.Random) -> list[Any]:
    """Some small kernels of the suite, of every kind that a profile needs."""
    from sim.analysis.calibration.timing.kernel_suite import kernel_cases

    cases = kernel_cases("cpu", "quick")
    small = sorted(cases, key=lambda case: case.kernel.bytes)
    return small[: chance.choice((12, 24))]


def _calibrate(cases: list[Any], out: Path) -> None:
    """`sim calibrate kernels` of these kernels, without launches and copies."""
    import torch

    from sim.analysis.calibration import kernel_profile
    from sim.hardware.kernels.environment import Environment

    torch.set_num_threads(1)
    kernel_profile.kernel_cases = lambda *_: cases  # type: ignore[assignment]
    kernel_profile._environment = lambda *_: Environment()
    kernel_profile.host_times = lambda *_: []  # type: ignore[assignment]
    kernel_profile.calibrate("cpu", "quick", out, note=lambda message: None)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
