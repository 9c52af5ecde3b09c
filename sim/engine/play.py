"""Play a program: by replay without a clock if that is exact, otherwise on the clock."""

from typing import Literal, get_args

from sim.config.errors import InputError
from sim.engine.fold import Folding
from sim.engine.machine import Machine
from sim.engine.record import Record
from sim.engine.replay import play as replay
from sim.engine.replay.contention import contends
from sim.engine.replay.writing import Writer
from sim.program.program import Program

Engine = Literal["auto", "clock", "replay"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


def play(
    program: Program, machine: Machine, *, engine: Engine = "auto", unfold: bool = False
) -> Record:
    """Play a program on a machine; the record says which engine played it, and why.

    A replay is exact if every stage is one role and no transfers share a link. "auto" then replays
    and otherwise takes the clock; "replay" raises `InputError` instead of taking the clock.
    """
    if engine not in ENGINES:
        raise InputError.unknown("engine", f"no engine is named {engine!r}", engine, ENGINES)
    record = _played(program, Folding(program, machine, unfold=unfold), engine)
    if (base := program.base) is not None:
        fewer = _played(base, Folding(base, machine, unfold=unfold), engine)
        return record.beyond(fewer, program.schedule.steps - base.schedule.steps)
    if program.apart:
        from sim.engine.repeated_apart import repeated_apart  # few programs have such stages

        return repeated_apart(record, [stage.opening is not None for stage in program.stages])
    return record


def _played(program: Program, folding: Folding, engine: Engine) -> Record:
    if engine == "clock":
        return _clocked(folding, "asked for")
    record = None if (obstacle := _obstacle(program, folding)) else _replayed(program, folding)
    if record is not None:
        return record
    obstacle = obstacle or "transfers share links"
    if engine == "replay":
        remedy = "take --engine auto or clock"
        raise InputError("engine", f"this step cannot be replayed: {obstacle}", remedy)
    return _clocked(folding, obstacle, together=True)


def _clocked(folding: Folding, because: str, *, together: bool = False) -> Record:
    """The record of a play on the clock. With `together`, roles that meet within a computation are
    first played as teams, unless other traffic disturbed the program's teams in an earlier play."""
    from sim.engine import clock
    from sim.engine.meetings import DisturbedError
    from sim.engine.outline import outlines

    known = outlines(folding.program)
    if together and not known.disturbed:
        try:
            return clock.play(folding.folded(together=True), because=because)
        except DisturbedError:
            known.disturbed = True
    return clock.play(folding.folded(), because=because)


def _obstacle(program: Program, folding: Folding) -> str:
    """Why a step cannot be replayed. It is empty if only shared links could be the reason."""
    stages = [role.stage for role, _ in folding.roles]
    if stages != list(range(len(program.stages))):
        return "ranks of a stage differ"
    return replay.unmodelled(program)


def _replayed(program: Program, folding: Folding) -> Record | None:
    """The record of a replay; None if transfers share a link."""
    estimate = replay.FoldedMachine(folding).estimate(program)
    if estimate.grid.deadlocks:
        return _clocked(folding, "passes wait for one another")  # raises, naming the step
    writer = Writer(replay.play([estimate]), [estimate])
    return None if contends(writer).any() else writer.record(folding)
