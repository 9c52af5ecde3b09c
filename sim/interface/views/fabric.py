"""A fabric's profile: its provenance, its constants, its errors."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sim.collectives.libraries.profile import FOLDER, CollectiveResidual, FabricProfile, find
from sim.config import catalog
from sim.config.errors import InputError
from sim.interface.document.nodes import Document, Table, document, section, table


def is_fabric(name: str) -> bool:
    """Whether a name, or a path, is that of a fabric's profile.

    >>> is_fabric("dgx-a100-hdr")
    False
    """
    try:
        return "backend" in catalog.read(catalog.find(FOLDER, name))
    except InputError:
        return False


def view(name: str) -> Document:
    """Provenance, constants and errors of a fabric's profile. Raises `InputError`."""
    profile = _profile(name)
    stated = [(key, str(value)) for key, value in profile.provenance.items() if value != ""]
    return document(
        f"{Path(name).stem}: collectives of {profile.backend}",
        table(stated),
        section("", table((path, str(value)) for path, value in _flat(profile.constants))),
        section("", _errors(profile.residuals)),
    )


def judged(residuals: Sequence[CollectiveResidual]) -> Document:
    """The errors of a profile that was fitted just now."""
    return document("", _errors(residuals))


def _errors(residuals: Sequence[CollectiveResidual]) -> Table:
    """Errors on the sizes kept out of the fit, a line for each kind of call and group."""
    rows = [
        (residual.name, str(residual.readings), f"{residual.median:.1%}", f"{residual.p95:.1%}",
         f"{residual.worst:.1%}", f"{residual.bias:+.1%}")
        for residual in residuals
    ]  # fmt: skip
    return table(rows, ("kept out of the fit", "n", "median", "p95", "worst", "bias"))


def _profile(name: str) -> FabricProfile:
    profile = find(name)
    assert profile is not None, "the caller has asked `is_fabric`"
    return profile


def _flat(constants: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in constants.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
