"""A fabric's profile changes the constants of its library, and is refused where it cannot."""

from pathlib import Path

import pytest

from sim.collectives.libraries import backend, profile
from sim.collectives.libraries.gloo import Gloo
from sim.collectives.libraries.nccl import Nccl
from sim.config.errors import InputError

GLOO = """\
format = 1
backend = "gloo"
measurements = "here.csv"
provenance = { torch = "2.13.0", samples = 40 }
[constants]
segment = "2 MiB"
[constants.pace.all_reduce]
cache = "4 MiB"
message = "80 us"
near = "3 GB/s"
far = "1 GB/s"
[[residuals]]
name = "all_reduce"
readings = 12
least = "8 B"
most = "64 MiB"
median = 0.04
p95 = 0.1
worst = 0.12
bias = -0.01
sigma = 0.05
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    path = tmp_path / "here.toml"
    path.write_text(GLOO)
    return path


def test_what_was_measured_goes_over_what_the_library_knows(here: Path) -> None:
    library = backend.load(str(here))
    assert isinstance(library, Gloo)
    assert (library.segment, library.acknowledgements) == (2 * 2**20, 0.5)
    assert library.pace["all_reduce"].message == pytest.approx(80e-6)


def test_nccl_is_measured_constant_by_constant(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    lines = ("backend = 'nccl'", "measurements = ''", "[constants.node.hopper]", "launch = '9 us'")
    path.write_text("\n".join(lines))
    library, usual = backend.load(str(path)), backend.load("nccl")
    assert isinstance(library, Nccl)
    assert isinstance(usual, Nccl)
    hopper = library.constants.node["hopper"]
    assert (hopper.launch, hopper.ring) == (9e-6, usual.constants.node["hopper"].ring)


def test_a_profile_says_how_far_it_is_from_what_was_kept_out(here: Path) -> None:
    measured = profile.find(str(here))
    assert measured is not None
    (residual,) = measured.residuals
    assert (residual.kind, residual.sigma, residual.most) == ("collective", 0.05, 64 * 2**20)
    assert profile.find("nccl") is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("format = 1", "format = 2", "format = 2 is newer than this program reads"),
        ("segment =", "sediment =", "constants: unknown key 'sediment'; did you mean 'segment'"),
        ('backend = "gloo"', 'device = "cpu"', "describes a device, not a fabric"),
        ('backend = "gloo"', 'backend = "glue"', "no backend named 'glue'"),
        ('"3 GB/s"', "3", "pace.all_reduce: near: 3 has no unit"),
    ],
)
def test_a_profile_that_cannot_be_used_is_refused(
    here: Path, old: str, new: str, said: str
) -> None:
    here.write_text(GLOO.replace(old, new, 1))
    with pytest.raises(InputError, match=said):
        backend.load(str(here))


def test_a_profile_that_was_written_again_is_another_backend(here: Path) -> None:
    first = backend.load(str(here))
    assert backend.load(str(here)) is first
    here.write_text(GLOO.replace("2 MiB", "16 MiB"))
    again = backend.load(str(here))
    assert isinstance(again, Gloo)
    assert again.segment == 16 * 2**20
