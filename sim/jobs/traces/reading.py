"""From Kineto's events to what each rank did.

CUPTI gives a kernel and the call that launched it one `correlation`. Who waits for whom is written
down where synchronisation was recorded (category `cuda_sync`: `Stream Wait Event` with the stream
that it waits for); elsewhere a `cudaStreamWaitEvent` before a launch is taken to mean the kernel
that was launched last on every other stream and had ended when the launched one began. A host waits
in calls named ...Synchronize, and in copies that it does not leave before they end, for the kernels
that end meanwhile. Threads of a host take turns (autograd's does), so they are read as one.

On CPUs operators are what the host does, but for the collectives of gloo, which have threads of
their own: each was begun by the operator in or behind which it begins, and the host has waited for
it if it did nothing when it ended.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from sim.config.errors import InputError
from sim.jobs.traces.activity import Rank
from sim.jobs.traces.kineto import CALLS, Event, trace_of
from sim.jobs.traces.profiled import CLOSE, DEVICE, ProfiledSteps
from sim.jobs.traces.profiled_device import flights, kernels
from sim.jobs.traces.profiled_host import host_items
from sim.jobs.traces.removed import Removed


def read(path: Path, removed: str = "") -> Rank:
    """The steps of one rank; operators whose name contains `removed` are left out, with what they
    launched and the host's time for them. Raises `InputError` for a file that holds no step."""
    document = trace_of(path)
    events = [e for e in document["traceEvents"] if e.get("ph") == "X" and e.get("dur", -1) >= 0]
    begin, end, steps = _window(events, path)
    events = [e for e in events if begin <= e["ts"] < end or e.get("cat") in DEVICE]
    gone = Removed((e["ts"], e["ts"] + e["dur"]) for e in _removed(events, removed))
    if removed and not gone:
        names = Counter(e["name"] for e in events if e.get("cat") == "cpu_op").most_common(3)
        some = ", ".join(name for name, _ in names) or "none"
        raise InputError("--remove", f"{path.name} has no operator {removed!r}", f"often: {some}")
    job = document.get("distributedInfo") or {}
    found = ProfiledSteps(document, events, begin, end, gone)
    own = tuple(kernels(found))
    return Rank(
        rank=int(job.get("rank", 0)),
        world=found.world,
        kernels=own,
        flights=dict(flights(found, own)),
        host=tuple(host_items(found)),
        steps=steps,
        measured=(max((end, *found.ends)) - begin) * 1e-6,
    )


def _window(events: Iterable[Event], path: Path) -> tuple[float, float, int]:
    """From the first marked step to the end of the last (us), and how many; else everything."""
    marks = [e for e in events if str(e["name"]).startswith("ProfilerStep#") and _on_host(e)]
    if marks:
        begin, ends = min(e["ts"] for e in marks), max(e["ts"] + e["dur"] for e in marks)
        if not ends > begin:
            what = f"{marks[0]['name']} lasts no time"
            raise InputError(str(path), what, "profile a step of training")
        return begin, ends, len(marks)
    times = [
        (e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") in (*DEVICE, *CALLS, "cpu_op")
    ]
    if not times:
        raise InputError(
            str(path), "holds neither kernels nor operators", "profile a step of training"
        )
    return min(begin for begin, _ in times), max(end for _, end in times) + CLOSE, 1


def _on_host(event: Event) -> bool:
    return event.get("cat") in ("user_annotation", "cpu_op")


def _removed(events: Iterable[Event], name: str) -> Iterator[Event]:
    if name:
        yield from (e for e in events if e.get("cat") == "cpu_op" and name in e["name"])
