"""Bounds of numbers, in annotations of fields: `Annotated[float, Gt(0), Le(1)]`."""

from sim.config.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Ge:
    """At least `ge`."""

    ge: float


@dataclass(frozen=True, slots=True)
class Gt:
    """Above `gt`."""

    gt: float


@dataclass(frozen=True, slots=True)
class Le:
    """At most `le`."""

    le: float


@dataclass(frozen=True, slots=True)
class Lt:
    """Below `lt`."""

    lt: float
