"""`--chakra` writes every rank's operations as Chakra execution traces, which ASTRA-sim plays."""

from pathlib import Path

from sim.config.errors import InputError
from sim.results.answer import Answer

HELP = "Write every rank's operations as Chakra traces, as ASTRA-sim reads them"
SUFFIXES = ()  # a folder


def write(answer: Answer, path: Path) -> None:
    """Write `rank.N.et` for each rank, and `groups.json`."""
    from sim.interface.formats import chakra_program

    if (setup := answer.get("setup")) is None:
        fault = "the operations of workers that share updates are not known beforehand"
        raise InputError("--chakra", fault, "leave it out, or train without [sharing]")
    chakra_program.write(setup.program, setup.machine, answer.get("timeline"), path)
