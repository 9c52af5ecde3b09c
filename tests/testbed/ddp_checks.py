"""Checks of DDP: by what its layers take, and by what traces of it on half as many hosts say."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from sim.jobs.traces.changes import Changes
from sim.jobs.traces.replay import replayed as replay
from tests.testbed.check import KIB, MIB, Calibration, Check, time
from tests.testbed.hosts import Hosts
from tests.testbed.predict import Predictor

COMPUTING = dict(layers=4, width=384, batch=32)
LAYERS, SIZE, FORWARD, BACKWARD = 8, 256 * KIB, 0.005, 0.025  # bytes and seconds of each


def calibrate(hosts: Hosts, folder: Path) -> Calibration:
    """Half a ping-pong, the passes of the network of `ddp_computing`, and the traces of all jobs
    on half as many hosts, which are written into a folder."""
    one_way = hosts.measure("ping_pong", round_trips=100, repeat=5).of_rank(0)
    passes = hosts.measure("computing", **COMPUTING, repeat=9, warm=2)
    forward, backward = min((max(values, key=sum) for values in passes.values), key=sum)
    calibration = Calibration(min(one_way), forward, backward)
    return replace(calibration, traces=_profiled(hosts.size, calibration, folder))


def _profiled(size: int, calibration: Calibration, folder: Path) -> dict[str, list[Path]]:
    traces = {}
    with Hosts(size // 2) as hosts:
        for number, check in enumerate(_jobs(size, calibration)):
            place = folder / f"{size}-{number}"
            place.mkdir()
            what = {"step_of": check.pattern, "folder": str(place), **check.arguments}
            hosts.measure("profiled", repeat=1, warm=0, **what)
            traces[check.name] = sorted(place.iterdir())
    return traces


def checks(hosts: int, calibration: Calibration) -> Iterator[Check]:
    """Also of a straggler, and of a link at half the rate."""
    yield from _jobs(hosts, calibration)
    yield _sleeping(8, [1.0] * (hosts - 1) + [1.5])
    for check in _jobs(hosts, calibration):
        told = partial(_told, calibration.traces.get(check.name, ()))
        again = replace(check, name=f"{check.name}, from a trace of {hosts // 2}", predict=told)
        yield again
        if check.pattern == "ddp_sleeping":
            yield replace(again, name=f"{again.name}, a link at half", slow={hosts - 1: 2.0})


def _told(traces: Sequence[Path], predictor: Predictor) -> tuple[float, ...]:
    changed = replay(traces, Changes(machine=predictor.machine)).changed
    assert changed is not None
    return time(changed.step_time)


def _jobs(hosts: int, calibration: Calibration) -> Iterator[Check]:
    yield from map(_sleeping, (8, 1))
    if hosts == 4:
        yield _computing(calibration)


def _computing(calibration: Calibration) -> Check:
    """Among 4 hosts only: 8 that compute on a few cores measure the cores."""
    count, weights = COMPUTING["layers"], 4 * COMPUTING["width"] ** 2
    backward = [calibration.backward / count] * count
    return Check(
        name="DDP, light real compute",
        pattern="ddp_computing",
        arguments={**COMPUTING, "bucket": weights / MIB},
        predict=lambda p: time(p.ddp(calibration.forward, backward, [weights] * count, count)),
        warm=2,
    )


def _sleeping(buckets: int, slowdown: Sequence[float] = ()) -> Check:
    each = dict(layers=LAYERS, size=SIZE, forward=FORWARD, backward=BACKWARD)
    backward, sizes = [BACKWARD] * LAYERS, [SIZE] * LAYERS
    name = f"DDP, {buckets} bucket{'s' * (buckets > 1)}, sleeping"
    return Check(
        name=f"{name}, a straggler" if slowdown else name,
        pattern="ddp_sleeping",
        arguments={**each, "bucket": LAYERS * SIZE / buckets / MIB, "slowdown": slowdown},
        predict=lambda p: time(p.ddp(LAYERS * FORWARD, backward, sizes, buckets, slowdown)),
        warm=2,
    )
