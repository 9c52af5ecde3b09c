"""Profiles as a command names them: which value of a scenario each one replaces."""

from sim.config import catalog
from sim.config.errors import InputError

FOLDER = "topologies/profiles"


def setting_of(name: str) -> tuple[str, str]:
    """Key and value of the setting that a profile stands for, given by name or path.

    The profile of a device is its kernels' times, that of a backend the library of collectives.
    Raises `InputError` where there is no such file or it is neither.
    """
    path = catalog.find(FOLDER, name, where="--profile")
    keys = catalog.read(path).keys()
    if "backend" in keys:
        return "topology.backend", name
    if "measurements" in keys:
        return "device.profile", name
    fault = "is the profile neither of a device nor of a collective library"
    raise InputError(catalog.place(path), fault, "`sim calibrate` writes one")
