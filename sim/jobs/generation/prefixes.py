"""Prompts that several sequences share: their blocks are held, and computed, once."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from sim.jobs.generation.cache import Cache


@dataclass(slots=True, eq=False)
class _Prefix:
    """Blocks of a prompt of so many `tokens`, in all, that `users` share."""

    tokens: int
    users: int = 0


@dataclass(slots=True, eq=False)
class Prefixes:
    """The shared prompts in a cache. Only layers that see everything share blocks: those with a
    window have none for the beginning of a long sequence. Nothing is shared beside states, which
    are those of a whole sequence (vLLM leaves prefix caching off for such models)."""

    cache: Cache
    shares: bool = field(init=False)  # whether there are such layers
    _known: dict[Hashable, _Prefix] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shares = not (self.cache.pages[0].window or self.cache.states)

    def tokens(self, key: Hashable) -> int:
        """Tokens of a prompt that lie in whole blocks which sequences already hold."""
        prefix = None if key is None else self._known.get(key)
        return prefix.tokens if prefix and self.shares else 0

    def size(self, key: Hashable) -> float:
        """Bytes of these blocks."""
        tokens, pages = self.tokens(key), self.cache.pages[0]
        return tokens // pages.block * pages.size if tokens else 0.0

    def join(self, key: Hashable, prompt: int) -> None:
        """A sequence that holds all of its blocks shares those of its prompt with the others; the
        last token of the prompt is always its own."""
        if key is None:
            return
        self.cache.used -= self.size(key)
        block = self.cache.pages[0].block
        prefix = self._known.setdefault(key, _Prefix((prompt - 1) // block * block))
        prefix.users += 1

    def leave(self, key: Hashable) -> None:
        """A sequence that has given all of its blocks back leaves those of its prompt to others."""
        if key is None:
            return
        prefix = self._known[key]
        prefix.users -= 1
        if prefix.users:
            self.cache.used += self.size(key)
        else:
            del self._known[key]
