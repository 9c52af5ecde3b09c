"""Which changes of a script could make its recorded step shorter? All edits that apply to it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from sim.config.plugins import modules
from sim.jobs.recorded.edits.edit import Edit
from sim.jobs.recorded.setup import Recorded, from_scenario
from sim.results.by_line import Suggestion


def advice(setup: Recorded) -> Iterator[Suggestion]:
    """Yield the edits of all modules of `edits`."""
    for module in modules("sim.jobs.recorded.edits").values():
        if hasattr(module, "edits"):
            for edit in module.edits(setup):
                yield Suggestion(
                    line=edit.line,
                    at=edit.at,
                    change=edit.change,
                    why=edit.why,
                    samples=edit.samples,
                    made=partial(_edited, edit),
                )


def _edited(edit: Edit, setup: Recorded) -> Recorded:
    """A setup with an edit applied to all its recordings."""
    recordings = tuple(edit.made(recording, axes) for recording, axes in setup.stages)
    return from_scenario(replace(setup.scenario, record=recordings))
