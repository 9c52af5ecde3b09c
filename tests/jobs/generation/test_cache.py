"""The blocks of a cache, counted by residues, are those of sequences counted one by one."""

import random

import pytest

from sim.jobs.generation.cache import Cache, Pages
from sim.jobs.generation.leap import Pace


def counted(cache: Cache, sequences: list[int]) -> tuple[float, list[int], list[int]]:
    """Bytes, tokens read in the next step and growing sequences, one by one."""
    size = sum(cache.size(tokens) for tokens in sequences)
    windows = [pages.window or 1 << 40 for pages in cache.pages]
    read = [sum(min(tokens + 1, w) for tokens in sequences) for w in windows]
    return size, read, [sum(tokens < w for tokens in sequences) for w in windows]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("windows", [(0,), (0, 40), (24,), (0, 7, 33)])
def test_a_cache_counts_as_its_sequences_do(seed: int, windows: tuple[int, ...]) -> None:
    rng = random.Random(seed)
    block = rng.choice([1, 4, 16])
    pages = tuple(Pages(window, 3.0 + n, block) for n, window in enumerate(windows))
    cache, sequences = Cache(1e5, pages), list[int]()
    for _ in range(60):
        if not sequences or rng.random() < 0.4:
            tokens = rng.randint(1, 90)
            sequences.append(tokens)
            cache.take(cache.size(tokens))
            cache.add(tokens)
        elif rng.random() < 0.3:
            tokens = sequences.pop(rng.randrange(len(sequences)))
            cache.remove(tokens)
            cache.used -= cache.size(tokens)
        else:
            steps = min(rng.randint(1, 50), cache.steady())
            before = cache.used
            growth = cache.growth(steps)
            cache.advance(steps)
            sequences = [tokens + steps for tokens in sequences]
            assert cache.used == pytest.approx(before + growth)
        size, read, growing = counted(cache, sequences)
        assert cache.used == pytest.approx(size)
        assert (cache.read, cache.growing) == (read, growing)


@pytest.mark.parametrize("seed", range(20))
def test_a_cache_lasts_until_a_step_finds_no_block(seed: int) -> None:
    rng = random.Random(seed)
    block = rng.choice([1, 4, 16])
    cache = Cache(rng.uniform(50.0, 400.0), (Pages(0, 1.0, block),))
    while cache.has_room(cache.size(30)):
        tokens = rng.randint(1, 30)
        cache.take(cache.size(tokens))
        cache.add(tokens)
    lasts = cache.lasts()
    assert cache.used + cache.growth(lasts) <= cache.room < cache.used + cache.growth(lasts + 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_leap_is_the_sum_of_its_steps(seed: int) -> None:
    rng = random.Random(seed)
    pace = Pace(rng.uniform(0, 2), rng.choice([0.0, rng.random()]), rng.uniform(0, 4), rng.random())
    ends, now = [0.0], 0.0
    for step in range(30):
        now += max(pace.first + pace.more * step, pace.floor) + pace.extra
        ends.append(now)
        assert pace.seconds(step + 1) == pytest.approx(now, rel=1e-12)
    for step, end in enumerate(ends[:-1]):
        middle = (end + ends[step + 1]) / 2
        assert pace.steps(middle) == step
