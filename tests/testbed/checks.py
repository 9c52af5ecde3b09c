"""Every check of the testbed: the prediction, the real software, how close they must be.

A pattern of `patterns` and a method of `Predictor` get the same arguments; nothing of a check is
fitted to its own measurement.
"""

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.testbed import ddp_checks, shared_checks
from tests.testbed.check import KIB, MIB, Calibration, Check, Quantity, time
from tests.testbed.hosts import Measured
from tests.testbed.predict import partners

UPDATES = 50  # of each worker of an asynchronous server


def checks(hosts: int, calibration: Calibration) -> list[Check]:
    """All checks of a testbed with this number of hosts."""
    return [
        *_collectives(hosts),
        *_pairs(hosts),
        *_slow_links(hosts),
        *_stragglers(hosts),
        *ddp_checks.checks(hosts, calibration),
        *_asynchronous(hosts),
        *_in_rounds(hosts),
        *_away(hosts),
        *shared_checks.checks(hosts),
    ]


def names(hosts: int) -> list[str]:
    """Their names, which need no calibration."""
    return [check.name for check in checks(hosts, Calibration(0.0, 1.0, 1.0))]


def _collective(
    kind: Any, size: int, name: str = "", bar: float = 0.05, slow: Mapping[int, float] | None = None
) -> Check:
    return Check(
        name=name or f"{kind.replace('_', '-')} {_size(size)}",
        pattern=kind,
        arguments={"size": size},
        predict=lambda p: time(p.collective(kind, size)),
        quantities=(Quantity(bar=bar),),
        slow=slow or {},
    )


def _size(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def _collectives(hosts: int) -> Iterator[Check]:
    for size in (128 * KIB, 512 * KIB, 2 * MIB) if hosts == 4 else (512 * KIB, 2 * MIB):
        yield _collective("all_reduce", size)
    yield _collective("all_gather", 2 * MIB)
    yield _collective("reduce_scatter", MIB if hosts == 4 else 2 * MIB)
    yield _collective("broadcast", MIB // 2, bar=0.05 if hosts == 4 else 0.10)


def _pairs(hosts: int) -> Iterator[Check]:
    yield Check(
        name="send/receive 2 MiB",
        pattern="send_receive",
        arguments={"size": 2 * MIB},
        predict=lambda p: time(p.send(2 * MIB)),
    )
    yield _server("parameter server 1 MiB", MIB if hosts == 4 else 512 * KIB)
    yield _gossip("pair gossip 1 MiB", MIB, partners(hosts, 1))
    yield _gossip("random partners 1 MiB, 3 rounds", MIB, partners(hosts, 3))


def _server(
    name: str, size: int, pauses: Sequence[float] = (), slow: Mapping[int, float] | None = None
) -> Check:
    return Check(
        name=name.replace("1 MiB", _size(size)),
        pattern="parameter_server",
        arguments={"size": size, "pauses": pauses},
        predict=lambda p: time(p.parameter_server(size, pauses)),
        slow=slow or {},
    )


def _gossip(
    name: str,
    size: int,
    rounds: Sequence[Mapping[int, int]],
    pauses: Sequence[float] = (),
    slow: Mapping[int, float] | None = None,
) -> Check:
    return Check(
        name=name,
        pattern="gossip",
        arguments={"size": size, "rounds": rounds, "pauses": pauses},
        predict=lambda p: time(p.gossip(size, len(rounds), pauses)),
        slow=slow or {},
    )


def _slow_links(hosts: int) -> Iterator[Check]:
    """The last host's link at a half and at an eighth of the rate."""
    for share, factor in (("half", 2.0), ("an eighth", 8.0)):
        slow, size = {hosts - 1: factor}, 512 * KIB if factor == 2.0 else 256 * KIB
        yield _collective(
            "all_reduce", size, f"all-reduce {_size(size)}, a link at {share}", slow=slow
        )
        yield _server(f"parameter server {_size(size)}, a link at {share}", size, slow=slow)
        name = f"pair gossip 1 MiB, a link at {share}"
        yield _gossip(name, MIB, partners(hosts, 1), slow=slow)


def _stragglers(hosts: int) -> Iterator[Check]:
    """All compute (sleep) 40 ms, the last rank three times as long."""
    pauses = [0.04] * (hosts - 1) + [0.12]
    yield Check(
        name="all-reduce 512 KiB, a straggler",
        pattern="all_reduce",
        arguments={"size": 512 * KIB, "pauses": pauses},
        predict=lambda p: time(p.collective("all_reduce", 512 * KIB, pauses)),
    )
    size = 512 * KIB if hosts == 4 else 256 * KIB
    yield _server(f"parameter server {_size(size)}, a straggler", size, pauses)
    yield _gossip("random partners 1 MiB, 2 rounds, a straggler", MIB, partners(hosts, 2), pauses)


def _in_rounds(hosts: int) -> Iterator[Check]:
    """Sums of int8, and workers of two ranks each that average after three steps of 40 ms."""
    yield Check(
        name="all-reduce 8 MiB as int8, in rounds",
        pattern="int8_rounds",
        arguments={"size": 8 * MIB},
        predict=lambda p: time(p.int8_rounds(8 * MIB)),
    )
    each: dict[str, Any] = dict(size=512 * KIB, pauses=[0.04] * hosts, period=3, rounds=2)
    yield Check(
        name="local SGD 512 KiB, workers of two ranks",
        pattern="hierarchical",
        arguments=each,
        predict=lambda p: time(p.hierarchical(**each)),
    )


def _away(hosts: int) -> Iterator[Check]:
    """Six steps of 200 ms and more for each worker, on a server that is away for 600 ms in the
    third, or with a worker that is in its first."""
    pauses = [0.0] + [0.2 + 0.03 * rank for rank in range(1, hosts)]
    for name, fails in (
        ("a server that fails", (0, 0.7, 0.6)),
        ("a worker that comes and goes", (1, 0.15, 0.6)),
    ):
        each: dict[str, Any] = dict(size=256 * KIB, pauses=pauses, steps=6, fails=fails)
        yield Check(
            name=f"asynchronous server 256 KiB, {name}",
            pattern="away",
            arguments=each,
            predict=lambda p, each=each: time(p.away(**each)),
        )


def _asynchronous(hosts: int) -> Iterator[Check]:
    """Workers of different speeds; their steps vary by random factors, drawn beforehand."""
    size, pauses = 32 * KIB, draws(hosts - 1)
    quantities = (
        Quantity(name="updates", unit="1/s"),
        Quantity(name="staleness", unit="updates", bar=0.10),
    )
    modes = (("asynchronous", None), ("stale-synchronous, bound 2", 2))
    for name, bound in modes:
        yield Check(
            name=f"parameter server {_size(size)}, {name}",
            pattern="asynchronous",
            arguments=dict(size=size, pauses=pauses, bound=bound),
            predict=lambda p, bound=bound: p.asynchronous(size, pauses, bound),
            read=_updates_and_staleness,
            quantities=quantities,
            warm=0,
        )


def draws(workers: int) -> list[list[float]]:
    """Seconds of every step: lognormal, the last worker takes half as long again.

    The server's link is busy for about half of the time. If it were always busy, workers would
    bunch, and bunching amplifies every difference, in the simulation as on the hosts.
    """
    generator = random.Random(2)
    means = [0.0035 * workers] * (workers - 1) + [0.00525 * workers]
    return [[mean * generator.lognormvariate(0.0, 0.4) for _ in range(UPDATES)] for mean in means]


def _updates_and_staleness(measured: Measured) -> tuple[float, ...]:
    staleness = measured.of_rank(0)
    rates = [len(s) / t for s, t in zip(staleness, measured.seconds, strict=True)]
    return statistics.median(rates), statistics.median(statistics.fmean(s) for s in staleness)
