"""A picture has one arrow for every message."""

from pathlib import Path

import pytest

from sim.collectives.readings import messages
from sim.collectives.schedule import algorithms, offered
from sim.interface.plots.collective import figure

PLANS = [getattr(module, kind)(6) for module in algorithms().values() for kind in offered(module)]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.kind)
def test_every_message_has_its_arrow(plan) -> None:  # type: ignore[no-untyped-def]
    axes = figure(plan).axes[0]
    arrows = [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]
    assert len(arrows) == len(messages(plan, 1.0))


def test_picture_can_be_saved(tmp_path: Path) -> None:
    figure(PLANS[0], title="a title").savefig(tmp_path / "rounds.svg")
    assert "<svg" in (tmp_path / "rounds.svg").read_text()
