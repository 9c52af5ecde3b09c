"""The contract of a framework for `sim import` and `sim plan --emit`."""

from collections.abc import Callable, Mapping
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.silent import Silent
from sim.interface.frameworks.arguments import Entry, Given
from sim.parallel.plan import Plan


def _nothing(given: Given) -> "Base":
    return Base()


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What a text changes: the model of ours that is `like` its own, what the text calls that
    (empty: it says all by itself), and what else is to be known."""

    like: str = ""
    called: str = ""
    notes: tuple[str, ...] = ()


def _no_environment(plan: Plan, generation: str) -> Mapping[str, str]:
    return {}


def _as_they_are(keys: dict[str, Any], gpus: int) -> dict[str, Any]:
    return keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """How its texts are parsed and written, and the table between its arguments and our keys.

    Arguments that `silent` lists say nothing of a step, those `assumed` nothing that its `stack`
    does not. `needs` is an argument without which nothing can be read, unless the text changes what
    has a name (`base`). `completed` derives keys from others, given the number of GPUs that the job
    runs on (0 if unknown); it may say by `gpus` how many these are. A search for it looks at these
    values of choices only, as `sim plan --only` takes them.

    Its files have this `ending`. `starts` says how its program takes a FILE on each node, with what
    its user alone knows; `lacks` names what belongs into the file and is the user's. Where there is
    a `script`, these words of torchrun, the file is a script that runs it with what `render` writes
    as arguments, one a line; `starts` are the arguments that it is given. `environment` are the
    variables that a plan needs on devices of a generation.
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
    environment: Callable[[Plan, str], Mapping[str, str]] = _no_environment
    search: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    needs: str = ""
    base: Callable[[Given], Base] = _nothing
    completed: Callable[[dict[str, Any], int], dict[str, Any]] = _as_they_are
