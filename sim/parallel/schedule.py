"""The table of pipeline schedules: their names, sources and requirements.

A schedule is an `Entry` in the `SCHEDULES` of a module of `sim.parallel.schedules`, and nowhere
else: plans, the search, memory and pictures ask this table and refuse what it does not know. A name
that ends in .csv is a file of the user's own (`sim.parallel.schedule_file`).

With F and B the passes of one microbatch through one stage's layers, and no communication, an
entry's `bubble` is the share of a step in which p equal stages wait for one another.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.plugins import is_added, modules, naming, remembered
from sim.config.schema import nearest
from sim.program.program import Style
from sim.program.schedule import Places, Schedule

if TYPE_CHECKING:
    from sim.parallel.bubble_filling import Costs

_FOLDER = "sim.parallel.schedules"
_FILLED = 12  # microbatches for each stage within which a pipeline has come to repeat itself


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A schedule of the table.

    `order` gives it for (stages, microbatches, chunks); `paper` is its source. `chunks` is how many
    it has on each stage: exactly so many, or any number from 2 on if None. `stages` must divide the
    number of stages. On so many of them, microbatches go in groups of `group`, which must divide
    their number unless the last may be `uneven`; there must be at least `least`. `bubble` is its
    closed form for whole groups, as many microbatches as stages or more, and for I = W = F where it
    splits the backward pass. `searched` looks for an order that suits what passes and messages
    take, for so many microbatches; `order` is then what stands in until these are known. Where
    the pipeline does not drain between steps, `versions` is how many of its weights a stage keeps,
    for (stage, stages, microbatches): the last of a step's gradients come as many updates late,
    less one. `exchange` is how its runtime hands over activations (`sim.program.program`), where
    that is not as the stack does it. One that is not `usual` is there to compare with: `sim plan`
    tries it where it is named.
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
        """Raise `InputError` where the sizes do not suit it."""
        self._check_chunks(chunks)
        if stages % self.stages:
            fault = f"{self.name} needs a multiple of {self.stages} stages, not {stages}"
            raise InputError("plan, schedule", fault, "change pp")
        if not self.takes(stages, microbatches):
            need = self.need(stages)
            fault = f"{self.name} needs {need} microbatches on {stages} stages, not {microbatches}"
            raise InputError("plan, schedule", fault, "change global_batch, microbatch or pp")

    def takes(self, stages: int, microbatches: int) -> bool:
        """Whether it takes so many microbatches on so many stages."""
        whole = self.uneven or microbatches % self.group(stages) == 0
        return whole and microbatches >= self.least(stages) and stages % self.stages == 0

    def need(self, stages: int) -> str:
        """How many microbatches it can take, in words."""
        group, least = 1 if self.uneven else self.group(stages), self.least(stages)
        at_least = f"at least {least}" if least > group or group == 1 else ""
        multiple = f"a multiple of {group}" if group > 1 else ""
        return ", ".join(filter(None, (multiple, at_least)))

    def _check_chunks(self, chunks: int) -> None:
        if self.chunks is None and chunks < 2:
            fault = f"{self.name} needs chunks of the model to take in turn"
            remedy = 'set interleave = 2 or more, or schedule = "1f1b"'
            raise InputError("plan, schedule", fault, remedy)
        if self.chunks is not None and chunks != self.chunks:
            raise wrong_chunks("plan, schedule", self.name, self.chunks, chunks)


def wrong_chunks(where: str, name: str, needed: int, given: int) -> InputError:
    """The refusal of a schedule that runs another number of chunks a stage."""
    fault = f"schedule {name!r} runs {needed} chunk{'s' * (needed > 1)} a stage, not {given}"
    return InputError(where, fault, f"set interleave = {needed}")


@remembered(_FOLDER)
def table() -> Mapping[str, Entry]:
    """All schedules by name, in alphabetical order of their families.

    >>> {"1f1b", "gpipe", "zb-v"} <= set(table())
    True
    """
    families = modules(_FOLDER).values()
    return {entry.name: entry for family in families for entry in family.SCHEDULES}


@remembered(_FOLDER)
def entry(name: str) -> Entry:
    """The schedule of that name. Raises `InputError` for a name that is not in the table."""
    for family in naming(_FOLDER, name):
        for known in family.SCHEDULES:
            if known.name == name:
                return cast(Entry, known)
    if name in table():
        return table()[name]
    fault = f"no schedule named {name!r}"
    short = re.sub(r"^zero[-_ ]?bubble$", "zb-h", name.casefold())
    raise InputError("plan, schedule", fault, nearest(short, sorted(table())))


def listed(name: str) -> Entry | None:
    """The same; None for a file of the user's own."""
    return None if is_file(name) else entry(name)


def without_chunks(plan: dict[str, Any], schedule: Any) -> dict[str, Any]:
    """The table of a plan without the `interleave` of its own schedule, where another schedule is
    chosen that takes one number of chunks alone.

    >>> without_chunks({"schedule": "interleaved", "interleave": 3}, "1f1b")
    {'schedule': 'interleaved'}
    """
    chosen = table().get(schedule) if isinstance(schedule, str) else None
    if chosen is None or chosen.chunks is None:
        return plan
    return {key: value for key, value in plan.items() if key != "interleave"}


def searched(name: str) -> "Callable[[Costs, int], Schedule] | None":
    """The search for the order of a schedule, if it depends on times."""
    known = listed(name)
    return known.searched if known else None


def is_file(name: str) -> bool:
    """Whether it is the path of a schedule of the user's own.

    >>> is_file("mine/greedy.csv"), is_file("gpipe")
    (True, False)
    """
    return name.endswith(".csv")


def schedule(name: str, stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """The schedule of a name or file. Raises `InputError` for an unknown name or unsuitable sizes.

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
    """Steps of a schedule that does not drain in a row: enough to fill the pipeline, and those with
    which as many microbatches follow as it has stages, or more."""
    filled, more = -(-_FILLED * stages // microbatches), -(-stages // microbatches)

    def steps(count: int) -> Schedule:
        return replace(made(name, stages, count * microbatches, 1), steps=count)

    return replace(steps(filled + more), base=steps(filled))


def pieces(name: str, stages: int, microbatches: int, chunks: int) -> Places:
    """Where the pieces of the model lie; in a schedule of the table that is the same for any number
    of microbatches."""
    if is_file(name):
        return schedule(name, stages, microbatches).pieces
    known = entry(name)
    return made(name, stages, max(known.group(stages), known.least(stages)), chunks).pieces


@lru_cache(maxsize=512)
def made(name: str, stages: int, microbatches: int, chunks: int) -> Schedule:
    """The schedule of a name, whether its sizes suit or not. Raises `InputError` for an order of
    a module that was added to the package, where it cannot run or leaves something out."""
    order = entry(name).order
    found = order(stages, microbatches, chunks)
    if is_added(order.__module__):
        from sim.parallel import schedule_file

        schedule_file.check(found, microbatches, f"schedule {name}")
    return found
