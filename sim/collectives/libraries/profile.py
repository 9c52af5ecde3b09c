"""A fabric's profile: the constants of a collective library as measured on the fabric.

`sim calibrate collectives` writes `topologies/profiles/NAME.toml`. The file names the library
(`backend = "gloo"`), and its `[constants]` replace constants of topologies/backends. The file says
where and when they were measured, and gives the errors on sizes outside of the fit. A CSV beside it
holds the measured times (`sim.jobs.traces.operation_times`).
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from sim.config import catalog
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.reads import remembered
from sim.config.schema import Signed
from sim.config.units import Bytes, Ge

FORMAT = 1
FOLDER = "topologies/profiles"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveResidual:
    """Errors of the fit on those sizes of a collective that were kept out of the fit.

    `median`, `p95` and `worst` describe |predicted / measured - 1|. `bias` is the mean of predicted
    / measured - 1; `sigma` is the standard deviation of log(measured / predicted). The `readings`
    have sizes from `least` to `most` bytes.
    """

    kind: Literal["collective"] = "collective"
    name: str
    readings: Annotated[int, Ge(0)]
    least: Bytes
    most: Bytes
    median: Annotated[float, Ge(0)]
    p95: Annotated[float, Ge(0)]
    worst: Annotated[float, Ge(0)]
    bias: Annotated[float, Signed()]
    sigma: Annotated[float, Ge(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricProfile:
    """The content of a profile's TOML file; `measurements` is the name of the CSV beside it."""

    format: int = FORMAT
    backend: str
    measurements: str
    provenance: dict[str, str | int | float] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    residuals: tuple[CollectiveResidual, ...] = ()

    def __post_init__(self) -> None:
        if self.format > FORMAT:
            fault = f"format = {self.format} is newer than this program reads ({FORMAT})"
            raise ValueError(f"{fault}; install a newer version, or calibrate again")


def find(name: str, *, where: str = "command line") -> FabricProfile | None:
    """The profile of a name or path; None for the name of a backend of topologies/backends.

    Raises `InputError` for a file that is not the profile of a fabric.
    """
    path = located(name, where=where)
    return read(path) if path else None


def located(name: str, *, where: str = "command line") -> Path | None:
    """The file of a profile's name or path; None for the name of a backend."""
    path = name.endswith(".toml")
    if not path and catalog.has("topologies/backends", name):
        return None
    if not path and not catalog.has(FOLDER, name):
        known = catalog.names("topologies/backends") + catalog.names(FOLDER)
        fault = f"no backend or profile of a backend is named {name!r}"
        raise InputError.unknown(where, fault, name, known)
    return catalog.find(FOLDER, name, where=where)


@remembered(16)
def read(path: Path) -> FabricProfile | None:
    """The profile of a file; None where the file describes a backend itself."""
    data = catalog.read(path)
    if "device" in data:
        fault = "describes a device, not a fabric"
        raise InputError(catalog.place(path), fault, "use it as device.profile")
    return validated(data, path) if "backend" in data else None


def validated(data: Mapping[str, Any], path: Path) -> FabricProfile:
    """The profile that a file's content describes. Raises `InputError`."""
    return catalog.validate(dict(data), FabricProfile, catalog.place(path))
