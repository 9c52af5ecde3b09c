"""How long a play takes."""

from sim.engine.machine import Machine
from sim.program.program import Program

_OF_OPERATION = 6e-5  # s of one core for each operation of each role


def effort(program: Program, machine: Machine) -> float:
    """How long a play takes (s of one core), to an order of magnitude. If the network hashes
    connections, every rank counts as a role; otherwise every stage counts as a role."""
    from sim.program.unrolled import operations

    network, stages = machine.topology.network, range(len(program.stages))
    hashed = network is not None and network.hashed
    alike = machine.topology.gpus // len(stages) if hashed else 1
    written = sum(sum(1 for _ in operations(program, stage)) for stage in stages)
    return alike * written * _OF_OPERATION
