"""The contract of a framework for `sim import` and `sim plan --emit`."""

from collections.abc import Callable, Mapping
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.silent import Silent
from sim.interface.frameworks.arguments import Entry, Given
from sim.parallel.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The model that a text changes: its name in models/ (`like`), its name in the text (`called`;
    empty if the text describes the whole model), and notes for the user."""

    like: str = ""
    called: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """How a framework's texts are parsed and rendered, and the table between its arguments and our
    keys.

    Arguments in `silent` do not concern a step; arguments in `assumed` repeat facts of the `stack`.
    A text must have the argument `needs`, unless it changes a named model (`base`). `completed`
    derives keys from other keys and the job's number of GPUs (0 if unknown); it may return that
    number as `gpus`. `search` has values of choices, written as for `--only`: `sim plan --emit`
    searches only these values.

    Files end in `ending`. `starts` is the command that runs a FILE on each node, with capitals for
    values that only the user knows. `lacks` names parts of the file that the user has to add. If
    there is a `script` (words for torchrun), the file is a shell script that runs it. `render` then
    writes the script's arguments, one on each line, and `starts` has the user's further arguments.
    `environment` returns the variables that a plan needs on a generation of devices.
    """

    parse: Callable[[str], Given]
    render: Callable[[Mapping[str, tuple[str, ...]]], str]
    table: tuple[Entry, ...]
    silent: Silent
    stack: str
    ending: str = ".txt"
    starts: str = ""
    lacks: str = ""
    script: str = ""
    environment: Callable[[Plan, str], Mapping[str, str]] = lambda plan, generation: {}
    search: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    needs: str = ""
    base: Callable[[Given], Base] = lambda given: Base()
    completed: Callable[[dict[str, Any], int], dict[str, Any]] = lambda keys, gpus: keys
