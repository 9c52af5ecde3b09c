"""`sim.plan`: the fastest layouts of a model that fit on a cluster."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from sim import kind, questions
from sim.analysis.executors import Jobs
from sim.analysis.search.answer import SearchResult
from sim.analysis.search.choices.named import outside, parsed
from sim.analysis.search.search import BEST, WITHIN, search
from sim.analysis.search.space import Space, space
from sim.config import catalog
from sim.config.errors import InputError
from sim.config.stopping import so_far
from sim.hardware.cluster.topology import Topology
from sim.hardware.stack import Stack
from sim.interface.frameworks.jobs import emitted, searched, stack_of
from sim.model.model import Model
from sim.parallel.plan import Plan
from sim.results.result import Result
from sim.simulate import answer

USUAL = "megatron-core"  # the software of a job that names no software

Values = Iterable[str] | Mapping[str, Iterable[object]]


def plan(
    model: str | Model,
    topology: str | Topology,
    *,
    global_batch: int,
    gpus: int | None = None,
    stack: str | Stack | None = None,
    precision: str = "bf16",
    seq: int | None = None,
    only: Values = (),
    without: Values = (),
    within: float = WITHIN,
    jobs: Jobs = None,
    price: str | None = None,
    framework: str = "",
    best: int = BEST,
) -> SearchResult:
    """Search for the fastest layout of a model on a cluster: on `gpus` of its GPUs, or on all.

    `global_batch` is the number of sequences in a step. `seq` is the number of tokens of a
    sequence, if it differs from the model's. `only` lists the values of choices to search,
    `without` the values to leave out. Both are texts as `sim plan --only` takes them ("zero=1,3"),
    or mappings. Layouts that take up to `within` times as long as the best are kept. `jobs` is a
    number of processes, or the address of a Dask scheduler. `price` is a GPU's rent such as "2
    USD/h" and replaces the topology's. The `stack` runs the job; without it, the stack of the
    `framework`, or Megatron-Core. The answer has only layouts that the framework's arguments can
    express, unless `only` says otherwise. If the layout recommended without a framework is not
    among them, a note says how much slower the answer is. The fastest `best` layouts are played in
    full. Raises `InputError`, and `FitError` where no layout fits into memory.
    """
    framework_stack, told = stack_of(framework), parsed(searched(framework), "--emit")
    asked = parsed(_texts(only), "--only")
    spaces = partial(
        space,
        model,
        topology,
        gpus=gpus,
        global_batch=global_batch,
        stack=framework_stack or USUAL if stack is None else stack,
        precision=precision,
        seq=seq,
        without=parsed(_texts(without), "--without"),
        price=price,
    )
    found, look = None, partial(search, jobs=jobs, best=best, within=within)
    where = free = spaces(only=asked)
    if told:
        where = spaces(only=told | asked, untold=told, framework=framework_stack)
        _refuse_untellable(framework, where)
        found = _expressed(where, free, look)
    found = found or look(where)
    return replace(found, beside=tuple(so_far(_faster(found), least=0)))


def _expressed(
    where: Space, free: Space, look: Callable[[Space], SearchResult]
) -> SearchResult | None:
    """Return the answer to the `free` search, with only the layouts of a framework's space. If the
    recommended layout is not in that space, search the space instead, and keep the layout as
    `beyond`. Return None if no layout of the free search fits."""
    try:
        found = look(free)
    except InputError:
        return None  # the search of the framework's space says why
    if outside(where, found.recommended.plan):
        return replace(look(where), beyond=found.recommended)
    best, every = (
        tuple(layout for layout in layouts if not outside(where, layout.plan))
        for layouts in (found.best, found.layouts)
    )
    return replace(found, space=where, best=best or (found.recommended,), layouts=every)


def _faster(found: SearchResult) -> Iterator[Result]:
    """Yield the results of scenarios of the same model, batch and GPUs whose step is shorter."""
    space = found.space
    for name in catalog.names("scenarios"):
        document = catalog.read(catalog.find("scenarios", name))
        same = document.get("model") == space.named and document.get("gpus") == space.gpus
        if same and document.get("plan", {}).get("global_batch") == space.global_batch:
            setup = questions.planned(kind.set_up(kind.load(name), brief=True))
            topology = setup.machine.topology
            if topology.name == space.topology.name and setup.job.model.seq == space.model.seq:
                result = answer(setup)
                if result.fits and result.step_time < found.recommended.step_time:
                    yield result


def _refuse_untellable(framework: str, where: Space) -> None:
    """Raise `InputError` before the search if a framework cannot express the model or a requested
    ZeRO stage."""
    for stage in where.only.get("zero", ("0",)):
        plan = Plan(global_batch=1, dp=1, precision=where.precision, zero=int(stage))
        emitted(framework, where.model, plan)


def _texts(values: Values) -> tuple[str, ...]:
    if isinstance(values, Mapping):
        return tuple(f"{key}={','.join(map(_said, entries))}" for key, entries in values.items())
    return tuple(values)


def _said(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
