"""What would a training script do on another cluster?

A step of the script, recorded by `sim.capture` or by PyTorch's execution trace observer, becomes a
program, which is played without torch. No other folder needs this folder. Without it, `sim` cannot
play recordings.
"""

KEYS = ("record",)


def claims(name: str) -> bool:
    """Whether a scenario's name is the name of a recording's file."""
    return name.endswith((".json", ".json.gz"))
