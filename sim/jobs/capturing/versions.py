"""The torch that is installed, if it is one whose inside is known."""

from typing import Any

from sim.config.errors import InputError

KNOWN = ("2.11", "2.12", "2.13")


def known_torch() -> Any:
    """Raises `InputError` without torch, and for a version whose inside was never looked at."""
    try:
        import torch
    except ImportError:
        what, remedy = "needs torch, which is not installed", "pip install 'clustersim[capture]'"
        raise InputError("sim capture", what, remedy) from None
    if ".".join(torch.__version__.split(".")[:2]) not in KNOWN:
        what = f"does not know torch {torch.__version__}: a capture reaches into its inside"
        raise InputError("sim capture", what, f"install torch {' or '.join(KNOWN)}.*")
    return torch
