"""Routed items: how many ranks and nodes a token reaches if it is sent to several experts."""

from math import comb, gcd

from sim.config.dataclass import dataclass

# SMs of DeepEP's kernels (deepseek-ai/DeepEP, deep_ep/buffer.py, `num_sms`; Megatron-LM,
# `moe_deepep_num_sms`).
DEEPEP_SMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """A routing that sends each item to `choices` of `among` targets. All targets are equally
    likely and spread evenly over ranks.

    With `groups` of targets, `limit` of the groups are chosen first, and then targets in the chosen
    groups (DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.2, node-limited routing). With
    `in_turn`, items take the targets one after the other: with k choices, item t takes targets t k
    to t k + k - 1.

    Each copy of an item has `item` bytes; with `summed`, copies are added up on their way back. The
    kernels that pass copies on run on `sms` SMs; 0 means that SMs are no limit.
    """

    choices: int
    among: int
    groups: int = 1
    limit: int = 1
    in_turn: bool = False
    item: float = 0.0
    summed: bool = False
    sms: int = 0

    def reached(self, parts: int) -> float:
        """Return the expected number of parts that an item reaches if the targets are divided into
        `parts` of equal size.

        A part of g of the c targets is missed with probability C(c - g, k) / C(c, k), with k
        choices. With `in_turn`, an item reaches 1 + (k - d) / g parts of g targets, d = gcd(k, g):
        its first target lies equally often at every multiple of d within a part.

        >>> eight = Routed(choices=8, among=256)
        >>> eight.reached(256), round(eight.reached(8), 2)
        (8.0, 5.29)
        >>> round(Routed(choices=8, among=256, groups=8, limit=4).reached(8), 2)
        3.63
        >>> [Routed(choices=8, among=256, in_turn=True).reached(parts) for parts in (8, 64)]
        [1.0, 2.0]
        """
        size, group = self.among / parts, self.among / self.groups
        if self.in_turn:
            reached = 1.0 + (self.choices - gcd(self.choices, round(size))) / size
            return min(reached, float(parts))
        allowed = self.limit * group
        if size <= group:
            chosen = self.limit / self.groups
            return parts * chosen * (1.0 - _missed(allowed, size, self.choices))
        inside = round(size / group)
        reached = sum(
            _hypergeometric(self.groups, inside, self.limit, hit)
            * (1.0 - _missed(allowed, hit * group, self.choices))
            for hit in range(1, min(inside, self.limit) + 1)
        )
        return parts * reached


def _missed(among: float, size: float, choices: int) -> float:
    """The probability that `choices` distinct targets of `among` miss a part of this size."""
    missed = 1.0
    for taken in range(choices):
        missed *= max(among - size - taken, 0.0) / (among - taken)
    return missed


def _hypergeometric(total: int, inside: int, drawn: int, hit: int) -> float:
    """The probability that `hit` of `drawn` groups lie among `inside` marked groups of `total`."""
    return comb(inside, hit) * comb(total - inside, drawn - hit) / comb(total, drawn)
