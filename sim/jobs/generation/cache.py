"""The blocks of a server's cache: how many blocks sequences hold, and when blocks run out.

A sequence of c tokens holds ceil(c / block) blocks for layers without a window. For layers with a
window of w tokens it holds ceil(min(c, w) / block) blocks. All sequences grow by a token a step.
Sequences are counted by the step in which they take their next block (modulo `block`). So the count
for many steps costs no more than the count for a single step.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import heappop, heappush

_LITTLE = 1e-9  # rounding errors in sums of bytes are below this share of a block


@dataclass(slots=True, eq=False)
class Pages:
    """The blocks of all layers with equal windows (0: none), each of `size` bytes. `growing` counts
    the sequences that still take blocks. A sequence takes a block every `block` steps; `residues`
    counts the sequences by the step of their next block, modulo `block`. Attention reads `read`
    tokens in the next step."""

    window: int
    size: float
    block: int
    growing: int = 0
    read: int = 0
    residues: list[int] = field(default_factory=list)
    full: list[tuple[int, int]] = field(default_factory=list)  # step of a full window, residue
    gone: dict[tuple[int, int], int] = field(default_factory=dict)  # how many left, by entry

    def __post_init__(self) -> None:
        self.residues = [0] * self.block

    def seen(self, tokens: int) -> int:
        return min(tokens, self.window) if self.window else tokens

    def blocks(self, tokens: int) -> int:
        """How many blocks a sequence of `tokens` tokens holds."""
        return -(-self.seen(tokens) // self.block)

    def add(self, tokens: int, step: int) -> None:
        """Count a sequence with `tokens` tokens, which decodes from this step on."""
        self.read += self.seen(tokens + 1)
        if self.window and tokens >= self.window:
            return
        residue = (step - tokens) % self.block
        self.growing += 1
        self.residues[residue] += 1
        if self.window:
            heappush(self.full, (step + self.window - tokens, residue))

    def remove(self, tokens: int, step: int) -> None:
        """Remove a sequence that has `tokens` tokens before this step and decodes no more."""
        self.read -= self.seen(tokens + 1)
        if self.window and tokens >= self.window:
            return
        residue = (step - tokens) % self.block
        self.growing -= 1
        self.residues[residue] -= 1
        if self.window:
            key = (step + self.window - tokens, residue)
            self.gone[key] = self.gone.get(key, 0) + 1

    def steady(self, step: int) -> int:
        """How many steps pass until a sequence fills its window; a large number if no sequence
        does."""
        while self.full and self.gone.get(self.full[0], 0):
            key = heappop(self.full)
            self.gone[key] -= 1
            if not self.gone[key]:
                del self.gone[key]
        return self.full[0][0] - step if self.full else 1 << 62

    def advance(self, steps: int, step: int) -> None:
        """Let `steps` steps pass from step `step` on, no more than `steady` returns. In the last
        step sequences may fill their windows."""
        behind = step + steps
        ended = 0
        while self.steady(behind) == 0:
            _, residue = heappop(self.full)
            self.growing -= 1
            self.residues[residue] -= 1
            ended += 1
        self.read += (self.growing + ended) * steps - ended

    def taken(self, steps: int, step: int) -> int:
        """How many blocks all sequences take in `steps` steps from this one on."""
        whole, rest = divmod(steps, self.block)
        place = step % self.block
        taken = sum(self.residues[place : place + rest])
        taken += sum(self.residues[: max(place + rest - self.block, 0)])
        return whole * self.growing + taken


@dataclass(slots=True, eq=False)
class Cache:
    """The cache of a server. Sequences hold `used` of its `room` bytes; `handed` bytes were handed
    out so far in all. A sequence holds `states` bytes beside its blocks. `step` is the number of
    decode steps so far.

    Free blocks keep their tokens until they are handed out, in the order in which they became free.
    So blocks given back now begin to be lost when all bytes that are free now have been handed out
    (`lost_from`, `kept`).
    """

    room: float
    pages: tuple[Pages, ...]
    states: float = 0.0
    used: float = 0.0
    handed: float = 0.0
    step: int = 0

    def take(self, size: float) -> None:
        """Hand out blocks of `size` bytes."""
        self.used += size
        self.handed += size

    @property
    def lost_from(self) -> float:
        """The value of `handed` at which blocks that are given back now begin to be taken."""
        return self.handed + self.room - self.used

    def kept(self, tokens: int, lost_from: float) -> int:
        """How many of the first tokens of a sequence still lie in the blocks that it gave back."""
        size = self.size(tokens)
        share = 1.0 - min(max(self.handed - lost_from, 0.0) / size, 1.0)
        block = self.pages[0].block
        return int(share * tokens) // block * block

    def size(self, tokens: int) -> float:
        """Bytes that a sequence of `tokens` tokens holds."""
        size = self.states
        for pages in self.pages:
            size += pages.size * pages.blocks(tokens)
        return size

    def has_room(self, size: float, promised: float = 0.0) -> bool:
        """Whether `size` bytes are free and not `promised` to other sequences."""
        return max(self.used, promised) + size <= self.room + _LITTLE * self.pages[0].size

    def steady(self) -> int:
        """How many steps pass until a sequence fills a window."""
        return min([pages.steady(self.step) for pages in self.pages])

    def growth(self, steps: int) -> float:
        """Bytes that decoding sequences take in `steps` steps."""
        size = 0.0
        for pages in self.pages:
            size += pages.size * pages.taken(steps, self.step)
        return size

    def lasts(self) -> int:
        """For how many steps the cache has room; a large number if the room never runs out."""
        block, free = self.pages[0].block, self.room - self.used + _LITTLE * self.pages[0].size
        period = 0.0
        for pages in self.pages:
            period += pages.size * pages.growing
        if free < 0.0 or not period:
            return 0 if free < 0.0 else 1 << 62
        periods = int(free / period)
        free -= periods * period
        for steps in range(block):
            place = (self.step + steps) % block
            for pages in self.pages:
                free -= pages.size * pages.residues[place]
            if free < 0.0:
                return periods * block + steps
        return (periods + 1) * block

    def advance(self, steps: int) -> None:
        """Let `steps` decode steps pass."""
        self.take(self.growth(steps))
        for pages in self.pages:
            pages.advance(steps, self.step)
        self.step += steps

    def add(self, tokens: int) -> None:
        """Let a sequence with `tokens` tokens, whose blocks it already holds, begin to decode."""
        for pages in self.pages:
            pages.add(tokens, self.step)

    def remove(self, tokens: int) -> None:
        """Let a sequence with `tokens` tokens stop decoding; its blocks stay held."""
        for pages in self.pages:
            pages.remove(tokens, self.step)

    @property
    def read(self) -> list[int]:
        """Tokens that attention reads in the next step, by window."""
        return [pages.read for pages in self.pages]

    @property
    def growing(self) -> list[int]:
        """By window, the number of sequences whose window is not yet full. For each of these,
        attention reads one more token in each step."""
        return [pages.growing for pages in self.pages]


@dataclass(slots=True, eq=False)
class _Prefix:
    """The whole blocks of a prompt, with `tokens` tokens in all, that `users` sequences share."""

    tokens: int
    users: int = 0


@dataclass(slots=True, eq=False)
class Prefixes:
    """The prompts in a cache that several sequences share: their blocks are held, and computed,
    once. Only layers without a window share blocks: layers with a window keep no blocks for the
    beginning of a long sequence. Models with states share nothing, as a state belongs to a whole
    sequence (vLLM leaves prefix caching off for these models)."""

    cache: Cache
    shares: bool = field(init=False)  # whether prompts can be shared
    _known: dict[Hashable, _Prefix] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shares = not (self.cache.pages[0].window or self.cache.states)

    def tokens(self, key: Hashable) -> int:
        """How many tokens of a prompt are in whole blocks that other sequences already hold."""
        prefix = None if key is None else self._known.get(key)
        return prefix.tokens if prefix and self.shares else 0

    def size(self, key: Hashable) -> float:
        """Bytes of the blocks of a prompt that other sequences already hold."""
        tokens, pages = self.tokens(key), self.cache.pages[0]
        return tokens // pages.block * pages.size if tokens else 0.0

    def join(self, key: Hashable, prompt: int) -> None:
        """Let a sequence that holds all its blocks share the blocks of its prompt with others. The
        last token of a prompt is never shared."""
        if key is None:
            return
        self.cache.used -= self.size(key)
        block = self.cache.pages[0].block
        prefix = self._known.setdefault(key, _Prefix((prompt - 1) // block * block))
        prefix.users += 1

    def leave(self, key: Hashable) -> None:
        """Let a sequence that gives its blocks back leave the blocks of its prompt to others."""
        if key is None:
            return
        prefix = self._known[key]
        prefix.users -= 1
        if prefix.users:
            self.cache.used += self.size(key)
        else:
            del self._known[key]
