"""From measured kernels to a profile: rates fitted, the rest smoothed, judged where kept out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log
from statistics import mean, median, pstdev
from typing import Any

import numpy as np

from sim.calibration.fitting.gemm import Shape, fitted
from sim.config import catalog
from sim.config.units import quantity_text
from sim.hardware.device import Device
from sim.hardware.kernels.attention import AttentionRates
from sim.hardware.kernels.calibrated import Calibrated, features, ratios
from sim.hardware.kernels.environment import Environment
from sim.hardware.kernels.gaussian import likeliest
from sim.hardware.kernels.measurements import ANY, KernelClass, Measurement, class_of
from sim.hardware.kernels.profile import KernelResidual, Origin, Profile, rated
from sim.hardware.kernels.smoothness import Smoothness
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import Attention, Gemm, Kernel

CLASSES: tuple[KernelClass, ...] = ("gemm", "attention", "stream")


def profiled(
    device: str,
    measurements: Sequence[Measurement],
    *,
    table: str,
    provenance: dict[str, Any],
    surroundings: Environment | None = None,
) -> Profile:
    """The profile of a device's measurements.

    Rates and smoothness see what was not kept out; `residuals` judges the rest. `device` names
    the file whose rates are refined, `table` the CSV of the measurements.
    """
    document = catalog.read(catalog.find("topologies/devices", device))
    beside = surroundings or Environment()
    origin = Origin(
        device=device, measurements=table, provenance=provenance,
        host=beside.host, copies=beside.copies, overlaps=beside.overlaps,
        rates=rates(document, [one for one in measurements if not one.kept_out]),
    )  # fmt: skip
    profile = Profile(origin=origin, measurements=tuple(measurements))
    modelled = model_of(document, profile)
    smooth: dict[str, Smoothness] = {
        kind: found for kind in CLASSES[:2] if (found := _smoothness(profile, kind, modelled))
    }
    profile = replace(profile, origin=replace(origin, smoothness=smooth))
    judged = tuple(residuals(profile, modelled))
    return replace(profile, origin=replace(profile.origin, residuals=judged))


def model_of(document: dict[str, Any], profile: Profile) -> Callable[[Kernel], float]:
    """Kernel times by the device's rates as the profile refines them, nothing measured."""
    device = _device(rated(document, profile))
    return lambda kernel: kernel_time(kernel, device, (kernel.name, *device.attention))


def _device(document: dict[str, Any]) -> Device:
    # Devices are cached by name: this one is no other's.
    plain = catalog.validate({**document, "profile": ""}, Device, document["name"])
    return replace(plain, name=f"{plain.name} {hash(repr(plain))}")


def rates(document: dict[str, Any], seen: Sequence[Measurement]) -> dict[str, Any]:
    """The `[rates]` of a profile: what the measurements say of a device's constants.

    The peak of a CPU is the fastest product seen, as there is no data sheet to take it from.
    """
    found: dict[str, Any] = {"stream": _stream_rates(document, seen)}
    if document["generation"] == "cpu":
        found["peak"] = _peaks(seen)
    merged = rated(document, _bare(found))
    found["gemm"] = _gemm_rates(_device(merged), seen)
    found["attention"] = _attention_rates(_device(rated(merged, _bare(found))), seen)
    return {key: table for key, table in found.items() if table}


def _bare(rates: dict[str, Any]) -> Profile:
    return Profile(origin=Origin(device="", measurements="", rates=rates))


def _stream_rates(document: dict[str, Any], seen: Sequence[Measurement]) -> dict[str, Any]:
    """Share of the data sheet's bandwidth on the largest size, and the time of the smallest."""
    curve = Profile(origin=_bare({}).origin, measurements=tuple(seen)).curves().get(ANY)
    if curve is None:
        return {}
    (_, floor), (size, seconds) = curve.points[0], curve.points[-1]
    sheet = _device(document).memory_bandwidth
    return {"bandwidth": round(min(1.0, size / seconds / sheet), 4), "floor": micro(floor)}


def _peaks(seen: Sequence[Measurement]) -> dict[str, str]:
    best: dict[str, float] = {}
    for one in seen:
        if isinstance(one.kernel, Gemm):
            rate = one.kernel.flops / one.seconds
            best[one.kernel.precision] = max(rate, best.get(one.kernel.precision, 0.0))
    return {precision: quantity_text(rate / 1e9, "GFLOP/s") for precision, rate in best.items()}


def _gemm_rates(device: Device, seen: Sequence[Measurement]) -> dict[str, Any]:
    """All constants from the precision with most shapes, of the others what they sustain."""
    groups: dict[str, list[Shape]] = {}
    for one in seen:
        if isinstance(one.kernel, Gemm):
            shape = Shape(kernel=one.kernel, time=one.seconds)
            groups.setdefault(one.kernel.precision, []).append(shape)
    if not groups:
        return {}
    main = max(groups, key=lambda precision: len(groups[precision]))
    found = fitted(device, groups[main], precision=main)
    sustained = {main: found.sustained.of(main)}
    for precision in groups.keys() - {main}:
        sustained[precision] = fitted(
            replace(device, gemm=found), groups[precision], precision=precision, only_sustained=True
        ).sustained.of(precision)
    constants = {key: round(getattr(found, key), 4) for key in _SHARES}
    constants["prologue"] = micro(found.prologue)
    return {**constants, "sustained": {key: round(x, 4) for key, x in sustained.items()}}


_SHARES = ("burst", "half_tile", "quarter_tile", "epilogue")


def _attention_rates(device: Device, seen: Sequence[Measurement]) -> dict[str, Any]:
    """By generation of fused attention, the shares of the peak that its kernels reach."""
    groups: dict[str, list[tuple[Attention, float]]] = {}
    for one in seen:
        if isinstance(one.kernel, Attention):
            groups.setdefault(one.kernel.name, []).append((one.kernel, one.seconds))
    found = {generation: _shares(device, generation, group) for generation, group in groups.items()}
    return {generation: tables for generation, tables in found.items() if len(tables) == 2}


_FIRST = AttentionRates(forward={128: 0.4}, backward={128: 0.3})  # where a file knows none


def _shares(
    device: Device, generation: str, group: Sequence[tuple[Attention, float]]
) -> dict[str, dict[str, float]]:
    """The median share of the peak by direction and head size."""
    first = device.attention.get(generation, _FIRST)
    known = _device_with(device, generation, first)
    shares: dict[str, dict[int, list[float]]] = {}
    for kernel, seconds in group:
        share = first.share(kernel.head, backward=kernel.backward)
        reached = share * kernel_time(kernel, known, (generation,)) / seconds
        way = "backward" if kernel.backward else "forward"
        shares.setdefault(way, {}).setdefault(kernel.head, []).append(reached)
    return {
        way: {str(head): round(min(1.0, median(values)), 4) for head, values in table.items()}
        for way, table in shares.items()
    }


def _device_with(device: Device, generation: str, rates: AttentionRates) -> Device:
    attention = {**device.attention, generation: rates}
    return replace(device, name=f"{device.name} {generation}", attention=attention)


def _smoothness(
    profile: Profile, kind: KernelClass, modelled: Callable[[Kernel], float]
) -> Smoothness | None:
    group = profile.fitted(kind)
    if not group:
        return None
    points = np.array([features(one.kernel) for one in group])
    return likeliest(points, ratios(group, modelled))


def residuals(profile: Profile, modelled: Callable[[Kernel], float]) -> list[KernelResidual]:
    """How far the profile is from the kernels that were kept out of it, by class."""
    predict = Calibrated(profile, modelled)
    found = []
    for kind in CLASSES:
        judged = [
            (known.seconds, one.seconds)
            for one in profile.measurements
            if one.kept_out and class_of(one.kernel) == kind and (known := predict(one.kernel))
        ]
        if judged:
            found.append(residual(kind, judged))
    return found


def residual(kind: str, judged: Sequence[tuple[float, float]]) -> KernelResidual:
    """The errors of (predicted, measured) times.

    >>> one = residual("gemm", [(1.1, 1.0), (0.9, 1.0), (1.0, 1.0)])
    >>> round(one.median, 3), round(one.p95, 3), round(one.bias, 3)
    (0.1, 0.1, 0.0)
    """
    errors = [predicted / measured - 1.0 for predicted, measured in judged]
    sizes = sorted(map(abs, errors))
    logs = [log(measured / predicted) for predicted, measured in judged]
    return KernelResidual(
        kind=kind,
        shapes=len(judged),
        median=round(median(sizes), 4),
        p95=round(sizes[int(0.95 * (len(sizes) - 1) + 0.5)], 4),
        bias=round(mean(errors), 4),
        sigma=round(pstdev(logs), 4),
    )


def micro(seconds: float) -> str:
    """Seconds as a file writes them.

    >>> micro(3.21e-6)
    '3.21 us'
    """
    return quantity_text(seconds * 1e6, "us")
