"""The profile of a device: rates fitted to measured kernels, and the errors on kernels kept out of
the fit. The host's seconds of operators are derived from its timed calls or from traces."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import log
from statistics import mean, median, pstdev
from typing import Any

import numpy as np

from sim.analysis.calibration.fitting.device_rates import fitted_rates, model_of
from sim.analysis.calibration.timing.clock import summary
from sim.analysis.calibration.timing.host_times import HostTime
from sim.config import catalog
from sim.config.grouped import grouped
from sim.hardware.kernels.calibrated import Calibrated, features, likeliest, ratios
from sim.hardware.kernels.dispatch import OperatorTime
from sim.hardware.kernels.environment import Environment
from sim.hardware.kernels.measurements import KernelClass, Measurement, class_of
from sim.hardware.kernels.profile import KernelResidual, Origin, Profile, Smoothness
from sim.jobs.traces.kineto_operators import HostCall
from sim.model.kernels import Kernel

CLASSES: tuple[KernelClass, ...] = ("gemm", "attention", "stream")


def profiled(
    device: str,
    measurements: Sequence[Measurement],
    *,
    table: str,
    provenance: dict[str, Any],
    environment: Environment | None = None,
    operators: Sequence[OperatorTime] = (),
) -> Profile:
    """Return the profile of a device's measurements.

    Some measurements are kept out of the fit of rates and smoothness; `residuals` are the errors on
    these measurements. `device` names the file whose rates are refined. `table` names the CSV of
    the measurements; a second CSV beside it holds the host's times of `operators`.
    """
    folder = "topologies/devices"
    document = catalog.document(folder, catalog.find(folder, device))
    environment = environment or Environment()
    origin = Origin(
        device=device, measurements=table, provenance=provenance,
        operators=f"{table.removesuffix('.csv')}-host.csv" if operators else "",
        host=environment.host, copies=environment.copies, overlaps=environment.overlaps,
        rates=fitted_rates(document, [m for m in measurements if not m.kept_out]),
    )  # fmt: skip
    profile = Profile(origin=origin, measurements=tuple(measurements), operators=tuple(operators))
    modelled = model_of(document, profile)
    smooth: dict[str, Smoothness] = {
        kind: smoothness
        for kind in CLASSES[:2]
        if (smoothness := _smoothness(profile, kind, modelled))
    }
    profile = replace(profile, origin=replace(origin, smoothness=smooth))
    errors = tuple(residuals(profile, modelled))
    return replace(profile, origin=replace(profile.origin, residuals=errors))


def _smoothness(
    profile: Profile, kind: KernelClass, modelled: Callable[[Kernel], float]
) -> Smoothness | None:
    group = profile.fitted(kind)
    if not group:
        return None
    points = np.array([features(measurement.kernel) for measurement in group])
    return likeliest(points, ratios(group, modelled))


def residuals(profile: Profile, modelled: Callable[[Kernel], float]) -> list[KernelResidual]:
    """Return the errors of the profile on kernels that were kept out of the fit, by class."""
    predict = Calibrated(profile, modelled)
    by_class: dict[str, list[tuple[float, float]]] = {kind: [] for kind in CLASSES}
    for measurement in profile.measurements:
        if measurement.kept_out and (predicted := predict(measurement.kernel)):
            pairs = by_class[class_of(measurement.kernel)]
            pairs.append((predicted.seconds, measurement.seconds))
    return [residual(kind, pairs) for kind, pairs in by_class.items() if pairs]


def residual(kind: str, pairs: Sequence[tuple[float, float]]) -> KernelResidual:
    """Return the errors of (predicted, measured) times.

    >>> errors = residual("gemm", [(1.1, 1.0), (0.9, 1.0), (1.0, 1.0)])
    >>> round(errors.median, 3), round(errors.p95, 3), round(errors.bias, 3)
    (0.1, 0.1, 0.0)
    """
    errors = [predicted / measured - 1.0 for predicted, measured in pairs]
    sizes = sorted(map(abs, errors))
    logs = [log(measured / predicted) for predicted, measured in pairs]
    return KernelResidual(
        kind=kind,
        shapes=len(pairs),
        median=round(median(sizes), 4),
        p95=round(sizes[int(0.95 * (len(sizes) - 1) + 0.5)], 4),
        bias=round(mean(errors), 4),
        sigma=round(pstdev(logs), 4),
    )


def host_table(times: Iterable[HostTime]) -> tuple[OperatorTime, ...]:
    """Return the host's seconds of every operator that the calls dispatch, by phase.

    The seconds of a call are the sum over its operators. Calls are read in order. From a call's
    seconds, the seconds of operators in earlier calls are subtracted; the call's new operators
    share the rest evenly. So a script that makes the same calls is predicted to take their measured
    time. If the rest is negative, the new operators stay unknown. Operators on lists cost further
    seconds for each tensor of a list.
    """
    known: dict[tuple[str, str], OperatorTime] = {}
    for time in times:
        shown = {name: known.get((name, time.phase)) for name in time.operators}
        new = {name: time.operators[name] for name, row in shown.items() if row is None}
        before = [(row, time.operators[name]) for name, row in shown.items() if row is not None]
        left = time.seconds - sum(row.seconds * count for row, count in before)
        each = time.each - sum(row.each * count for row, count in before)
        if not new or left < 0.0:
            continue
        lists = sum(count for name, count in new.items() if _on_lists(name))
        for name in new:
            known[name, time.phase] = OperatorTime(
                operator=name,
                phase=time.phase,
                seconds=left / sum(new.values()),
                each=max(each, 0.0) / lists if _on_lists(name) else 0.0,
                spread=time.spread,
                calls=time.calls,
            )
    return tuple(known.values())


def traced(calls: Iterable[HostCall]) -> tuple[OperatorTime, ...]:
    """Return the median of every operator and phase in traces of PyTorch's profiler. The profiler's
    own time for each operator is included."""
    seconds = grouped(((call.operator, call.phase), call.seconds) for call in calls)
    return tuple(
        OperatorTime(operator=name, phase=phase, seconds=middle, spread=spread, calls=len(samples))
        for (name, phase), samples in seconds.items()
        for middle, spread in [summary(samples)]
    )


def _on_lists(name: str) -> bool:
    return name.startswith(("_foreach", "_fused", "_amp_foreach"))
