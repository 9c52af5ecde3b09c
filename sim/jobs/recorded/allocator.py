"""How does torch's caching allocator serve the requests of a script?

Source: c10/cuda/CUDACachingAllocator.cpp (malloc, get_free_block, alloc_block, should_split,
find_expandable_block, map_block, free_block, release_cached_blocks). Requests are rounded up to
multiples of 512 bytes. Small requests, of 1 MiB at most, come from segments of 2 MiB. Requests
below 10 MiB come from segments of 20 MiB. Each larger request has its own segment, rounded up to a
multiple of 2 MiB. The unused rest of a block is split off if it has 512 bytes (small) or more than
1 MiB (large). Free neighbours are joined again. Every stream has its own pools. With expandable
segments, a pool is a range of addresses; pages of 2 or 20 MiB are mapped when they are needed.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from math import inf
from typing import NamedTuple

from sim.jobs.recorded.allocator_settings import MIB, AllocatorSettings

_ROUND, _SMALL, _LARGE, _LARGE_ROUND = 512, MIB, 10 * MIB, 2 * MIB
_SMALL_SEGMENT = 2 * MIB
_PAGES = 1 << 30  # pages of each expandable segment: more than any device has


class Pool(NamedTuple):
    """Segments of a stream, for small requests or for large requests."""

    small: bool
    stream: int


class Block:
    """A part of a segment, linked with its neighbours in the segment. A block that is not `mapped`
    is only a range of addresses."""

    __slots__ = ("address", "before", "behind", "expandable", "free", "mapped", "pool", "size")

    def __init__(
        self, size: int, address: int, pool: Pool, *, expandable: bool, mapped: bool
    ) -> None:
        self.size, self.address, self.pool = size, address, pool
        self.expandable, self.mapped, self.free = expandable, mapped, False
        self.before: Block | None = None
        self.behind: Block | None = None


class OutOfMemoryError(Exception):
    """No block serves a request, and the device has too few bytes left."""


class CachingAllocator:
    """Allocates and frees blocks. The caller gives each block a number.

    `allocated` and `reserved` are the present bytes. Reserved bytes stay within the `capacity`.
    `retries` counts how often all cached blocks were returned to the device to stay within it.
    """

    def __init__(self, settings: AllocatorSettings | None = None, capacity: float = inf) -> None:
        self.settings, self.capacity = settings or AllocatorSettings(), capacity
        self.allocated = self.reserved = self.retries = 0
        self._cached: defaultdict[Pool, list[tuple[int, int]]] = defaultdict(list)  # size, address
        self._unmapped: defaultdict[Pool, list[int]] = defaultdict(list)
        self._free: dict[int, Block] = {}  # by address, cached or not mapped
        self._live: dict[int, Block] = {}  # by number
        self._in_use: dict[int, Block] = {}  # by number: freed by the script, in use on the device
        self._addresses = 0

    def take(self, number: int, bytes: int, stream: int = 0) -> None:
        """Allocate a block of `bytes` for a stream. Raises `OutOfMemoryError`."""
        size = self._rounded(bytes)
        pool = Pool(size <= _SMALL, stream)
        block = self._found(size, pool) or self._made(size, pool)
        if self._splits(block, size):
            self._keep(self._cut(block, size))
        self._live[number] = block
        self.allocated += block.size

    def give(self, number: int, *, in_use: bool = False) -> None:
        """Free a block; a block that was never allocated is ignored. If the device still uses the
        block (`in_use`), the block becomes free only when `over` is called."""
        block = self._live.pop(number, None)
        if block is not None:
            self.allocated -= block.size
            self._in_use[number] = block
            if not in_use:
                self.over(number)

    def over(self, number: int) -> None:
        """Free a block that the script freed earlier and that the device no longer uses."""
        block = self._in_use.pop(number, None)
        if block is not None:
            self._join(block)

    def empty(self) -> None:
        """Return unsplit cached segments and whole cached pages to the device after it has finished
        its work (`release_cached_blocks`)."""
        for number in list(self._in_use):
            self.over(number)
        for block in [block for block in self._free.values() if block.mapped]:
            if block.expandable:
                self._unmap(block)
            elif not block.before and not block.behind:
                self._release(block)

    def _rounded(self, bytes: int) -> int:
        """The bytes of a request, rounded up (`round_size`, `roundup_power2_next_division`)."""
        steps = self.settings.divisions
        if steps > 1 and bytes > _ROUND * steps:
            step = (1 << (bytes.bit_length() - 1)) // steps
            return -(-bytes // step) * step
        return max(-(-bytes // _ROUND), 1) * _ROUND

    def _splits(self, block: Block, size: int) -> bool:
        if block.pool.small or self.settings.expandable:
            return block.size - size >= _ROUND
        return size < self.settings.max_split_size and block.size - size > _SMALL

    def _found(self, size: int, pool: Pool) -> Block | None:
        """`get_free_block`: the smallest cached block that is large enough, at the lowest address.
        A block of an expandable segment is skipped if the next larger block can grow less."""
        row, most = self._cached[pool], self.settings.max_split_size
        at = bisect_left(row, (size, -1))
        if at == len(row):
            return None
        block = self._free[row[at][1]]
        while self.settings.expandable and at + 1 < len(row):
            other = self._free[row[at + 1][1]]
            if _grown(other) >= _grown(block):
                break
            at, block = at + 1, other
        whole = size >= most and block.size >= size + self.settings.max_non_split_rounding
        return None if whole or size < most <= block.size else self._drop(block)

    def _made(self, size: int, pool: Pool) -> Block:
        """`alloc_block`: a new block; if the device is full, cached blocks are returned first."""
        make = self._expanded if self.settings.expandable else self._segment
        block = make(size, pool)
        if block is None and self._release_largest(size, pool):
            block = make(size, pool)
        if block is None:
            self.retries += 1
            self.empty()
            block = make(size, pool)
        if block is None:
            raise OutOfMemoryError
        return block

    def _segment(self, size: int, pool: Pool) -> Block | None:
        """A new segment (`get_allocation_size`); None if the device is full."""
        large = int(self.settings.large_segment) if size < _LARGE else _up(size, _LARGE_ROUND)
        whole = _SMALL_SEGMENT if pool.small else large
        if self.reserved + whole > self.capacity:
            return None
        self.reserved += whole
        return Block(whole, self._space(whole, 1), pool, expandable=False, mapped=True)

    def _space(self, size: int, align: int) -> int:
        """The first address of a new segment, which does not border on another segment."""
        start = _up(self._addresses + 1, align)
        self._addresses = start + size
        return start

    def _release(self, block: Block) -> None:
        self.reserved -= self._drop(block).size

    def _release_largest(self, size: int, pool: Pool) -> bool:
        """`release_available_cached_blocks`: release the smallest block that is large enough,
        otherwise the largest blocks until enough bytes are free. Only blocks too large to be split
        are released. Returns whether enough bytes were released."""
        row, most = self._cached[pool], self.settings.max_split_size
        if most == inf or self.settings.expandable:
            return False
        size, freed = max(size, int(most)), 0
        at = bisect_left(row, (size, -1))
        found = [row[at]] if at < len(row) else [entry for entry in row[::-1] if entry[0] >= most]
        for whole, address in found:
            if freed < size:
                self._release(self._free[address])
                freed += whole
        return freed >= size

    def _page(self, pool: Pool) -> int:
        return _SMALL_SEGMENT if pool.small else int(self.settings.large_segment)

    def _expanded(self, size: int, pool: Pool) -> Block | None:
        """`try_allocate_expandable_block`: find free addresses and map pages to them."""
        block = self._room(size, pool)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            behind = block.behind
            if behind is None or not self._map(behind, min(size - block.size, behind.size)):
                return None
            block = behind
        return self._drop(block)

    def _room(self, size: int, pool: Pool) -> Block:
        """`find_expandable_block`: the first range of free addresses that is large enough and not
        wholly mapped, otherwise a new segment."""
        for address in self._unmapped[pool]:
            block = self._free[address]
            if block.before and block.before.free:
                block = block.before
            room, candidate = 0, block
            while candidate and candidate.free and room < size:
                room, candidate = room + candidate.size, candidate.behind  # type: ignore[assignment]
            if room >= size:
                return block
        page = self._page(pool)
        start = self._space(page * _PAGES, page)
        block = Block(page * _PAGES, start, pool, expandable=True, mapped=False)
        self._keep(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        """`map_block`: map the first pages of a block; False if the device has no bytes left."""
        size = _up(size, self._page(block.pool))
        if self.reserved + size > self.capacity:
            return False
        self._drop(block)
        if size < block.size:
            self._keep(self._cut(block, size))
        block.mapped = True
        self.reserved += size
        self._join(block)
        return True

    def _unmap(self, block: Block) -> None:
        """`unmap_block`: unmap the pages that lie wholly within a cached block."""
        page = self._page(block.pool)
        start, end = _up(block.address, page), (block.address + block.size) // page * page
        if start >= end:
            return
        self._drop(block)
        if start > block.address:
            front, block = block, self._cut(block, start - block.address)
            self._keep(front)
        if block.address + block.size > end:
            self._keep(self._cut(block, end - block.address))
        block.mapped = False
        self.reserved -= block.size
        self._join(block)

    def _cut(self, block: Block, size: int) -> Block:
        """Shorten a block; the rest becomes the block after it."""
        rest = Block(
            block.size - size, block.address + size, block.pool,
            expandable=block.expandable, mapped=block.mapped,
        )  # fmt: skip
        rest.before, rest.behind, block.size = block, block.behind, size
        if rest.behind:
            rest.behind.before = rest
        block.behind = rest
        return rest

    def _join(self, block: Block) -> None:
        """`free_block`: free a block and join it with its free neighbours, mapped with mapped and
        unmapped with unmapped."""
        if (other := block.before) and other.free and other.mapped == block.mapped:
            self._drop(other)
            block.address, block.size = other.address, block.size + other.size
            block.before = other.before
            if block.before:
                block.before.behind = block
        if (other := block.behind) and other.free and other.mapped == block.mapped:
            self._drop(other)
            block.size, block.behind = block.size + other.size, other.behind
            if block.behind:
                block.behind.before = block
        self._keep(block)

    def _keep(self, block: Block) -> None:
        block.free = True
        self._free[block.address] = block
        if block.mapped:
            insort(self._cached[block.pool], (block.size, block.address))
        else:
            insort(self._unmapped[block.pool], block.address)

    def _drop(self, block: Block) -> Block:
        block.free = False
        del self._free[block.address]
        row: list[int] | list[tuple[int, int]] = self._unmapped[block.pool]
        key: int | tuple[int, int] = block.address
        if block.mapped:
            row, key = self._cached[block.pool], (block.size, block.address)
        row.pop(bisect_left(row, key))
        return block


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _grown(block: Block) -> int:
    """The size to which a block could grow by mapping the addresses after it."""
    behind = block.behind
    return block.size + (behind.size if behind and not behind.mapped else 0)
