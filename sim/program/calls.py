"""What a cluster says of calls of collectives: the algorithms that its library may take, measured
rates, and the checks that hosts make before each call if torch was told to look for mistakes."""

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
    """Seconds for which every host of a group is held up before a collective: `node` for each rank
    on the node of the first one, `network` for each that is elsewhere.

    TORCH_DISTRIBUTED_DEBUG=DETAIL (torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp,
    `runCollectiveChecks`): a monitored barrier, whose first rank hears and answers all others one
    after the other, and two all-gathers of what each is about to call, all by Gloo over TCP. So the
    time grows with the ranks and not with the bytes, and devices go on meanwhile. Messages between
    two ranks are not checked. `measured` bus bandwidths tell such jobs from others.

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
        """Of a collective among `near` ranks of one node and `far` ones."""
        return near * self.node + far * self.network if near + far > 1 else 0.0


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
