"""How do workers that do not wait for one another train?

Each way to share updates is a process on `engine.live_cluster` that reads like its paper's
algorithm (`methods/`). Nothing else needs this folder: without it, scenarios with a `[sharing]`
table are unknown.
"""

KEYS = ("sharing",)


def claims(name: str) -> bool:
    """No file by its name."""
    return False
