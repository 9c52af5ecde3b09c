"""How do workers that do not wait for one another train?

Each way to share updates is a process on `engine.live_cluster` that reads like its paper's
algorithm (`methods/`). Nothing else needs this folder: without it, scenarios with a `[sharing]`
table are unknown.
"""

from pathlib import Path

KEYS = ("sharing",)


def adopt(path: Path) -> dict[str, str]:
    """Return the settings with which a scenario uses the method of a Python file."""
    from sim.jobs.sharing.own_method import method_of

    return {"sharing.method": method_of(path)}
