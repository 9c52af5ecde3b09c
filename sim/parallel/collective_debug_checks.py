"""Where hosts are held up by the checks of collectives (`sim.program.checks`)."""

from collections.abc import Iterable
from dataclasses import replace

from sim.parallel.job import Job, host_time
from sim.program.operations import Collective, Communicate, Compute, Operation, Work


def held_up(job: Job, operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """The same operations; the host's seconds before a communication are put at the end of the
    computation before it, or at the beginning of the first one."""
    done: list[Operation] = []
    early = 0.0
    for operation in operations:
        if isinstance(operation, Communicate):
            seconds = sum(
                job.checked(one) for one in operation.calls if isinstance(one, Collective)
            )
            last = max((n for n, one in enumerate(done) if isinstance(one, Compute)), default=None)
            if last is None:
                early += seconds
            else:
                done[last] = _longer(done[last], behind=seconds)
        elif early:
            operation, early = _longer(operation, before=early), 0.0
        done.append(operation)
    if early:
        work = Work(name="checks", items=host_time(early))
        done.insert(0, Compute(name="checks", work=work))
    return tuple(done)


def _longer(operation: Operation, *, before: float = 0.0, behind: float = 0.0) -> Operation:
    if not (before or behind) or not isinstance(operation, Compute):
        return operation
    work = operation.work
    items = (*host_time(before), *work.items, *host_time(behind))
    return replace(operation, work=replace(work, items=items))
