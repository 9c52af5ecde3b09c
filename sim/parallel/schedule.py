"""The table of pipeline schedules: their names, sources and requirements.

A schedule is an `Entry` in the `SCHEDULES` of a module of `sim.parallel.schedules`. Plans, the
search, memory and pictures read this table and refuse names that it lacks. A name that ends in .csv
is a file of the user's own (`sim.parallel.schedule_file`).

F and B are times of a microbatch's passes through a stage's layers; I and W are halves of B. An
entry's `bubble` is the share of a step, without communication, in which p equal stages wait.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.plugins import is_added, modules, naming, remembered
from sim.program.program import Style
from sim.program.schedule import Places, Schedule

if TYPE_CHECKING:
    from sim.parallel.bubble_filling import Costs

_FOLDER = "sim.parallel.schedules"
_FILLED = 12  # microbatches per stage after which a pipeline that does not drain repeats itself


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A schedule of the table.

    `order` makes the schedule for (stages, microbatches, chunks); `paper` is its source. `chunks`
    is the number of chunks on each stage; None allows any number from 2 on. `stages` must divide
    the number of stages. For a number of stages, `group` gives the size of groups of microbatches
    and `least` the least number of microbatches. Groups must divide the number of microbatches,
    unless the last group may be `uneven`. `bubble` is the closed form of the bubble. It holds for
    whole groups, for at least as many microbatches as stages, and for I = W = F if backward passes
    are split. `searched` finds an order for given times of passes and messages and a number of
    microbatches; `order` is used while the times are unknown. If the pipeline does not drain
    between steps, `versions` gives the number v of versions of its weights that a stage keeps, for
    (stage, stages, microbatches). The last gradients of a step are then v - 1 updates late.
    `exchange` is how the schedule's runtime hands over activations (`sim.program.program`), if it
    differs from the stack's. `sim plan` tries a schedule that is not `usual` only if it is named.
    """

    name: str
    paper: str
    order: Callable[[int, int, int], Schedule]
    chunks: int | None = 1
    stages: int = 1
    uneven: bool = False
    group: Callable[[int], int] = lambda stages: 1
    least: Callable[[int], int] = lambda stages: 1
    bubble: Callable[[int, int, int], float] | None = None
    splits_backward: bool = False
    searched: "Callable[[Costs, int], Schedule] | None" = None
    versions: Callable[[int, int, int], int] | None = None
    exchange: Style | None = None
    usual: bool = True

    def check(self, stages: int, microbatches: int, chunks: int) -> None:
        """Raise `InputError` if the schedule cannot run with these sizes."""
        self._check_chunks(chunks)
        if stages % self.stages:
            fault = f"{self.name} needs a multiple of {self.stages} stages, not {stages}"
            raise InputError("plan, schedule", fault, "change pp")
        if not self.takes(stages, microbatches):
            need = self.need(stages)
            fault = f"{self.name} needs {need} microbatches on {stages} stages, not {microbatches}"
            raise InputError("plan, schedule", fault, "change global_batch, microbatch or pp")

    def takes(self, stages: int, microbatches: int) -> bool:
        """Whether the schedule can run this number of microbatches on this number of stages."""
        whole = self.uneven or microbatches % self.group(stages) == 0
        return whole and microbatches >= self.least(stages) and stages % self.stages == 0

    def need(self, stages: int) -> str:
        """Return in words which numbers of microbatches the schedule can run."""
        group, least = 1 if self.uneven else self.group(stages), self.least(stages)
        at_least = f"at least {least}" if least > group or group == 1 else ""
        multiple = f"a multiple of {group}" if group > 1 else ""
        return ", ".join(filter(None, (multiple, at_least)))

    def _check_chunks(self, chunks: int) -> None:
        if self.chunks is None and chunks < 2:
            fault = f"{self.name} needs several chunks of the model on each stage"
            remedy = 'set interleave = 2 or more, or schedule = "1f1b"'
            raise InputError("plan, schedule", fault, remedy)
        if self.chunks is not None and chunks != self.chunks:
            raise wrong_chunks("plan, schedule", self.name, self.chunks, chunks)


def wrong_chunks(where: str, name: str, needed: int, given: int) -> InputError:
    """Return the error for a schedule that needs another number of chunks on each stage."""
    fault = f"schedule {name!r} runs {needed} chunk{'s' * (needed > 1)} a stage, not {given}"
    return InputError(where, fault, f"set interleave = {needed}")


@remembered(_FOLDER)
def table() -> Mapping[str, Entry]:
    """Return all schedules by name, in alphabetical order of their families.

    >>> {"1f1b", "gpipe", "zb-v"} <= set(table())
    True
    """
    families = modules(_FOLDER).values()
    return {entry.name: entry for family in families for entry in family.SCHEDULES}


@remembered(_FOLDER)
def entry(name: str) -> Entry:
    """Return the schedule of a name. Raises `InputError` for a name that is not in the table."""
    for family in naming(_FOLDER, name):
        for known in family.SCHEDULES:
            if known.name == name:
                return cast(Entry, known)
    if name in table():
        return table()[name]
    fault = f"no schedule named {name!r}"
    short = re.sub(r"^zero[-_ ]?bubble$", "zb-h", name.casefold())
    raise InputError.unknown("plan, schedule", fault, short, sorted(table()))


def listed(name: str) -> Entry | None:
    """Return the schedule of a name; None for a file of the user's own. Raises `InputError`."""
    return None if is_file(name) else entry(name)


def left_behind(old: Any, new: Any) -> tuple[str, ...]:
    """Return the keys of a plan that belong to its old schedule: the `interleave`, if another
    schedule allows a single number of chunks only.

    >>> left_behind("interleaved", "1f1b"), left_behind("1f1b", "1f1b")
    (('interleave',), ())
    """
    chosen = table().get(new) if isinstance(new, str) and new != old else None
    return () if chosen is None or chosen.chunks is None else ("interleave",)


def searched(name: str) -> "Callable[[Costs, int], Schedule] | None":
    """Return the function that searches a schedule's order, if the order depends on times."""
    known = listed(name)
    return known.searched if known else None


def is_file(name: str) -> bool:
    """Whether a name is the path of a schedule of the user's own.

    >>> is_file("mine/greedy.csv"), is_file("gpipe")
    (True, False)
    """
    return name.endswith(".csv")


def schedule(name: str, stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """Return the schedule of a name or file. Raises `InputError` for unknown names or wrong sizes.

    >>> from sim.parallel.schedule_file import to_text
    >>> print(to_text(schedule("1f1b", stages=2, microbatches=2)))
    0F0,0F1,0B0,0B1
    1F0,1B0,1F1,1B1
    """
    for key, count in {"pp": stages, "microbatches": microbatches, "interleave": chunks}.items():
        if count < 1:
            raise InputError("plan", f"{key} = {count}", f"set {key} >= 1")
    if is_file(name):
        from sim.parallel import schedule_file

        return schedule_file.load(name, stages, microbatches)
    entry(name).check(stages, microbatches, chunks)
    return made(name, stages, microbatches, chunks)


def undrained(name: str, stages: int, microbatches: int) -> Schedule:
    """Return several steps in a row of a schedule that does not drain. Enough steps fill the
    pipeline (`base`); further steps follow with at least as many microbatches as stages."""
    filled, more = -(-_FILLED * stages // microbatches), -(-stages // microbatches)

    def steps(count: int) -> Schedule:
        return replace(made(name, stages, count * microbatches, 1), steps=count)

    return replace(steps(filled + more), base=steps(filled))


def pieces(name: str, stages: int, microbatches: int, chunks: int) -> Places:
    """Return which pieces of the model each stage holds. For a schedule of the table they do not
    depend on the number of microbatches."""
    if is_file(name):
        return schedule(name, stages, microbatches).pieces
    known = entry(name)
    return made(name, stages, max(known.group(stages), known.least(stages)), chunks).pieces


@lru_cache(maxsize=512)
def made(name: str, stages: int, microbatches: int, chunks: int) -> Schedule:
    """Return the schedule of a name without checking its sizes. Raises `InputError` if a module
    that was added to the package makes an order that is incomplete or cannot run."""
    order = entry(name).order
    found = order(stages, microbatches, chunks)
    if is_added(order.__module__):
        from sim.parallel import schedule_file

        schedule_file.check(found, microbatches, f"schedule {name}")
    return found
