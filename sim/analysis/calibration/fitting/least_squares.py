"""Robust least squares over the logarithms of constants."""

from collections.abc import Callable, Sequence

from sim.config.errors import InputError

FREE = 60.0  # a logarithm that no constant reaches


def minimised(
    errors: Callable[[Sequence[float]], list[float]],
    start: Sequence[float],
    ceilings: Sequence[float],
    *,
    pull: float,
    scale: float,
    evaluations: int | None = None,
) -> Sequence[float]:
    """The logarithms that minimise the soft-L1, of scale `scale`, of `errors`.

    `pull` is the error that a factor of e away from `start` costs: what the measurements do not
    show stays as it was. Raises `InputError` if scipy is missing.
    """
    try:
        from scipy.optimize import least_squares  # type: ignore[import-untyped]  # ships no types
    except ImportError:
        fault, remedy = "needs scipy, which is not installed", "pip install 'clustersim[calibrate]'"
        raise InputError("fitting", fault, remedy) from None

    def residuals(logs: Sequence[float]) -> list[float]:
        return errors(logs) + [pull * (x - x0) for x, x0 in zip(logs, start, strict=True)]

    solution: Sequence[float] = least_squares(
        residuals,
        [min(x, ceiling) for x, ceiling in zip(start, ceilings, strict=True)],
        bounds=([-FREE] * len(start), ceilings),
        loss="soft_l1",
        f_scale=scale,
        diff_step=1e-3,
        max_nfev=evaluations,
    ).x
    return solution
