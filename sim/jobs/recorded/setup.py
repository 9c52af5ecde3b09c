"""How is a scenario of a recorded script set up?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.engine.record import Record
from sim.hardware.device import Device
from sim.hardware.kernels.time import kernel_time
from sim.hardware.stack import Stack
from sim.jobs.recorded.allocator_settings import parsed
from sim.jobs.recorded.axes import Axes, staged
from sim.jobs.recorded.file import read
from sim.jobs.recorded.host import HostTimes, measured_of
from sim.jobs.recorded.kernels import kernel_of, run_on
from sim.jobs.recorded.memory import EventTimes, Memory
from sim.jobs.recorded.program import EventPlaces, program
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.scaled import scaled
from sim.jobs.recorded.work import work_of
from sim.model.kernels import Kernel
from sim.program.beside import beside
from sim.program.operations import Operation
from sim.program.program import Program
from sim.scenario.scenario import BaseScenario
from sim.scenario.setup import load_stack, load_topology, machine


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedScenario(BaseScenario):
    """A training script whose step was recorded (`sim capture`).

    `record` is the file, or its recordings, one per pipeline stage. The recordings fix the layout,
    so there is no plan. `allocator` replaces the script's settings of torch's caching allocator,
    written as in PYTORCH_ALLOC_CONF.
    """

    kind: ClassVar[str] = "sim.jobs.recorded.kind"

    stack: str | Stack = "pytorch-eager"
    record: str | tuple[Recording, ...]
    allocator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recorded step, ready to be played. It has a recording and its memory for each pipeline
    stage, the software stack and the machine."""

    kind: ClassVar[str] = "sim.jobs.recorded.kind"
    job: ClassVar[None] = None

    scenario: RecordedScenario
    stages: Sequence[tuple[Recording, Axes]]
    memories: Sequence[Memory]
    stack: Stack
    machine: Machine

    @property
    def name(self) -> str:
        return self.scenario.name

    @property
    def program(self) -> Program:
        """The step of every rank."""
        return self.slower({})

    @property
    def columns(self) -> dict[str, Any]:
        """The column that this setup adds to a sweep's table: its number of GPUs."""
        return {"gpus": self.machine.topology.gpus}

    def slower(self, factors: Mapping[str, float]) -> Program:
        """The program with multiplied seconds. A factor belongs to the host (`HOST`), to a family
        of kernels, or to a cause of transfers, which then slow kernels for longer."""
        return self.placed(factors)[0]

    def placed(self, factors: Mapping[str, float]) -> tuple[Program, list[EventPlaces]]:
        """The program of `slower`, with the places of the events of each stage."""
        step, places = program(
            self.stages,
            self._kernels(),
            memories=self.memories,
            time=lambda kernel: factors.get(kernel.family, 1.0) * self.time(kernel),
            host=self._host(),
            factors=factors,
        )
        return beside(step, {0: self._loading()}), places

    def _loading(self) -> tuple[Operation, ...]:
        """The work of the scenario's loader. Raises `InputError` if the recording does not say how
        many samples a step has."""
        topology, (recording, axes) = self.machine.topology, self.stages[0]
        if self.scenario.loader is None:
            return ()
        samples = work_of(recording).samples
        if not samples:
            fault = "has a loader, but its recording does not say how many samples a step has"
            raise InputError(self.name, fault, "capture a script that reads its samples in batches")
        replicas = axes.data_ranks // axes.sequence_ranks
        ranks = topology.gpus // (len(self.stages) * replicas)
        return self.scenario.loader.on(topology, self.name).work(samples, ranks)

    def _host(self) -> HostTimes:
        return host_of(self.stack, self.machine.topology.device)

    def _kernels(self) -> list[list[Kernel]]:
        return [
            [kernel_of(operator) for operator in recording.operators]
            for recording, _ in self.stages
        ]

    def seconds(self) -> list[list[float]]:
        """The device's seconds of the operators of each stage's recording."""
        return [[self.time(kernel) for kernel in kernels] for kernels in self._kernels()]

    def remembered(self, record: Record, noted: Sequence[EventPlaces]) -> "Recorded":
        """The setup with memory at the times of a record: a block that several streams use is free
        once the device has finished with it."""
        if not any(memory.used_by_several for memory in self.memories):
            return self
        opening = self._host().step
        memories = [
            memory.at(EventTimes(memory.recording, _done(record, stage, of), of.hosts, opening))
            for stage, (memory, of) in enumerate(zip(self.memories, noted, strict=True))
        ]
        return replace(self, memories=memories)

    def time(self, kernel: Kernel) -> float:
        """A kernel's seconds on the device."""
        device = self.machine.topology.device
        return kernel_time(run_on(kernel, device), device=device, attention=self.stack.attention)


def from_scenario(scenario: RecordedScenario) -> Recorded:
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
        memories=[Memory(recording, room, settings) for recording, _ in stages],
        stack=stack,
        machine=machine(topology, None, scenario.straggler, scenario.name),
    )


def host_of(stack: Stack, device: Device) -> HostTimes:
    """The host's seconds: from the device's profile if measured there, otherwise from the stack."""
    return HostTimes(
        step=stack.step_host,
        launch={
            "forward": stack.launch_forward,
            "backward": stack.launch_backward,
            "optimizer": stack.optimizer_launch,
        },
        operators={"forward": stack.operator_forward, "backward": stack.operator_backward},
        call=stack.launch_collective,
        graph=stack.launch_graph,
        measured=measured_of(device.measured),
    )


def _done(record: Record, stage: int, noted: EventPlaces) -> list[float]:
    """For each event of a stage: when the device has done all earlier work of its stream (s)."""
    role = next(role.index for role in record.roles if role.stage == stage)
    ends = {span.name: span.end for span in record.timeline.spans if span.role == role}
    return [max((ends[name] for name in names), default=0.0) for names in noted.places]
