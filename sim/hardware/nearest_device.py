"""The packaged device that best fits a name and a memory size."""

from sim.config import catalog
from sim.hardware.device import load


def nearest(name: str, memory: float) -> str | None:
    """The device file whose first word is in the driver's `name`, or None. Of several files, one
    whose last word is also there comes first, then an SXM board, then the nearest `memory` (bytes).

    >>> nearest("NVIDIA A100-SXM4-80GB", 84.9e9), nearest("NVIDIA H100 80GB HBM3", 85.0e9)
    ('a100-80gb-sxm', 'h100-80gb-sxm')
    """
    fitting = [
        (form not in name.lower(), form != "sxm", abs(load(file).memory - memory), file)
        for file in catalog.names("topologies/devices")
        for form in [file.rpartition("-")[2]]
        if file.partition("-")[0] in name.lower()
    ]
    return min(fitting)[-1] if fitting else None
