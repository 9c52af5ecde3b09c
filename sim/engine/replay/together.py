"""Play several steps at once, as columns of the same arrays, if they differ only in durations.

Steps are played together if their structures are equal: the shapes of their programs, the classes
of equal ranks, and the loaded links. Rates, latencies and seconds of kernels may differ.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from sim.config import reads
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.fold import Folding
from sim.engine.machine import Machine
from sim.engine.replay.contention import contends
from sim.engine.replay.moved import MovedMachine
from sim.engine.replay.play import Estimate, FoldedMachine, play, unmodelled
from sim.engine.replay.writing import Writer
from sim.engine.timeline import Role
from sim.engine.tracks import Runs
from sim.program.program import Program

_CELLS = 100_000  # the most moments that are played at once: more do not fit in the cache


@dataclass(frozen=True, slots=True, eq=False)
class _Folded:
    """A program on a machine; `folded` is None if only the clock can play it. `structure` is equal
    for machines on which the program is folded alike."""

    program: Program
    machine: Machine
    structure: object
    folded: FoldedMachine | None

    def on(self, program: Program, machine: Machine) -> "_Folded | None":
        """The same program on another machine, or None if it must be folded again."""
        if program is not self.program or _told(machine) != self.structure:
            return None
        if machine is self.machine:
            return self
        folded = self.folded and MovedMachine(self.folded, machine)
        return _Folded(program, machine, self.structure, folded)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of the ranks."""
        return () if self.folded is None else tuple(role for role, _ in self.folded.folding.roles)

    def estimate(self) -> Estimate | None:
        """The program, ready to be evaluated, or None if only the clock can play it."""
        if self.folded is None or self.program.base is not None or self.program.apart:
            return None
        estimate = self.folded.estimate(self.program)
        return None if estimate.grid.deadlocks else estimate


def _told(machine: Machine) -> object:
    """The properties of a machine that decide how a program is folded."""
    form, device = machine.topology.form, machine.topology.device
    return form, device, device.measured, machine.backend, machine.slowdown, machine.shared


@reads.kept(1, key=lambda program, machine: (program, _told(machine)))
def _folded(program: Program, machine: Machine) -> _Folded:
    """The program on this machine, or on an earlier machine on which it is folded alike."""
    folding = Folding(program, machine)
    stages = [role.stage for role, _ in folding.roles]
    plain = stages == list(range(len(program.stages))) and not unmodelled(program)
    return _Folded(program, machine, _told(machine), FoldedMachine(folding) if plain else None)


def runs(steps: Sequence[tuple[Program, Machine]]) -> Iterator[tuple[list[int], Runs]]:
    """Play steps without a clock. Yields the numbers of steps with equal structures, and their runs
    as columns. Steps that need the clock, and steps with input errors, are left out.
    """
    groups: dict[tuple[Hashable, tuple[Role, ...]], list[tuple[int, Estimate]]] = {}
    last: _Folded | None = None
    for number, (program, machine) in enumerate(steps):
        with suppress(InputError):
            last = (last and last.on(program, machine)) or _folded(program, machine).on(
                program, machine
            )
            if last and (estimate := last.estimate()) is not None:
                key = (estimate.shape, estimate.written), last.roles
                groups.setdefault(key, []).append((number, estimate))
    for (_, roles), members in groups.items():
        most = max(_CELLS // members[0][1].grid.size, 1)
        for first in range(0, len(members), most):
            numbers, estimates = zip(*members[first : first + most], strict=True)
            writer = Writer(play(estimates), estimates)
            alone = np.flatnonzero(~contends(writer))
            if len(alone):
                yield [numbers[column] for column in alone], writer.runs(roles).chosen(alone)
