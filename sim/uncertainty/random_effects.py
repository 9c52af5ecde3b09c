"""Shared errors of similar jobs: nested random effects.

The error of campaign i is a mean plus the effects of its groups, from wide to narrow, plus its own
effect. Each effect is drawn from the law of its level:

    error_i = mean + sum over levels of effect(group of i at that level) + own_i + noise_i

Groups are nested, so they are a tree whose leaves are the campaigns. A node gets information from
its children and from the rest of the tree, in two sweeps over the tree (Pearl 1988, belief
propagation; exact here, with a flat prior for the mean as in generalised least squares). The
variances of the levels are estimated by restricted maximum likelihood (the MM iteration of Zhou,
Hu, Qiao, Lange and Zhou 2019, "MM algorithms for variance components models", J. Computational and
Graphical Statistics 28). Own effects follow Student's t (`sim.uncertainty.student`), so an unusual
campaign does not move other campaigns. The expected error of a new job is the best linear unbiased
prediction (Henderson 1975, Biometrics 31). It is a group's mean error, shrunk if few campaigns and
runs show it. Levels without measurements add their variance.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.uncertainty import student

Array = NDArray[np.float64]
Places = NDArray[np.intp]
_ITERATIONS = 40  # of the estimate of variances
_START = 0.05**2  # variance of every level before there is anything to estimate it from: assumed
_DIGITS = 9  # decimals of expected errors and variances
_LEAST = 1e-10  # smallest variance of a level
_MEAN = 0.1**2  # variance of the mean error if there are no campaigns: assumed


@dataclass(frozen=True, slots=True)
class Tree:
    """Groups by level, wide to narrow, with campaigns last. `place` numbers the groups of a level;
    `parent` has the number of each group's parent one level up (0, the whole, above the widest)."""

    place: tuple[dict[Hashable, int], ...]
    parent: tuple[Places, ...]

    @classmethod
    def of(cls, groups: Sequence[Sequence[Hashable]]) -> "Tree":
        """The tree of the `groups` of each campaign, which are listed from wide to narrow."""
        levels = tuple(zip(*groups, strict=True))
        place = tuple({key: n for n, key in enumerate(dict.fromkeys(level))} for level in levels)
        parents = []
        for level, known in enumerate(place):
            parent = np.zeros(len(known), dtype=np.intp)
            for row in groups if level else ():
                parent[known[row[level]]] = place[level - 1][row[level - 1]]
            parents.append(parent)
        return cls(place, tuple(parents))


@dataclass(frozen=True, slots=True)
class RandomEffects:
    """The estimates: `variances` of the levels (the last for campaigns' own effects), and the
    `weights` of own effects. `error` and `precision` describe each group's error, by level; `mean`
    and `mean_precision` describe the error of the whole."""

    tree: Tree
    variances: Array
    weights: Array
    mean: float
    mean_precision: float
    precision: tuple[Array, ...]
    error: tuple[Array, ...]

    def expected(self, groups: Sequence[Hashable]) -> tuple[float, float]:
        """Mean and variance of the error of a job in these groups, without the noise of runs."""
        if not self.tree.place:
            return 0.0, _MEAN + _START * len(groups)
        error, variance, known = self.mean, 1.0 / self.mean_precision, 0
        for level, (group, place) in enumerate(zip(groups, self.tree.place, strict=True)):
            if group in place:
                error = float(self.error[level][place[group]])
                variance, known = 1.0 / float(self.precision[level][place[group]]), level + 1
        variance += float(self.variances[known:].sum())
        return round(error, _DIGITS), round(variance, _DIGITS)


def fit(
    errors: Sequence[float], noise: Sequence[float], groups: Sequence[Sequence[Hashable]]
) -> RandomEffects:
    """Return the effects behind the mean `errors` of campaigns, which have the variances `noise`.
    The `groups` of each campaign, from wide to narrow, end with the campaign itself."""
    if not errors:
        nothing = np.zeros(0)
        return RandomEffects(Tree((), ()), nothing, nothing, 0.0, 0.0, (), ())
    known = _Passes(errors, noise, Tree.of(groups))
    weights, variances = np.ones(len(errors)), np.full(len(groups[0]), _START)
    for _ in range(_ITERATIONS):
        effects = known.effects(variances, weights)
        variances = np.maximum(variances * known.factors(weights), _LEAST)
        deviations = variances[-1] * known.pull[-1] / weights
        weights = student.weights(deviations**2 / variances[-1])
    return effects


class _Passes:
    """Information that is passed up and down the tree. V is the covariance, Z the group's
    campaigns, and P is V^-1 with the mean projected out. The `pull` of a group is Z' P errors: its
    predicted effect over its variance. `held` is Z' P Z, the strength of the pull."""

    def __init__(self, errors: Sequence[float], noise: Sequence[float], tree: Tree) -> None:
        self.tree = tree
        self._errors, self._noise = np.asarray(errors, dtype=float), np.asarray(noise, dtype=float)
        self.pull: list[Array] = []
        self.held: list[Array] = []

    def effects(self, variances: Array, weights: Array) -> RandomEffects:
        """Return the effects for given variances and weights."""
        added = [np.full(len(p), v) for p, v in zip(self.tree.parent, variances, strict=True)]
        added[-1] = variances[-1] / weights
        levels = range(len(added))
        # Up: variance and mean of each group's error, from the groups below it.
        below: list[tuple[Array, Array]] = [(self._noise, self._errors)]
        for level in reversed(levels):
            variance, mean = below[0]
            precision = 1.0 / (variance + added[level])
            parent = self.tree.parent[level]
            total = np.bincount(parent, precision)
            below.insert(0, (1.0 / total, np.bincount(parent, precision * mean) / total))
        # Down: precision of the parent's error, and precision x mean, from all but the group.
        above, weighted = np.zeros(1), np.zeros(1)
        self.pull, self.held, precisions, errors = [], [], [], []
        for level in levels:
            (whole, all_mean), (variance, mean) = below[level], below[level + 1]
            parent, message = self.tree.parent[level], 1.0 / (variance + added[level])
            rest = np.maximum(above + 1.0 / whole, 0.0)[parent] - message
            moved = (weighted + all_mean / whole)[parent] - message * mean
            alone = rest <= 1e-12 * message  # only this group has information on the parent
            rest, moved = np.where(alone, 0.0, rest), np.where(alone, 0.0, moved)
            outside = np.divide(1.0, rest, out=np.full(len(rest), np.inf), where=~alone)
            centre = np.where(alone, mean, moved * np.where(alone, 0.0, outside))
            self.held.append(1.0 / (variance + added[level] + outside))
            self.pull.append(self.held[-1] * (mean - centre))
            above = 1.0 / (outside + added[level])
            weighted = above * centre
            precisions.append(above + 1.0 / variance)
            errors.append((weighted + mean / variance) / precisions[-1])
        (variance, mean), *_ = below
        return RandomEffects(
            self.tree, variances, weights, float(mean[0]), 1.0 / float(variance[0]),
            tuple(precisions), tuple(errors),
        )  # fmt: skip

    def factors(self, weights: Array) -> Array:
        """The factor by which each level's variance changes: 1 if it agrees with the errors."""
        scales = [*(np.ones(len(held)) for held in self.held[:-1]), weights]
        each = zip(self.pull, self.held, scales, strict=True)
        return np.array(
            [_larger(float((p**2 / w).sum()), float((h / w).sum())) for p, h, w in each]
        )


def _larger(seen: float, said: float) -> float:
    return float(np.sqrt(seen / said)) if said > _LEAST else 1.0
