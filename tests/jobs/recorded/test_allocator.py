"""The caching allocator, on cases whose result follows from c10/cuda/CUDACachingAllocator.cpp."""

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sim.config.errors import InputError
from sim.jobs.recorded.allocator import CachingAllocator, OutOfMemoryError
from sim.jobs.recorded.allocator_settings import AllocatorSettings, parsed

KIB, MIB = 1 << 10, 1 << 20
GROWING = AllocatorSettings(expandable=True)
WHOLE = AllocatorSettings(max_split_size=128 * MIB)


def played(
    *rows: tuple[int, int], settings: AllocatorSettings | None = None, capacity: float = inf
) -> CachingAllocator:
    """Blocks by number with bytes, 0 to give back."""
    allocator = CachingAllocator(settings, capacity)
    for block, size in rows:
        if size:
            allocator.take(block, size)
        else:
            allocator.give(block)
    return allocator


@pytest.mark.parametrize(
    ("size", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (9 * MIB, 9 * MIB, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB + 1, 12 * MIB, 12 * MIB),  # what is left is too little to split off
    ],
)
def test_a_request_is_rounded_and_comes_from_a_segment_of_its_class(
    size: int, allocated: int, reserved: int
) -> None:
    one = played((1, size))
    assert (one.allocated, one.reserved) == (allocated, reserved)


def test_what_is_split_off_serves_the_next_request() -> None:
    assert played((1, 9 * MIB), (2, 9 * MIB)).reserved == 20 * MIB
    assert played((1, 9 * MIB), (2, 9 * MIB), (3, 9 * MIB)).reserved == 40 * MIB


def test_free_neighbours_are_joined() -> None:
    rows = ((1, 5 * MIB), (2, 5 * MIB), (3, 5 * MIB), (1, 0), (3, 0), (2, 0), (4, 20 * MIB))
    assert played(*rows).reserved == 20 * MIB


def test_the_smallest_block_that_is_large_enough_is_taken() -> None:
    rows = ((1, 40 * MIB), (2, 30 * MIB), (1, 0), (2, 0), (3, 30 * MIB), (4, 40 * MIB))
    assert played(*rows).reserved == 70 * MIB


@pytest.mark.parametrize("settings", [None, GROWING])
def test_a_stream_does_not_take_what_another_gave_back(settings: AllocatorSettings | None) -> None:
    allocator = played((1, 40 * MIB), (1, 0), settings=settings)
    allocator.take(2, 40 * MIB, 1)
    assert allocator.reserved == 80 * MIB
    allocator.take(3, 40 * MIB, 0)
    assert allocator.reserved == 80 * MIB


@pytest.mark.parametrize(
    ("rows", "usual", "growing"),
    [
        (((1, 1),), 2, 2),
        (((1, 2 * MIB),), 20, 20),
        (((1, 30 * MIB),), 30, 40),  # two pages of 20 MiB
        # 18 MiB behind the first are free, so that one page more is enough
        (((1, 2 * MIB), (2, 30 * MIB)), 50, 40),
        # what grows does not leave holes that are too small
        (((1, 40 * MIB), (1, 0), (2, 50 * MIB), (2, 0), (3, 60 * MIB)), 150, 60),
        # but what stands between two holes keeps them apart
        (((1, 40 * MIB), (2, 20 * MIB), (1, 0), (3, 50 * MIB)), 110, 120),
    ],
)
def test_expandable_segments_map_pages_as_they_need_them(
    rows: tuple[tuple[int, int], ...], usual: int, growing: int
) -> None:
    assert played(*rows).reserved == usual * MIB
    assert played(*rows, settings=GROWING).reserved == growing * MIB


@pytest.mark.parametrize(
    ("wanted", "allocated", "reserved"),
    [
        (100, 100, 300),  # a block of 128 MiB or more is not split, so a small request leaves it
        (170, 170, 370),  # nor is it taken where more than 20 MiB of it were lost
        (185, 200, 200),
    ],
)
def test_blocks_above_max_split_size_stay_whole(wanted: int, allocated: int, reserved: int) -> None:
    rows = ((1, 200 * MIB), (1, 0), (2, wanted * MIB))
    kept, usual = played(*rows, settings=WHOLE), played(*rows)
    assert (kept.allocated, kept.reserved) == (allocated * MIB, reserved * MIB)
    assert (usual.allocated, usual.reserved) == (wanted * MIB, 200 * MIB)


def test_divisions_round_between_powers_of_two() -> None:
    quarters = AllocatorSettings(divisions=4)
    for size, rounded in ((5 * MIB, 5), (5 * MIB + 1, 6), (8 * MIB, 8), (9 * MIB, 10)):
        assert played((1, size), settings=quarters).allocated == rounded * MIB
    assert played((1, 1500), settings=quarters).allocated == 1536  # below 512 bytes a division


@pytest.mark.parametrize("settings", [None, GROWING])
def test_a_full_device_gets_back_what_is_cached(settings: AllocatorSettings | None) -> None:
    allocator = played((1, 40 * MIB), (1, 0), settings=settings, capacity=60 * MIB)
    allocator.take(2, 60 * MIB, 1)
    assert (allocator.reserved, allocator.retries) == (60 * MIB, 1)
    with pytest.raises(OutOfMemoryError):
        allocator.take(3, 1, 0)


def test_with_max_split_size_only_as_much_as_is_needed_is_given_back() -> None:
    rows = ((1, 200 * MIB), (2, 150 * MIB), (3, 50 * MIB), (1, 0), (2, 0), (3, 0), (4, 220 * MIB))
    allocator = played(*rows, settings=WHOLE, capacity=400 * MIB)
    assert (allocator.reserved, allocator.retries) == (270 * MIB, 0)
    assert played(*rows, capacity=400 * MIB).retries == 1


def test_a_split_segment_is_not_given_back_but_its_free_pages_are() -> None:
    rows = ((1, 60 * MIB), (2, 2 * MIB), (1, 0))
    usual, growing = played(*rows), played(*rows, settings=GROWING)
    assert (usual.reserved, growing.reserved) == (80 * MIB, 80 * MIB)
    for one in (usual, growing):
        one.empty()
    assert (usual.reserved, growing.reserved) == (20 * MIB, 20 * MIB)
    growing.take(3, 60 * MIB)
    assert growing.reserved == 80 * MIB  # where they were


sizes = some.integers(1, 70 * MIB) | some.integers(1, 3 * MIB) | some.integers(1, 4 * KIB)
moves = some.lists(some.tuples(some.integers(1, 12), sizes, some.integers(0, 1)), max_size=60)


@given(moves, some.sampled_from([AllocatorSettings(), GROWING, WHOLE]))
def test_blocks_do_not_overlap_and_all_is_given_back(
    moves: list[tuple[int, int, int]], settings: AllocatorSettings
) -> None:
    allocator, live = CachingAllocator(settings), dict[int, int]()
    for block, size, stream in moves:
        if block in live:
            allocator.give(block)
            del live[block]
        else:
            allocator.take(block, size, stream)
            live[block] = size
        held = sorted((b.address, b.size) for b in allocator._live.values())
        assert all(start + size <= other for (start, size), (other, _) in pairwise(held))
        assert sum(live.values()) <= allocator.allocated <= allocator.reserved
        assert allocator.allocated == sum(size for _, size in held)
        cached = sum(b.size for b in allocator._free.values() if b.mapped)
        assert allocator.allocated + cached == allocator.reserved
    for block in live:
        allocator.give(block)
    assert allocator.allocated == 0
    allocator.empty()
    assert allocator.reserved == 0


def test_settings_are_read_as_torch_reads_them() -> None:
    text = "expandable_segments:True, max_split_size_mb:512,roundup_power2_divisions:8"
    assert parsed(text, "x") == AllocatorSettings(
        expandable=True, max_split_size=512 * MIB, divisions=8
    )
    assert parsed("backend:native,garbage_collection_threshold:0.8", "x") == AllocatorSettings()
    assert parsed("", "x") == AllocatorSettings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("expandable_segment:True", "did you mean 'expandable_segments'"),
        ("expandable_segments:yes", "write True or False"),
        ("expandable_segments", "has no value"),
        ("max_split_size_mb:10", "write 20 or more"),
        ("max_split_size_mb:20,large_segment_size_mb:40", "below a segment"),
        ("roundup_power2_divisions:3", "a power of two"),
        ("roundup_power2_divisions:[256:1,>:4]", "divisions by size"),
        ("backend:cudaMallocAsync", "'cudaMallocAsync' is not simulated"),
    ],
)
def test_other_settings_are_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        parsed(text, "PYTORCH_ALLOC_CONF")
    assert "\n" not in str(error.value)
