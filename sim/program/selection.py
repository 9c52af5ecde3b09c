"""Which algorithms a collective library may take, where its user says so (NCCL_ALGO of NCCL)."""

from math import inf
from typing import Annotated, Any

from sim.config.dataclass import dataclass
from sim.config.schema import Short
from sim.config.units import Bytes

AUTO = "auto"  # among the names of algorithms: those that the library considers by itself


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], Short(_listed)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmRule:
    """Calls of these `kinds` (of all that an algorithm offers, where left out) of at most `up_to`
    bytes take an algorithm of `use`, the quickest where it names several."""

    use: Names
    kinds: Names = ()
    up_to: Bytes = inf

    def __post_init__(self) -> None:
        if not self.use:
            raise ValueError("use is empty; name an algorithm, or leave the rule out")


def _rules(value: Any) -> Any:
    """
    >>> _rules("ring"), _rules(["ring", "tree"])
    ([{'use': ['ring']}], [{'use': ['ring', 'tree']}])
    """
    names = _listed(value)
    plain = isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    return [{"use": names}] if plain else value


AlgorithmChoice = Annotated[tuple[AlgorithmRule, ...], Short(_rules)]
"""Of several rules the first that fits a call counts; in short a name, or a list of names."""
