"""`--chakra`: every rank's operations as Chakra execution traces, which ASTRA-sim plays."""

from pathlib import Path
from typing import TYPE_CHECKING

from sim.config.errors import InputError

if TYPE_CHECKING:
    from sim.results.outcome import Outcome
    from sim.results.result import Result

HELP = "Write every rank's operations as Chakra traces, as ASTRA-sim reads them"
SUFFIXES = ()  # a folder


def write(result: "Result | Outcome", path: Path) -> None:
    """`rank.N.et` of each rank, and `groups.json`."""
    from sim.formats import chakra_program
    from sim.parallel.step import training_step
    from sim.results.result import Result
    from sim.scenario.setup import Written

    if not isinstance(result, Result) or result.setup is None:
        what = "workers that share updates have no step of operations that are known beforehand"
        raise InputError("--chakra", what, "leave it out, or train without [sharing]")
    setup = result.setup
    program = setup.program if isinstance(setup, Written) else training_step(setup.job)
    chakra_program.write(program, setup.machine, result.timeline, path)
