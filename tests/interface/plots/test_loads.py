"""A result has more than one picture."""

import pytest

import sim
from sim.config.errors import InputError
from sim.interface.plots.networks import busiest


@pytest.fixture(scope="module")
def result() -> sim.Result:
    return sim.run("megatron-1.7b")


def test_cables_have_the_colour_of_what_they_carry(result: sim.Result) -> None:
    shares = busiest(result.links)
    assert shares["nic"] == max(load.busy for load in result.links if load.kind == "nic")
    figure = result.plot("network")
    colours = {str(line.get_color()) for axes in figure.axes for line in axes.lines
               if line.get_gid() == "nic"}  # fmt: skip
    assert len(colours) == 1


def test_memory_is_a_picture_too(result: sim.Result) -> None:
    assert "memory" in result.plot("memory").get_suptitle()


def test_a_notebook_shows_a_picture_no_wider_than_its_page(result: sim.Result) -> None:
    head = result.plot()._repr_png_()[:24]  # type: ignore[attr-defined]
    assert head.startswith(b"\x89PNG")
    assert int.from_bytes(head[16:20], "big") <= 1000


def test_an_unknown_picture_is_refused(result: sim.Result) -> None:
    with pytest.raises(InputError, match="has no picture of 'netwrok'; did you mean 'network'"):
        result.plot("netwrok")
