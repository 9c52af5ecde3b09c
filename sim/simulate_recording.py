"""From a recorded step of a training script to its result on a cluster."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sim.engine.accounts import accounts
from sim.engine.machine import Machine
from sim.engine.play import Engine, play
from sim.engine.record import Record
from sim.hardware.device import Device
from sim.hardware.kernels.time import kernel_time
from sim.hardware.stack import Stack
from sim.model.kernels import Kernel
from sim.program.causes import HOST
from sim.program.program import Program
from sim.recording.allocator_settings import parsed
from sim.recording.axes import Axes, staged
from sim.recording.behind import Moments
from sim.recording.file import read
from sim.recording.host import Host, coverage, measured_of
from sim.recording.kernels import kernel_of
from sim.recording.memory import Memory
from sim.recording.program import Noted, program
from sim.recording.recording import Recording
from sim.recording.scaled import scaled
from sim.results.assemble_recording import report
from sim.results.result import Result
from sim.scenario.loading import load_stack, load_topology
from sim.scenario.machine import machine
from sim.scenario.scenario import RecordedScenario
from sim.scenario.settings import flat
from sim.scenario.setup import Written


def simulate_recording(
    scenario: RecordedScenario, *, unfold: bool = False, engine: Engine = "auto"
) -> Result:
    """Predict the step that a scenario's recording has, on its cluster. Raises `InputError`."""
    return set_up(scenario).result(unfold=unfold, engine=engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What it takes to play a recorded step: a recording and its memory for each pipeline stage,
    the software that runs it, and the machine."""

    scenario: RecordedScenario
    stages: Sequence[tuple[Recording, Axes]]
    memories: Sequence[Memory]
    stack: Stack
    machine: Machine

    def written(self, factors: Mapping[str, float] | None = None) -> Program:
        """Its program. The host, kernels of a family, and what kernels lose to transfers of a cause
        take so many times as long where there are `factors`."""
        return self._placed(factors or {})[0]

    def _placed(self, factors: Mapping[str, float]) -> tuple[Program, list[Noted]]:
        return program(
            self.stages,
            self._kernels(),
            memories=self.memories,
            time=lambda kernel: factors.get(kernel.family, 1.0) * self.time(kernel),
            host=self._host().taking(factors.get(HOST, 1.0)),
            factors=factors,
        )

    def _host(self) -> Host:
        return host_of(self.stack, self.machine.topology.device)

    def _kernels(self) -> list[list[Kernel]]:
        return [[kernel_of(operator) for operator in own.operators] for own, _ in self.stages]

    def _remembered(self, record: Record, noted: Sequence[Noted]) -> "Recorded":
        """The same where blocks of several streams are free when they were so in a record."""
        if not any(own.used_by_several for own in self.memories):
            return self
        opening = self._host().step
        memories = [
            own.at(Moments(own.recording, _done(record, stage, of), of.hosts, opening))
            for stage, (own, of) in enumerate(zip(self.memories, noted, strict=True))
        ]
        return replace(self, memories=memories)

    def time(self, kernel: Kernel) -> float:
        """A kernel's seconds on the device."""
        device = self.machine.topology.device
        return kernel_time(kernel, device=device, attention=self.stack.attention)

    def result(self, *, unfold: bool = False, engine: Engine = "auto") -> Result:
        """The step as it is played."""
        began = time.perf_counter()
        (written, noted), on = self._placed({}), self.machine
        record = play(written, on, engine=engine, unfold=unfold)
        own = self._remembered(record, noted)
        written = written if own is self else own.written()
        wall = time.perf_counter() - began
        result = report(
            self.scenario.name, self.stages, written, own.memories, self.stack, on, record,
            accounts(record), wall_seconds=wall,
            notes=_notes(self.stages, self.stack, self.machine.topology.device),
        )  # fmt: skip
        inputs = replace(result.inputs, change=dict(flat(self.scenario.change)))
        return replace(result, inputs=inputs, setup=Written(program=written, machine=on))


def set_up(scenario: RecordedScenario) -> Recorded:
    """A scenario's recordings on its cluster. Raises `InputError`."""
    given = scenario.record
    recordings = read(Path(given)) if isinstance(given, str) else given
    gpus = scenario.gpus or recordings[0].world
    stages = staged(scaled(recordings, gpus))
    topology, stack = load_topology(scenario).with_gpus(gpus), load_stack(scenario, scenario.stack)
    room = topology.device.usable_memory
    settings = None if scenario.allocator is None else parsed(scenario.allocator, "allocator")
    return Recorded(
        scenario=scenario,
        stages=stages,
        memories=[Memory(own, room, settings) for own, _ in stages],
        stack=stack,
        machine=machine(topology, None, scenario.straggler, scenario.name),
    )


def _notes(
    stages: Sequence[tuple[Recording, Axes]], stack: Stack, device: Device
) -> tuple[str, ...]:
    """For which launches the host's seconds were measured, and where."""
    found = coverage([own for own, _ in stages], host_of(stack, device))
    if found is None or device.measured is None:
        return ()
    software = device.measured.origin.provenance.get("torch", "")
    where = f"profile {device.profile}{f' (torch {software})' if software else ''}"
    rest = f", by the stack for the rest ({', '.join(found.others)})" if found.others else ""
    return (f"the host's times are by {where} for {found.share:.0%} of launches{rest}",)


def host_of(stack: Stack, device: Device) -> Host:
    """What the host takes: operators as the device's profile has them, all others by the stack."""
    return Host(
        step=stack.step_host,
        launch={
            "forward": stack.launch_forward,
            "backward": stack.launch_backward,
            "optimizer": stack.optimizer_launch,
        },
        call=stack.launch_collective,
        graph=stack.launch_graph,
        measured=measured_of(device.measured),
    )


def _done(record: Record, stage: int, noted: Noted) -> list[float]:
    """When a stage's device has done what the stream of each event was given up to there."""
    role = next(role.index for role in record.roles if role.stage == stage)
    ends = {span.name: span.end for span in record.timeline.spans if span.role == role}
    return [max((ends[name] for name in own), default=0.0) for own in noted.places]
