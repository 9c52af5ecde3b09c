"""`--actions` writes the order of passes in the format that PyTorch's pipelining reads."""

from pathlib import Path

from sim.config.errors import InputError
from sim.results.answer import Answer

HELP = "Write every stage's passes in PyTorch's format; plan.schedule reads the edited file"
SUFFIXES = (".csv",)


def write(answer: Answer, path: Path) -> None:
    """Write a line for each stage, such as `0F0,0F1,0B0`."""
    from sim.config.files import atomic_write
    from sim.parallel.schedule_file import to_text

    if (schedule := answer.get("schedule")) is None:
        fault = "only a plan has an order of passes; [sharing] and recordings have none"
        raise InputError("--actions", fault, "leave it out, or ask of a scenario with a plan")
    with atomic_write(path) as part:
        part.write_text(to_text(schedule) + "\n")
