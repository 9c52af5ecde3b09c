"""A second opinion: programs against the formulas of papers, which share no code with them."""

from pathlib import Path

import pytest

from sim import kind
from sim.config.errors import InputError
from sim.scenario.scenario import Scenario
from sim.scenario.setup import from_scenario
from tests.campaign.jobs import drawn
from tests.reference.second_opinion import differences, known

SCENARIOS = sorted(path.stem for path in Path("scenarios").glob("*.toml"))
EARLY = "torch's checkpoints stop early: a layer's last product does not run again"
ROOT = "FSDP keeps the last layer and what is outside of layers until their backward pass"
EXPLAINED = {
    "llama2-70b-fsdp": {"executed FLOPs": EARLY, "data communication": ROOT},
    "llama3-8b-perlmutter": {"executed FLOPs": EARLY, "data communication": ROOT},
    "maxtext-64b-slices": {"executed FLOPs": EARLY, "data communication": ROOT},
    "llama3-8b-muon": {"executed FLOPs": "Newton-Schulz iterations of Muon are products, too"},
    "llama3-8b-torchtitan": {
        "executed FLOPs": "its selective recomputation runs every second product again",
        "data communication": ROOT,
    },
}


@pytest.mark.long
def test_every_scenario_is_as_the_papers_say_or_its_difference_is_explained() -> None:
    held = 0
    for name in SCENARIOS:
        scenario = kind.load(name)
        if isinstance(scenario, Scenario) and known(setup := from_scenario(scenario)):
            held += 1
            told = differences(setup)
            assert set(told) == set(EXPLAINED.get(name, {})), (name, told)
    assert held >= 20


@pytest.mark.parametrize("part", ["dense", "experts", "offload"])
def test_jobs_drawn_at_random_are_as_the_papers_say(part: str) -> None:
    held = 0
    for number in range(8):
        try:
            setup = from_scenario(kind.described(drawn(part, number)))
            told = differences(setup) if known(setup) else {}
        except InputError:  # sizes that do not fit together
            continue
        held += known(setup)
        assert not told, (number, told)
    assert held
