"""A fabric's profile that was written is a backend with what was fitted."""

from math import nan
from pathlib import Path

import pytest

from sim.calibration.fabric import profiled, text
from sim.collectives import backend, profile
from sim.collectives.gloo import Gloo
from sim.collectives.shape import Fabric, Shape
from sim.errors import InputError
from sim.reading import Reading, read

pytest.importorskip("scipy")
pytest.importorskip("tomli_w")

READINGS = [
    Reading(operation="reduce", seconds=1e-4 + 2.0**k / 1e9, ranks=2, bytes=2.0**k, sigma=nan)
    for k in range(3, 24)
]


def test_a_profile_that_was_written_is_read_as_it_was_fitted(tmp_path: Path) -> None:
    out = tmp_path / "here.toml"
    made = profiled("gloo", READINGS, out, None, {"torch": "2.13"})
    found, library = profile.find(str(out)), backend.load(str(out))
    assert found is not None
    assert found.provenance == {"torch": "2.13", "samples": 21}
    assert found.residuals[0].median == pytest.approx(made.residuals[0].median, abs=1e-4)
    assert found.residuals[0].most == 2.0**23
    assert len(read(tmp_path / found.measurements)) == 21
    assert isinstance(library, Gloo)
    shape = Shape(ranks=2)
    host = Fabric(generation="cpu", gpus_per_node=2, port_bandwidth=1e12)
    seconds = host.duration(library.wire("reduce", 2.0**22, shape, host), shape)
    assert seconds == pytest.approx(READINGS[19].seconds, rel=0.05)
    assert "reduce among 2" in text(made.residuals)


def test_nothing_is_written_where_nothing_can_be_fitted(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        profiled("gloo", READINGS[:3], tmp_path / "here.toml", None, {})
    assert list(tmp_path.iterdir()) == []
