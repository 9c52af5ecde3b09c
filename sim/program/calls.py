"""Facts of a cluster about calls of collectives: the algorithms that its library may choose,
measured rates, and the checks that hosts make before each call in torch's debug mode."""

from math import inf
from typing import Annotated, Any, Literal

from sim.config.dataclass import dataclass
from sim.config.schema import Short
from sim.config.units import Bytes, BytesPerSecond, Seconds

Measurable = Literal["all_reduce", "all_gather", "reduce_scatter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBandwidth:
    """The measured rate of a collective of `size` bytes (as nccl-tests counts them) over `gpus`
    devices.

    `bus_bandwidth` is nccl-tests' busbw: bytes that a ring sends over each of its links a second.
    """

    collective: Measurable
    gpus: int
    size: Bytes
    bus_bandwidth: BytesPerSecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """Seconds for which checks hold up every host of a group before a collective: `node` for each
    rank on the node of the group's first rank, `network` for each rank on another node.

    Source: torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp, `runCollectiveChecks`, which runs
    with TORCH_DISTRIBUTED_DEBUG=DETAIL. In a monitored barrier the first rank hears and answers all
    other ranks one after the other. Two all-gathers then compare the calls that the ranks are about
    to make. All checks run by Gloo over TCP, so the time grows with the ranks and not with the
    bytes, and devices keep running. Messages between two ranks are not checked. `measured` are bus
    bandwidths of jobs with these checks, by which such jobs are recognised.

    >>> Checks(node=0.25, network=0.5).seconds(8, 8)
    6.0
    """

    node: Seconds
    network: Seconds
    measured: tuple[MeasuredBandwidth, ...] = ()

    def __post_init__(self) -> None:
        for key in ("node", "network"):
            if getattr(self, key) <= 0:
                raise ValueError(f"checks.{key} must be positive; leave [checks] out for none")

    def seconds(self, near: int, far: int) -> float:
        """The seconds of checks before a collective among `near` ranks on the node of the first
        rank and `far` ranks on other nodes."""
        return near * self.node + far * self.network if near + far > 1 else 0.0


AUTO = "auto"  # among the names of algorithms: those that the library considers by itself


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], Short(_listed)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmRule:
    """Calls of these `kinds` of at most `up_to` bytes take the algorithm `use`, or the quickest if
    `use` names several. Without `kinds`, the rule holds for all calls that the algorithm offers."""

    use: Names
    kinds: Names = ()
    up_to: Bytes = inf

    def __post_init__(self) -> None:
        if not self.use:
            raise ValueError("use is empty; name an algorithm, or leave the rule out")


def _rules(value: Any) -> Any:
    """Turn a name, or a list of names, into a list with one rule.

    >>> _rules("ring"), _rules(["ring", "tree"])
    ([{'use': ['ring']}], [{'use': ['ring', 'tree']}])
    """
    names = _listed(value)
    plain = isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    return [{"use": names}] if plain else value


AlgorithmChoice = Annotated[tuple[AlgorithmRule, ...], Short(_rules)]
"""Rules; the first that fits a call holds. A name or a list of names is short for one rule."""
