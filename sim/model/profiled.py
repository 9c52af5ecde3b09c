"""A model as it was measured: a CSV with the times and sizes of its layers, from a profiler.

The columns are those of PipeDream's profiles (Narayanan et al. 2019, section 3.1): `layer`,
`forward_ms`, `backward_ms`, `activation_bytes` and `parameter_bytes`. A file of several models has
a column `model`. A file whose rows are not in the order of the layers has a column `node`, whose
values end in the layer's number.
"""

import csv
import math
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from sim.config import catalog, reads
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Ge
from sim.model.kernels import BYTES, Precision

_NUMBERS = ("forward_ms", "backward_ms", "activation_bytes", "parameter_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledLayer:
    """Seconds and bytes of a layer for the batch that was profiled. `taken` is the bytes of the
    previous layer's output, 0 if the profile does not give them."""

    name: str
    forward: float
    backward: float
    taken: float
    activation: float
    parameters: float


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """The content of `models/NAME.toml` for a `profile`: a path, or a file beside the models.
    `select` names one of the models in a file of several. The profile was taken with `batch`
    samples on a `device` in one `precision`. Times and activations of other batches are scaled in
    proportion, as PipeDream does. Scaled times of a smaller batch are too short, because its
    kernels do not fill the device."""

    feature_maps: ClassVar[bool] = False
    divides_tables: ClassVar[bool] = False

    kind: Literal["profiled"]
    profile: str
    select: str = ""
    batch: Annotated[int, Ge(1)]
    device: str
    precision: Precision = "fp32"

    @cached_property
    def layers(self) -> tuple[ProfiledLayer, ...]:
        """The layers in forward order. Raises `InputError`."""
        return _read(_find(self.profile), self.select)

    @property
    def inputs(self) -> float:
        """Bytes of a sample, 0 if the profile does not give them."""
        return self.layers[0].taken / self.batch

    def handed(self, layer: int, width: float) -> float:
        return self.layers[layer].activation / self.batch

    def pulled(self, batch: int) -> "Profiled":
        """Return the whole model: a worker holds all of it while servers keep its weights."""
        return self

    def check(self, precision: str, device: str) -> None:
        where = f"model, {self.profile}"
        if device != self.device:
            fault = f"was measured on {self.device}, not on {device}"
            raise InputError(where, fault, f"use a cluster of {self.device}, or another profile")
        if precision != self.precision:
            fault = f"was measured in {self.precision}, not in {precision}"
            raise InputError(where, fault, f'set precision = "{self.precision}"')

    @property
    def width(self) -> float:
        """Bytes of a parameter."""
        return BYTES[self.precision]


def _find(name: str) -> Path:
    """Return the path of a profile; the user's own file comes first."""
    places = [Path(name), *(root / "models" / name for root in catalog.roots())]
    for path in places:
        if reads.exists(path):
            return path
    raise InputError("model, profile", f"no file {name!r}", "give its path, or put it into models/")


def _read(path: Path, select: str) -> tuple[ProfiledLayer, ...]:
    where = catalog.place(path)
    try:
        reader = csv.DictReader(StringIO(reads.text(path, where=where)))
        known, rows = list(reader.fieldnames or ()), list(enumerate(reader, start=2))
    except csv.Error as error:
        raise InputError(where, f"cannot be read ({error})", "give a CSV in UTF-8") from None
    for column in ("layer", *_NUMBERS):
        if column not in known:
            raise InputError(where, f"column {column} is missing", "add it")
    if "model" in known:
        rows = _of_one_model(rows, select, where)
    if "node" in known:
        rows.sort(key=lambda row: _number_of(row[1]["node"], f"{where}, line {row[0]}"))
    layers = tuple(_layers(rows, where))
    if not layers:
        raise InputError(where, "has no layers", "add a row for each layer")
    return layers


Rows = list[tuple[int, dict[str, str]]]


def _of_one_model(rows: Rows, select: str, where: str) -> Rows:
    models = list(dict.fromkeys(row["model"] for _, row in rows))
    if select not in models and (select or len(models) > 1):
        fault = f"has no model {select!r}" if select else f"has {len(models)} models"
        raise InputError(where, fault, f"select one of {', '.join(models)}")
    return [row for row in rows if row[1]["model"] == (select or row[1]["model"])]


def _number_of(node: str, where: str) -> int:
    found = re.search(r"(\d+)$", node or "")
    if not found:
        raise InputError(where, f"node {node!r} does not end in its number", "write e.g. node7")
    return int(found[1])


def _layers(rows: Rows, where: str) -> Iterator[ProfiledLayer]:
    """Yield the layers in the rows. PipeDream's graphs begin with a node `Input`, the loading of
    the data, which is no layer; PipeDream's optimizer_graph_hierarchical.py removes it, too."""
    taken = 0.0
    for line, row in rows:
        seconds, back, activation, parameters = (
            _number(row, key, f"{where}, line {line}") for key in _NUMBERS
        )
        if row["layer"] != "Input":
            yield ProfiledLayer(
                name=row["layer"],
                forward=seconds / 1e3,
                backward=back / 1e3,
                taken=taken,
                activation=activation,
                parameters=parameters,
            )
        taken = activation


def _number(row: Mapping[str, str], key: str, where: str) -> float:
    try:
        value = float(row[key])
    except (TypeError, ValueError):
        raise InputError(where, f"{key} = {row[key]!r} is no number", "correct it") from None
    if not math.isfinite(value) or value < 0:
        raise InputError(where, f"{key} = {row[key]} is negative or infinite", "correct it")
    return value
