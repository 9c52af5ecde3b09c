"""A job that laws are tried on, in several forms, and how two answers are compared."""

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from sim import run
from sim.kind import load
from tests.campaign.jobs import PARTS, Document

SAME = 1e-9  # relative; of two ways to the same number
SLOWER = 2e-3  # relative; what rounding to tiles, and libraries that choose otherwise, may cost
ALL, SHARED = PARTS, ("shared",)
PLAIN = ("dense", "experts", "offload")  # whose every key may be set to anything
STEPS = (*PLAIN, "features")
_KEPT, _answers = 12, dict[tuple[bytes, str, str], Any]()
# Methods in which all wait for all, so that what is faster is never later (Graham 1969 has the
# anomalies of the others).
_IN_STEP = ("all_reduce", "data_parallel", "local_sgd")


@dataclass(frozen=True, slots=True)
class Job:
    """A scenario in `job.toml` of the folder where this process is."""

    kind: str
    document: Document

    def time(self, settings: dict[str, Any] | None = None, **ways: Any) -> float:
        """Seconds of a step, or of the run of workers that share updates."""
        return seconds(self.result(settings, **ways))

    def result(self, settings: dict[str, Any] | None = None, **ways: Any) -> Any:
        """The answer of `sim.run`; a law that asks again for one of the last jobs is told what was
        said before."""
        path = self.write()
        key = Path(path).read_bytes(), repr(settings or {}), repr(ways)
        answer = _answers.pop(key, None) or run(load(path, settings or {}), **ways)
        while len(_answers) >= _KEPT:
            del _answers[next(iter(_answers))]
        _answers[key] = answer
        return answer

    def write(self, name: str = "job.toml") -> str:
        Path(name).write_text(tomli_w.dumps(self.document))
        return name

    def but(self, changes: dict[str, Any]) -> "Job":
        """The same with values of dotted keys in its file changed."""
        document = copy.deepcopy(self.document)
        for key, value in changes.items():
            *path, last = key.split(".")
            inner = document
            for step in path:
                inner = inner.setdefault(step, {})
            inner[last] = value
        return Job(self.kind, document)

    def without(self, key: str) -> "Job":
        """The same without a dotted key of its file."""
        *path, last = key.split(".")
        document = copy.deepcopy(self.document)
        inner = document
        for step in path:
            inner = inner.get(step, {})
        inner.pop(last, None)
        return Job(self.kind, document)

    @property
    def sampled(self) -> bool:
        """Whether its replicas are alike, so that its steps can be drawn."""
        return all("link" not in own for own in self.document.get("straggler", []))

    @property
    def in_step(self) -> bool:
        """Whether all ranks or workers wait for one another in every step."""
        sharing = self.document.get("sharing", {})
        if sharing.get("method") == "parameter_server":
            return bool(sharing.get("mode", "bsp") == "bsp")
        return not sharing or sharing["method"] in _IN_STEP


def seconds(result: Any) -> float:
    return float(result.step_time if hasattr(result, "step_time") else result.time)


Found = Callable[[Job, random.Random], str]


def same(one: float, other: float) -> str:
    return "" if abs(one - other) <= SAME * abs(one) else f"{one!r} is not {other!r}"


def not_longer(usual: float, found: float, what: str) -> str:
    return "" if found <= usual * (1.0 + SLOWER) else f"{found!r} with {what}, {usual!r} without"
