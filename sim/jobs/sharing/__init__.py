"""How do workers that do not wait for one another train?

Each way to share updates is a process on `engine.live_cluster` that reads like its paper's
algorithm (`methods/`). No other folder needs this folder. Without it, `sim` cannot run scenarios
with a `[sharing]` table.
"""

from pathlib import Path

KEYS = ("sharing",)


def adopt(path: Path) -> dict[str, str]:
    """Return the settings with which a scenario uses the method of a Python file."""
    from sim.jobs.sharing.own_method import method_of

    return {"sharing.method": method_of(path)}
