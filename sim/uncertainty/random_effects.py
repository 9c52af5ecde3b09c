"""What jobs that are alike share of their errors: nested random effects.

The error of a campaign is mean + the effects of the groups that it is in, from wide to narrow + its
own, each drawn from a law of its group's level:

    error_i = mean + sum over levels of effect(group of i at that level) + own_i + noise_i

with covariance sum of variance_level [same group] between campaigns. The variances of the levels
are estimated by restricted maximum likelihood (the MM iteration of Zhou, Hu, Qiao, Lange and Zhou
2019, "MM algorithms for variance components models", J. Computational and Graphical Statistics 28);
own effects follow Student's t (`sim.uncertainty.student`), so a campaign as no other moves nobody
else. What is expected of a new job is the best linear unbiased prediction (Henderson 1975,
Biometrics 31): a group's mean error shrunk the more the fewer campaigns and runs show it, and as
unsure as its levels are where nothing was measured.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.uncertainty import student

Array = NDArray[np.float64]
_ITERATIONS = 40
_START = 0.05**2  # variance of every level before there is anything to estimate it from: assumed
_DIGITS = 9
_LEAST = 1e-10
_MEAN = 0.1**2  # variance of the mean error of all campaigns, without any: assumed


@dataclass(frozen=True, slots=True)
class RandomEffects:
    """Campaigns' groups [level][campaign] and what was estimated of them.

    `variances` are those of levels, the campaign's own last; `weights` say how much each own effect
    counted, `inverse` is that of the covariance, `pull` the inverse times deviations from `mean`.
    """

    groups: tuple[tuple[Hashable, ...], ...]
    variances: Array
    weights: Array
    mean: float
    inverse: Array
    pull: Array

    def expected(self, groups: Sequence[Hashable]) -> tuple[float, float]:
        """Mean and variance of the error of a job in these groups, the noise of runs aside."""
        if not self.groups:
            return 0.0, _MEAN + _START * len(groups)
        prior = float(self.variances.sum())
        same = [_same((own,), known)[0] for own, known in zip(groups, self.groups, strict=True)]
        same[-1] = same[-1] / self.weights
        shared = np.stack(same, axis=1) @ self.variances
        known = same[-1].sum()
        prior += float(self.variances[-1] * (known - 1.0)) if known else 0.0
        ones = self.inverse.sum(axis=1)
        unsure = (1.0 - shared @ ones) ** 2 / ones.sum()
        variance = prior - shared @ self.inverse @ shared + unsure
        # Sums of matrix products differ in their last digits by how many threads make them.
        return (
            round(float(self.mean + shared @ self.pull), _DIGITS),
            round(float(max(variance, 0.0)), _DIGITS),
        )


def fit(
    errors: Sequence[float], noise: Sequence[float], groups: Sequence[Sequence[Hashable]]
) -> RandomEffects:
    """The effects that campaigns' errors show, whose own means have these variances (`noise`);
    `groups` of each campaign, wide to narrow, end with the campaign itself."""
    if not errors:
        nothing = np.zeros(0)
        return RandomEffects((), nothing, nothing, 0.0, nothing, nothing)
    seen, by_level = np.asarray(errors, dtype=float), tuple(zip(*groups, strict=True))
    levels = [_same(level, level) for level in by_level]
    weights, variances = np.ones(len(seen)), np.full(len(levels), _START)
    for _ in range(_ITERATIONS):
        parts = [*levels[:-1], np.diag(1.0 / weights)]
        known = _given(by_level, parts, variances, weights, seen, noise)
        factors = [_larger(part, known) for part in parts]
        variances = np.maximum(variances * factors, _LEAST)
        own = variances[-1] * known.pull / weights
        weights = student.weights(own**2 / variances[-1])
    return known


def _given(
    groups: tuple[tuple[Hashable, ...], ...], parts: Sequence[Array], variances: Array,
    weights: Array, seen: Array, noise: Sequence[float],
) -> RandomEffects:  # fmt: skip
    """The effects if variances and weights were these: generalised least squares."""
    covariance = sum(v * part for v, part in zip(variances, parts, strict=True))
    inverse = np.linalg.inv(covariance + np.diag(noise))
    ones = inverse.sum(axis=1)
    mean = float(ones @ seen / ones.sum())
    return RandomEffects(groups, variances, weights, mean, inverse, inverse @ (seen - mean))


def _larger(part: Array, known: RandomEffects) -> float:
    """By which factor a level's variance moves: 1 where the errors show as much as it says."""
    ones = known.inverse.sum(axis=1)
    projection = known.inverse - np.outer(ones, ones) / ones.sum()
    seen, said = float(known.pull @ part @ known.pull), float((projection * part).sum())
    # A square, but errors that are all the same leave its rounding alone, of either sign.
    return float(np.sqrt(max(seen, 0.0) / said)) if said > _LEAST else 1.0


def _same(these: Sequence[Hashable], those: Sequence[Hashable]) -> Array:
    """1 where two are the same, 0 where they are not [these, those]."""
    numbers = {one: number for number, one in enumerate(dict.fromkeys((*these, *those)))}
    first, second = (np.array([numbers[one] for one in many]) for many in (these, those))
    same: Array = (first[:, None] == second).astype(float)
    return same
