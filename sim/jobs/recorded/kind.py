"""The kind of scenarios that play a recorded step: the first file to read of such jobs.

Its account names the lines of the script that take time and hold memory at the peak. Its limits say
how much faster the step is with a faster resource. The clock plays the limits: a static graph
cannot replay streams whose kernels run beside one another, as in FSDP.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from sim.config import reads
from sim.config.counting import counted
from sim.config.errors import InputError
from sim.engine import clock
from sim.engine.accounts import accounts
from sim.engine.columns.weights import Floats
from sim.engine.fold import fold
from sim.engine.folded import FoldedProgram, Traffic
from sim.engine.play import Engine, play
from sim.hardware.kernels.dispatch import Phase
from sim.jobs.recorded.assemble import report
from sim.jobs.recorded.axes import DATA_AXIS, REPLICAS_AXIS
from sim.jobs.recorded.file import refuse_other
from sim.jobs.recorded.kernels import kernel_of, run_on
from sim.jobs.recorded.memory import NOWHERE, Memory, Peak, fullest
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.setup import Recorded, RecordedScenario, from_scenario
from sim.jobs.recorded.suggestions import advice as advice
from sim.jobs.recorded.suggestions import moves as moves
from sim.model.kernels import Kernel
from sim.program.causes import HOST
from sim.results.by_line import PARTS, ByLine, Line, Moment, Part
from sim.results.likely import Pace, likely
from sim.results.result import Result
from sim.scenario.settings import head_of
from sim.simulate import refuse_task
from sim.uncertainty.draws import LATENCY, Split, bandwidth, by_cause, split

FAMILIES = ("gemm", "attention", "stream")


class Clocked:
    """A recorded step whose seconds are split by `kinds` of resources, as `Split` splits a plan's.
    The clock plays the step anew for each column of factors."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        causes = tuple(dict.fromkeys(transfer.cause for transfer in self._folded({}).transfers))
        self.keys = (*FAMILIES, HOST, LATENCY, *causes)
        self.kinds = (*FAMILIES, HOST, LATENCY, *map(bandwidth, causes))

    def times(self, factors: Floats) -> Floats:
        """Step times (s), one for each column of `factors` [kinds, columns]. A factor multiplies
        the seconds of its kind."""
        columns = counted(factors.T.tolist(), total=factors.shape[1], unit="play")
        by_key = (dict(zip(self.keys, column, strict=True)) for column in columns)
        return np.array(
            [clock.play(self._folded(factors_by_key)).step_time for factors_by_key in by_key]
        )

    def _folded(self, factors: Mapping[str, float]) -> FoldedProgram:
        found = fold(self.recorded.slower(factors), self.recorded.machine)
        for transfer in found.transfers:
            latency, links = (factors.get(key, 1.0) for key in (LATENCY, transfer.cause))
            transfer.traffic = _faster(transfer.traffic, latency, links)
        return found


def speeds(setup: Recorded, *, many: bool = False) -> Clocked | Split:
    """The step with faster or slower resources. For `many` columns a compiled replay evaluates the
    step; it raises `InputError` for a step that it cannot replay."""
    return split(setup.machine, setup.program, by_cause) if many else Clocked(setup)


def _faster(traffic: Traffic, latency: float, links: float) -> Traffic:
    return replace(
        traffic,
        latency=latency * traffic.latency,
        size=links * traffic.size,
        seconds=links * traffic.seconds,
        at_once=latency * traffic.latency + links * max(traffic.at_once - traffic.latency, 0.0),
    )


_PHASES: dict[Phase, str] = {
    "forward": "a forward pass",
    "backward": "a backward pass",
    "optimizer": "the optimizer's step",
}


def by_line(setup: Recorded) -> ByLine:
    """The lines of the stage that computes longest, and the fullest moment of all stages."""
    stages = [recording for recording, _ in setup.stages]
    seconds = [sum(time * often for _, time, often in rows) for rows in kernels(setup)]
    longest = stages[seconds.index(max(seconds))]
    return ByLine(
        lines=tuple(_lines(setup, longest)),
        fullest=_fullest_moment(setup),
        recorded={
            "torch": longest.torch,
            "ranks recorded": f"{longest.world:,}",
            "GPU that the script saw": longest.gpu,
        },
    )


def kernels(setup: Recorded) -> list[list[tuple[Kernel, float, int]]]:
    """For each stage: its kernels, the seconds of a call (s), and the calls in a step."""
    device = setup.machine.topology.device
    return [
        [(run_on(kernel, device), setup.time(kernel), often) for kernel, often in _calls(recording)]
        for recording, _ in setup.stages
    ]


def _calls(recording: Recording) -> list[tuple[Kernel, int]]:
    often = Counter(event.operator for event in recording.events if event.kind == "kernel")
    return [(kernel_of(recording.operators[number]), count) for number, count in often.items()]


def _lines(recorded: Recorded, recording: Recording) -> list[Line]:
    """The lines of one recording; the lines with the longest kernels come first."""
    times = [recorded.time(kernel_of(operator)) for operator in recording.operators]
    found: defaultdict[int, dict[Part, float]] = defaultdict(lambda: dict.fromkeys(PARTS, 0.0))
    sent = Counter[int]()
    for event in recording.events:
        if event.kind in ("collective", "send", "recv"):
            sent[event.line] += int(event.bytes)
        if event.kind == "kernel":
            part: Part = "again" if event.again else event.phase
            found[event.line][part] += times[event.operator]
    places = (*recording.lines, NOWHERE)  # `NOWHERE` has the number -1
    texts = (*(recording.texts or [""] * len(recording.lines)), "")
    nothing = dict.fromkeys(PARTS, 0.0)
    named = (
        Line(line=places[n], seconds=found.get(n, nothing), sent=float(sent[n]), text=texts[n])
        for n in {**found, **sent}
    )
    return sorted(named, key=lambda line: -line.total)


def _fullest_moment(recorded: Recorded) -> Moment | None:
    """The fullest moment of the stage that needs most memory; None if no memory was recorded."""
    memory = fullest(recorded.memories)
    peak = memory.peak()
    if not peak.allocated:
        return None
    in_step = memory.peak(since=0).allocated
    return Moment(
        allocated=peak.allocated,
        in_step=in_step,
        when=_when(memory, peak, before=in_step < peak.allocated),
        lines=dict(peak.lines),
    )


def _when(memory: Memory, peak: Peak, *, before: bool) -> str:
    events = memory.recording.events
    if before:
        return f"before the recorded step, at {peak.line}"
    if peak.event < 0:
        return "as the recorded step begins"
    phase = events[min(peak.event, len(events) - 1)].phase
    return f"in {_PHASES[phase]}, at {peak.line}"


SCENARIO, ANSWER = RecordedScenario, Result
LACKS = (
    "is the recorded step of a script: it has no plan",
    "ask `sim run`, explain, compare, sweep, goodput or cost",
)
_STATE = 12.0  # bytes of a parameter in a checkpoint: fp32 weights and two moments (Adam)


def document(record: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a recording on the cluster that settings name. Raises `InputError`."""
    if not reads.exists(Path(record)):
        raise InputError(record, "is not there", "record it with `sim capture`")
    refuse_other(Path(record))
    for key in settings:
        if head_of(key) == "plan":
            fault = "a recorded script keeps the layout that it ran with"
            remedy = "leave the setting out, or capture the script anew with another layout"
            raise InputError(f"setting {key}", fault, remedy)
    if "topology" not in settings:
        raise InputError(record, "no topology is given", "name one of `sim list topologies`")
    name, cluster = (Path(path).name for path in (record, str(settings["topology"])))
    called = f"{name.partition('.')[0]}, {cluster.removesuffix('.toml')}"
    return {"name": called, "record": record}


def set_up(scenario: RecordedScenario, *, task: Any = None, brief: bool = False) -> Recorded:
    """The scenario's recordings on its cluster. Raises `InputError`."""
    refuse_task(scenario.name, task)
    return from_scenario(scenario)


def answer(setup: Recorded, *, engine: Engine = "auto", unfold: bool = False) -> Result:
    """Play the recorded step and report its result."""
    began = time.perf_counter()
    program, noted = setup.placed({})
    record = play(program, setup.machine, engine=engine, unfold=unfold)
    remembered = setup.remembered(record, noted)
    wall = time.perf_counter() - began
    return report(remembered, noted, record, accounts(record), wall_seconds=wall)


def pace(setup: Recorded) -> Pace:
    """The pace of a recorded step. Raises `InputError` for a script that has no tokens to count."""
    result = answer(setup)
    if not result.tokens_per_second:
        fault = "the recorded script looks up no tokens, so its cost per token is unknown"
        raise InputError(setup.name, fault, "describe the model in a scenario")
    return Pace(
        topology=setup.machine.topology,
        seconds=result.step_time,
        tokens=result.tokens_per_second * result.step_time,
        size=_STATE * result.parameters,
        replicas=prod(result.inputs.plan.get(axis, 1) for axis in (DATA_AXIS, REPLICAS_AXIS)),
        inputs=result.inputs,
        fits=result.fits,
        sure=likely(result),
    )
