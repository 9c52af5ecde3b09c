"""Checks of what shares links with training: other jobs, a loader, a checkpoint.

The quantity is the mean step, from the third one until the first job has ended.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tests.testbed.check import KIB, Check, Quantity
from tests.testbed.hosts import Measured

BAR = 0.10
_SKIPPED = 2  # steps in which jobs find their rhythm

Job = Mapping[str, Any]


def checks(hosts: int) -> Iterator[Check]:
    """Two jobs on four hosts, three on eight; a loader and checkpoints where the last host is
    the storage of the others."""
    yield from map(partial(_jobs, hosts), *zip(*_companies(hosts), strict=True))
    if hosts == 4:
        yield from _loaders()
        yield from _checkpoints()


def _job(hosts: Sequence[int], size: int, pause: float, steps: int, offset: float = 0.0) -> Job:
    return dict(hosts=tuple(hosts), size=size, pause=pause, steps=steps, offset=offset)


def _companies(hosts: int) -> Iterator[tuple[str, list[Job]]]:
    """Jobs across the trunk, which carries as much as a host's link."""
    half, size = hosts // 2, 512 * KIB
    across = [(host, half + host) for host in range(half)]
    if hosts == 4:
        one, two = across
        yield "two equal jobs", [_job(one, size, 0.06, 16), _job(two, size, 0.06, 16)]
        yield "two unlike jobs", [_job(one, size, 0.10, 14), _job(two, 2 * size, 0.03, 10)]
        apart = _job(two, size, 0.06, 16, offset=0.053)
        yield "two jobs, phases apart", [_job(one, size, 0.06, 16), apart]
        yield (
            "two jobs, one in each half",
            [
                _job((0, 1), size, 0.06, 16),
                _job((2, 3), size, 0.06, 16),
            ],
        )
    else:
        # Three that begin together do not stay together: whoever is a little ahead has the link to
        # himself for that long, and is twice as far ahead in the next step. So they begin apart.
        offsets = (0.0, 0.008, 0.016)
        equal = [
            _job(pair, size, 0.06, 12, offset)
            for pair, offset in zip(across, offsets, strict=False)
        ]
        yield "three equal jobs", equal
        unlike = [
            _job(across[0], size, 0.06, 12),
            _job(across[1], size // 2, 0.12, 12),
            _job(across[2], 2 * size, 0.08, 8),
        ]
        yield "three unlike jobs", unlike
        within = [_job((0, 1), size, 0.06, 12), _job((5, 6), size, 0.06, 12)]
        yield "three jobs, one across", [*within, _job((2, 4), size, 0.06, 12)]


def _jobs(hosts: int, name: str, jobs: Sequence[Job]) -> Check:
    return Check(
        name=name,
        pattern="jobs",
        arguments={"jobs": jobs},
        predict=lambda p: _steps(p.jobs(jobs)),
        read=partial(_of_jobs, jobs),
        quantities=tuple(Quantity(name=f"job {n + 1}", bar=BAR) for n in range(len(jobs))),
        repeat=3,
        narrow=True,
    )


def _loaders() -> Iterator[Check]:
    """Three readers share the server's link; each of them has its samples and its gradients on its
    own."""
    for name, read in (("keeps up", 384 * KIB), ("is too slow", 1024 * KIB)):
        yield _beside(f"a loader that {name}", read=read)


def _checkpoints() -> Iterator[Check]:
    yield _beside("a checkpoint in every fourth step", write=384 * KIB, every=4)
    yield _beside("a checkpoint over several steps", write=1536 * KIB, every=8)


def _beside(name: str, **traffic: int) -> Check:
    each: dict[str, Any] = dict(size=512 * KIB, pause=0.06, steps=2 + 16, **traffic)
    return Check(
        name=name,
        pattern="beside_storage",
        arguments=each,
        predict=lambda p: (1e3 * p.beside_storage(**each),),
        read=partial(_of_jobs, [_job((0,), 0, 0.0, 0)]),
        quantities=(Quantity(name="step", bar=BAR),),
        repeat=3,
    )


def _of_jobs(jobs: Sequence[Job], measured: Measured) -> tuple[float, ...]:
    runs = [[values[job["hosts"][0]] for job in jobs] for values in measured.values]
    return tuple(map(statistics.median, zip(*map(_steps, runs), strict=True)))


def _steps(ends: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The mean step of each job (ms), as far as all of them run."""
    until = min(own[-1] for own in ends) * (1.0 + 1e-9)
    counted = [[end for end in own if end <= until] for own in ends]
    return tuple(1e3 * (own[-1] - own[_SKIPPED - 1]) / (len(own) - _SKIPPED) for own in counted)
