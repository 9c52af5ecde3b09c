"""What would a training script do on another cluster?

A step of the script, recorded by `sim.capture` or by PyTorch's execution trace observer, becomes a
program, which is played without torch. Other folders do not need this folder: without it,
recordings are unknown.
"""

KEYS = ("record",)


def claims(name: str) -> bool:
    """Whether a scenario's name is the name of a recording's file."""
    return name.endswith((".json", ".json.gz"))
