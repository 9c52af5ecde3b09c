"""The algorithms that a user may name, and which of them a call may take."""

from collections.abc import Iterable
from types import ModuleType

from sim.collectives.interconnect import CollectiveCall
from sim.collectives.schedule import (
    CollectiveKind,
    GroupShape,
    LevelLoads,
    LevelSteps,
    kind_named,
    offered,
)
from sim.config.errors import InputError
from sim.config.plugins import modules
from sim.program.calls import AUTO, AlgorithmRule

_FOLDER = "sim.collectives.algorithms"


def selectable() -> dict[str, ModuleType]:
    """The algorithms that state their loads on both levels of a cluster, by name."""
    return {name: module for name, module in modules(_FOLDER).items() if hasattr(module, "steps")}


def _named(name: str) -> ModuleType | None:
    algorithm = modules(_FOLDER).get(name)
    return algorithm if hasattr(algorithm, "steps") else None


def check(rules: Iterable[AlgorithmRule], where: str) -> None:
    """Raise `InputError` for unknown names, and for kinds that an algorithm does not offer."""
    for rule in rules:
        kinds = [kind_named(kind, where) for kind in rule.kinds]
        for name in rule.use:
            if name == AUTO:
                continue
            if (algorithm := _named(name)) is None:
                fault = f"no algorithm named {name!r}"
                raise InputError.unknown(where, fault, name, [*selectable(), AUTO])
            for kind in kinds:
                if kind not in offered(algorithm):
                    can = ", ".join(offered(algorithm))
                    raise InputError(where, f"{name} has no {kind}", f"it has {can}")


def chosen(rules: Iterable[AlgorithmRule], kind: CollectiveKind, size: float) -> tuple[str, ...]:
    """The algorithms from which a call takes the fastest; () leaves the choice to the library.

    >>> trees = [AlgorithmRule(use=("tree",), up_to=1e6)]
    >>> [chosen(trees, "all_reduce", size) for size in (1e6, 2e6)], chosen(trees, "all_gather", 1.0)
    ([('tree',), ()], ())
    """
    for rule in rules:
        if size <= rule.up_to and (not rule.kinds or kind in map(_kind, rule.kinds)):
            return tuple(
                name for name in rule.use if name == AUTO or kind in offered(modules(_FOLDER)[name])
            )
    return ()


def _kind(name: str) -> CollectiveKind:
    return kind_named(name, "algorithm")


def on_levels(name: str, kind: CollectiveKind, shape: GroupShape) -> tuple[LevelLoads, LevelSteps]:
    """Loads and steps of an algorithm on both levels. Raises `InputError` for unsuitable groups."""
    algorithm = modules(_FOLDER)[name]
    try:
        return algorithm.loads(kind, shape), algorithm.steps(kind, shape)
    except ValueError as error:
        raise InputError.of(_where(name, shape), error) from None


def refused(call: CollectiveCall, name: str, why: str) -> InputError:
    """The error for a call that cannot use the algorithm that the user named."""
    remedy = f"choose another for {call.kind}, or {AUTO!r}"
    return InputError(_where(name, call.shape), why, remedy)


def _where(name: str, shape: GroupShape) -> str:
    """The setting that names the algorithm for groups of this shape, as errors print it."""
    return f"{'network' if shape.nodes > 1 else 'node'}.algorithm {name!r}"
