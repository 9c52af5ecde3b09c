"""`sim.plan`: the fastest layouts of a model on a cluster that fit."""

from collections.abc import Iterable, Mapping

from sim.analysis.executors import Jobs
from sim.analysis.search.answer import SearchResult
from sim.analysis.search.choices.named import parsed
from sim.analysis.search.search import BEST, WITHIN, search
from sim.analysis.search.space import Space, space
from sim.hardware.cluster.topology import Topology
from sim.hardware.stack import Stack
from sim.interface.frameworks.jobs import emitted, searched
from sim.model.model import Model
from sim.parallel.plan import Plan

Values = Iterable[str] | Mapping[str, Iterable[object]]


def plan(
    model: str | Model,
    topology: str | Topology,
    *,
    global_batch: int,
    gpus: int | None = None,
    stack: str | Stack = "megatron-core",
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
    """Search the fastest layout of a model on a cluster, all of whose GPUs are used or so many.

    `global_batch` are the sequences of a step, `seq` their tokens, if not the model's. Only these
    values of choices are searched, or these are left out: texts as `sim plan --only` takes them
    ("zero=1,3"), or a mapping. Layouts may take `within` times as long as the best; `jobs` are
    processes, or the address of a Dask scheduler; `price` is a GPU's rent such as "2 USD/h" instead
    of the topology's. For a `framework` what it can be told is searched, unless `only` says
    otherwise. The `best` so many are played in full. Raises `InputError`, `FitError`
    where no layout fits into memory.
    """
    where = space(
        model,
        topology,
        gpus=gpus,
        global_batch=global_batch,
        stack=stack,
        precision=precision,
        seq=seq,
        only=parsed(searched(framework), "--emit") | parsed(_texts(only), "--only"),
        without=parsed(_texts(without), "--without"),
        price=price,
    )
    if framework:
        _refuse_untellable(framework, where)
    return search(where, jobs=jobs, best=best, within=within)


def _refuse_untellable(framework: str, where: Space) -> None:
    """Raise `InputError` before a layout is looked for where a framework has no words for the model
    or for a ZeRO stage that is asked for."""
    for stage in where.only.get("zero", ("0",)):
        plan = Plan(global_batch=1, dp=1, precision=where.precision, zero=int(stage))
        emitted(framework, where.model, plan)


def _texts(values: Values) -> tuple[str, ...]:
    if isinstance(values, Mapping):
        return tuple(f"{key}={','.join(map(_said, own))}" for key, own in values.items())
    return tuple(values)


def _said(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
