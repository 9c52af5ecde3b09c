"""The picture of memory: a part has one colour, whatever the job."""

from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from sim import kind
from sim.interface.plots.memory import COLOURS, colour_of, figure
from sim.jobs.recorded.memory import BESIDE
from sim.jobs.recorded.recording import PARTS
from sim.scenario.setup import from_scenario
from sim.simulate import answer


def bands(scenario: str, **changes: Any) -> dict[str, str]:
    """The colour of each part in the legend of the upper panel."""
    fig: Figure = figure(answer(from_scenario(kind.load(scenario, changes))))
    handles, labels = fig.axes[0].get_legend_handles_labels()
    colours = (to_hex(handle.get_facecolor()[0]) for handle in handles)
    return dict(zip(labels, colours, strict=True))


def test_parts_have_colours_that_differ() -> None:
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_parts_of_recordings_have_colours_too() -> None:
    assert all(colour_of(name) in COLOURS.values() for name in (*PARTS, BESIDE))


@pytest.mark.parametrize(
    "scenario",
    ["gpt2-one-gpu", "llama2-70b-fsdp", "pipedream-2bw", "llama2-7b-offload", "llama3-70b-lora"],
)
def test_every_part_of_a_job_has_its_own_colour(scenario: str) -> None:
    for name, colour in bands(scenario).items():
        assert colour == COLOURS[name]
