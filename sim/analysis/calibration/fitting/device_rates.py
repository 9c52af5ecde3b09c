"""The rates of a device, from measured kernels: bandwidth, peaks, products and attention."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from sim.analysis.calibration.fitting import gemm
from sim.config import catalog
from sim.config.grouped import grouped
from sim.config.readable import quantity_text
from sim.hardware.device import Device
from sim.hardware.kernels import fused_attention
from sim.hardware.kernels.measurements import ANY, Measurement
from sim.hardware.kernels.profile import Origin, Profile, rated
from sim.hardware.kernels.rates import AttentionRates
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import Attention, Gemm, Kernel


def model_of(document: dict[str, Any], profile: Profile) -> Callable[[Kernel], float]:
    """Return a function that computes kernel times from the device's rates, which the profile
    refines. The profile's measured times are not used."""
    device = _device(rated(document, profile))
    return lambda kernel: kernel_time(kernel, device, (kernel.name, *device.attention))


def _device(document: dict[str, Any]) -> Device:
    return catalog.validate({**document, "profile": ""}, Device, document["name"])


def fitted_rates(document: dict[str, Any], measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Return the `[rates]` of a profile: the constants of a device that fit the measurements.

    The peak of a CPU is the fastest measured product, since there is no data sheet for it.
    """
    rates: dict[str, Any] = {"stream": _stream_rates(document, measurements)}
    if document["generation"] == "cpu":
        rates["peak"] = _peaks(measurements)
    refined = rated(document, _profile_of(rates))
    rates["gemm"] = _gemm_rates(_device(refined), measurements)
    rates["attention"] = _attention_rates(_device(rated(refined, _profile_of(rates))), measurements)
    return {key: table for key, table in rates.items() if table}


def _profile_of(rates: dict[str, Any]) -> Profile:
    """Return a profile that holds only rates."""
    return Profile(origin=Origin(device="", measurements="", rates=rates))


def _stream_rates(document: dict[str, Any], measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Return the share of the data sheet's bandwidth that the largest size reaches, and the time of
    the smallest size. Calls are timed one after another, so the time includes the gap between
    kernels."""
    curve = replace(_profile_of({}), measurements=tuple(measurements)).curves().get(ANY)
    if curve is None:
        return {}
    (_, floor), (size, seconds) = curve.points[0], curve.points[-1]
    share = min(1.0, size / seconds / _device(document).memory_bandwidth)
    return {"bandwidth": round(share, 4), "floor": micro(floor), "gap": micro(0.0)}


def _peaks(measurements: Sequence[Measurement]) -> dict[str, str]:
    peaks: dict[str, float] = {}
    for measurement in measurements:
        kernel = measurement.kernel
        if isinstance(kernel, Gemm):
            rate = kernel.flops / measurement.seconds
            peaks[kernel.precision] = max(rate, peaks.get(kernel.precision, 0.0))
    return {precision: quantity_text(rate / 1e9, "GFLOP/s") for precision, rate in peaks.items()}


def _gemm_rates(device: Device, measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Return all constants for the precision with most shapes. For other precisions, return only
    the share of the peak at full clock."""
    groups = grouped(
        (own.kernel.precision, own) for own in measurements if isinstance(own.kernel, Gemm)
    )
    if not groups:
        return {}
    main = max(groups, key=lambda precision: len(groups[precision]))
    rates = gemm.fitted(device, groups[main], precision=main)
    full = {main: rates.full.of(main)}
    device = replace(device, gemm=rates)
    for precision in groups.keys() - {main}:
        fitted = gemm.fitted(device, groups[precision], precision=precision, only_full=True)
        full[precision] = fitted.full.of(precision)
    constants: dict[str, Any] = {
        key: round(value, 4) for key in gemm.FITTED if (value := getattr(rates, key))
    }
    constants["prologue"] = micro(rates.prologue)
    return {**constants, "full": {key: round(x, 4) for key, x in full.items()}}


def _attention_rates(device: Device, measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Return the shares of the peak that kernels of each generation of fused attention reach."""
    groups = grouped(
        (kernel.name, (kernel, own.seconds))
        for own in measurements
        if isinstance(kernel := own.kernel, Attention)
    )
    rates = {generation: _shares(device, generation, group) for generation, group in groups.items()}
    return {generation: tables for generation, tables in rates.items() if len(tables) == 2}


_FIRST = AttentionRates(forward={128: 0.4}, backward={128: 0.3})  # if the device's file has none


def _shares(
    device: Device, generation: str, group: Sequence[tuple[Attention, float]]
) -> dict[str, dict[str, float]]:
    """Return the median share of the peak by direction and head size."""
    first = device.attention.get(generation, _FIRST)
    assumed = replace(device, attention={**device.attention, generation: first})
    shares: dict[str, dict[int, list[float]]] = {}
    for kernel, seconds in group:
        share = fused_attention.share(first, kernel.head, backward=kernel.backward)
        reached = share * kernel_time(kernel, assumed, (generation,)) / seconds
        direction = "backward" if kernel.backward else "forward"
        shares.setdefault(direction, {}).setdefault(kernel.head, []).append(reached)
    return {
        direction: {str(head): round(min(1.0, median(values)), 4) for head, values in table.items()}
        for direction, table in shares.items()
    }


def micro(seconds: float) -> str:
    """Return seconds as a file writes them.

    >>> micro(3.21e-6)
    '3.21 us'
    """
    return quantity_text(seconds * 1e6, "us")
