"""Which collective does a kernel of NCCL run, if the kernel's event does not say so?

Since torch 2.1, a kernel's event describes its collective. In older traces, operators around the
launch do: `nccl:all_reduce` names the collective. With `record_shapes=True`, this operator and
`record_param_comms` (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp) have the shapes of the
collective's tensors. The operator may name the group. If it names none, the group is all ranks,
unless the job is known to have several groups.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from operator import itemgetter
from typing import Any

from sim.jobs.recorded.kernels import call_of

Event = Mapping[str, Any]

CALLS = ("cuda_runtime", "cuda_driver")  # categories of events in which the host calls the device

_AROUND = ("nccl:", "record_param_comms", "c10d::")
_NESTED = 8  # the most operators of collectives inside one another
_KNOWN = (
    *("Collective name", "In msg nelems", "Out msg nelems", "dtype"),
    *("Group size", "Process Group Name", "Process Group Ranks"),
)
_TYPES = {  # (name in `sim`, bytes of an element): names in torch and NCCL
    ("fp32", 4): ("float",),
    ("bf16", 2): ("bfloat16", "c10::bfloat16"),
    ("fp16", 2): ("half", "c10::half"),
    ("fp64", 8): ("double",),
    ("int64", 8): ("long", "long int"),
    ("int32", 4): ("int",),
    ("int16", 2): ("short",),
    ("int8", 1): ("char", "signed char"),
    ("uint8", 1): ("byte", "unsigned char"),
    ("bool", 1): ("bool",),
    ("fp8", 1): tuple(
        f"{space}float8_{kind}"
        for space in ("", "c10::")
        for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")
    ),
}
DTYPES = {name: dtype for dtype, names in _TYPES.items() for name in names}


def correlation_of(event: Event) -> Any:
    """The number that a launch and the launched kernel have in common; None without it."""
    return (event.get("args") or {}).get("correlation")


def described(events: Sequence[Event], job: Mapping[str, Any]) -> list[Event]:
    """The events; kernels whose collectives only operators describe get this description as
    arguments. `job` is the trace's `distributedInfo`."""
    unknown = {n for event in events if _is_unknown(event) and (n := correlation_of(event))}
    if not unknown:
        return list(events)
    asked = {correlation_of(e): e for e in events if e.get("cat") in CALLS}
    around = _Operators(events)
    told = {n: _told(around.of(asked[n]), job) for n in unknown & asked.keys()}
    return [
        {**event, "args": {**event["args"], **told.get(correlation_of(event), {})}}
        if _is_unknown(event)
        else event
        for event in events
    ]


def _is_unknown(event: Event) -> bool:
    named = event.get("cat") == "kernel" and "nccl" in event["name"].lower()
    return named and "Collective name" not in (event.get("args") or {})


class _Operators:
    """The operators of collectives on each thread, in the order in which they began."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.threads: defaultdict[Any, list[Event]] = defaultdict(list)
        for event in events:
            on_host = event.get("ph") == "X" and event.get("cat") in ("cpu_op", "user_annotation")
            if on_host and event["name"].startswith(_AROUND):
                self.threads[event.get("pid"), event.get("tid")].append(event)
        for thread in self.threads.values():
            thread.sort(key=itemgetter("ts"))

    def of(self, launch: Event) -> list[Event]:
        """The operators around a launch, the innermost first."""
        thread = self.threads[launch.get("pid"), launch.get("tid")]
        place = bisect_right(thread, launch["ts"], key=itemgetter("ts"))
        last = thread[max(place - _NESTED, 0) : place]
        return [e for e in reversed(last) if launch["ts"] <= e["ts"] + e.get("dur", 0)]


def _told(around: Sequence[Event], job: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a collective by operators: its name, its elements, their type and its
    group; empty if one of these facts is missing."""
    args = [event.get("args") or {} for event in around]
    known = {key: given[key] for given in args for key in _KNOWN if key in given}
    if "Collective name" in known:
        return known
    names = (re.split("::|nccl:", event["name"])[-1] for event in around)
    name = next(filter(None, map(call_of, names)), None)
    inside = (
        given
        for event, given in zip(around, args, strict=True)
        if not event["name"].startswith("c10d")
    )
    sent = next(filter(None, map(_sizes, inside)), None)  # c10d's calls also list their results
    ranks = known.get("Group size", _world(job))
    if name is None or sent is None or not ranks:
        return {}
    dtype, elements = sent
    parts = ranks if name == "all_gather" else 1
    ends = {"In msg nelems": elements, "Out msg nelems": elements * parts}
    return known | ends | {"Collective name": name, "dtype": dtype, "Group size": ranks}


def _sizes(args: Mapping[str, Any]) -> tuple[str, int] | None:
    """The type and the elements of an operator's tensors; None without recorded shapes.

    >>> _sizes({"Input type": ["float", "Scalar"], "Input Dims": [[2, 3], []]})
    ('float', 6)
    """
    pairs = zip(args.get("Input type") or (), args.get("Input Dims") or (), strict=False)
    found = [(kind, elements_of(dims)) for kind, dims in pairs if kind.lower() in DTYPES]
    return (found[0][0], sum(elements for _, elements in found)) if found else None


def _world(job: Mapping[str, Any]) -> int:
    """The ranks of a job's only group; 0 where there are several, or none is known."""
    groups = job.get("pg_config") or [{}]
    return int(groups[0].get("pg_size", 0) or job.get("world_size", 0)) if len(groups) == 1 else 0


def elements_of(shape: Any) -> int:
    """Elements of a tensor, or of a list of tensors.

    >>> elements_of([2, 3]), elements_of([[2, 3], [4]]), elements_of([])
    (6, 10, 1)
    """
    if any(isinstance(size, list) for size in shape):
        return sum(map(elements_of, shape))
    return prod(shape)
