"""Prompts that several sequences share: their blocks are held, and computed, once."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from sim.jobs.generation.cache import Cache


@dataclass(slots=True, eq=False)
class _Prefix:
    """The whole blocks of a prompt, with `tokens` tokens in all, that `users` sequences share."""

    tokens: int
    users: int = 0


@dataclass(slots=True, eq=False)
class Prefixes:
    """The shared prompts in a cache. Only layers without a window share blocks: layers with a
    window keep no blocks for the beginning of a long sequence. Models with states share nothing, as
    a state belongs to a whole sequence (vLLM leaves prefix caching off for these models)."""

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
