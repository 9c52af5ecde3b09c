"""Which file of topologies/devices describes this machine's device."""

from collections.abc import Iterable

from sim.config import catalog
from sim.config.errors import InputError
from sim.hardware import device as devices


def device_file(device: str) -> str:
    """The name of the file. Raises `InputError` if none fits."""
    if device == "cpu":
        return "cpu"
    import torch

    name, memory = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory
    files = [(file, devices.load(file).memory) for file in catalog.names("topologies/devices")]
    nearest = nearest_file(name, float(memory), files)
    if nearest is None:
        what = f"no file in topologies/devices is of {name!r}"
        raise InputError("--as", what, "write one (CONTRIBUTING.md, a device), or name one: --as")
    return nearest


def nearest_file(name: str, memory: float, files: Iterable[tuple[str, float]]) -> str | None:
    """Of (file, memory) those whose first word is in the driver's name of the device; of these the
    one whose memory is nearest.

    >>> files = [("h100-80gb-sxm", 85e9), ("a100-40gb-sxm", 42e9), ("a100-80gb-sxm", 85e9)]
    >>> nearest_file("NVIDIA A100-SXM4-80GB", 84.9e9, files)
    'a100-80gb-sxm'
    """
    fitting = [
        (abs(size - memory), file) for file, size in files if file.partition("-")[0] in name.lower()
    ]
    return min(fitting)[1] if fitting else None
