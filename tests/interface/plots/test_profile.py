"""The picture of a device's profile: every panel is there."""

from pathlib import Path

import pytest

from sim.interface.plots.picture import save
from sim.interface.plots.profile import figure
from tests.results.test_profile import PROFILE


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_it_is_drawn(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"mine.{kind}"
    save(figure(PROFILE, "mine"), path)
    assert path.stat().st_size > 10_000


def test_every_panel_says_what_it_shows() -> None:
    titles = [axes.get_title() for axes in figure(PROFILE, "mine").axes]
    assert titles == [
        "Achieved against peak",
        "Memory-bound kernels",
        f"Errors of {PROFILE.origin.device} without this profile",
        "Predicted against measured",
        "Errors where kept out of the fit",
        "The same by shape, above 20 us",
    ]
