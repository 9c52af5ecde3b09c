"""How fast does a model answer: how many tokens a second, how long does each answer take?

A pass forward is that of training: the same blocks, kernels and collectives (`passes`), with
kernels that read a cache in place of attention over a whole sequence. `speed` adds up their
seconds, `server` plays requests on the engine's clock. Nothing in ring 1 needs this folder:
without it, scenarios with a `[generation]` table are unknown.
"""

KEYS = ("generation",)


def claims(name: str) -> bool:
    """No file by its name."""
    return False
