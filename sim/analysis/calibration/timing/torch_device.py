"""Whether torch is installed and has the device that a calibration needs."""

from sim.config.errors import InputError


def require(device: str, command: str = "sim calibrate") -> None:
    """Raise `InputError` unless torch is installed and has the device."""
    try:
        import torch
    except ImportError:
        what, remedy = "needs torch, which is not installed", "pip install 'clustersim[calibrate]'"
        raise InputError(command, what, remedy) from None
    if device == "cuda" and not torch.cuda.is_available():
        what = "torch sees no CUDA device"
        raise InputError("--device cuda", what, "check nvidia-smi, or take --device cpu")
