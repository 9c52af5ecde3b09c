"""The basis of an answer: the files that were read, with the sources that they name."""

from collections.abc import Iterator, Sequence
from typing import Any

from sim.config.errors import InputError
from sim.config.reads import path_of, text
from sim.interface.document.nodes import Listing, Section, Sentence, Table, section
from sim.results.answer import Inputs
from sim.results.formatting import Cells
from sim.scenario.settings import flat

_SHOWN = (".toml", ".json")
_MOST = 100_000  # characters of a file; longer ones are tables of numbers
_FOLDERS = (
    ("scenarios", "scenario"), ("models", "model"), ("devices", "device"), ("stacks", "stack"),
    ("engines", "engine"),
    ("backends", "collective library"), ("profiles", "profile"), ("validated", "measured runs"),
    ("recipes", "precision"), ("topologies", "cluster"),
)  # fmt: skip


def shown(
    inputs: Sequence[tuple[str, Inputs]], names: Sequence[str], given: Sequence[str]
) -> Section:
    """Show the input values of each answer, by name. Then show descriptions of the model and the
    cluster (`given`), and the text of each file with its comments."""
    files = [(title, content) for _, title, content in sorted(_files(names))]
    where = "" if files else " This page was written from a result alone: its files are not known."
    version = next((of_answer.version for _, of_answer in inputs), Inputs().version)
    intro = (
        "As simulated, settings included. The files below say in their comments where each "
        f"number comes from. Written by clustersim {version}.{where}"
    )
    return section(
        "Inputs and their sources",
        Sentence(intro),
        *(Table(caption=name, rows=values(of_answer)) for name, of_answer in inputs),
        *map(Listing, given),
        *(Listing(content, title) for title, content in dict(files).items()),
        name="inputs",
    )


def values(inputs: Inputs) -> list[Cells]:
    """Return the model, cluster, software and so on of an answer, the keys of its layout, and the
    changed values."""
    said = {
        "model": inputs.model, "cluster": inputs.cluster, "device": inputs.device,
        "GPUs": f"{inputs.gpus:,}" if inputs.gpus else "", "software": inputs.stack,
        "precision": inputs.precision, "optimizer": inputs.optimizer, "price": inputs.price,
    }  # fmt: skip
    keys = {**dict(flat(inputs.plan)), **{f"{key} (changed)": v for key, v in flat(inputs.change)}}
    told = {key: _value(value) for key, value in keys.items() if value is not None}
    return [(key, value) for key, value in {**said, **told}.items() if value]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _files(names: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    for name in names:
        path = path_of(name)
        place, kind = _kind(path.parts)
        if path.suffix not in _SHOWN or kind == "measured runs":
            continue
        try:
            content = text(path)
        except InputError:
            continue  # the file was removed after it was read
        shown = content if len(content) <= _MOST else f"{content[:_MOST]}\n... cut off here"
        yield place, f"{kind}: {path.stem}", shown


def _kind(parts: Sequence[str]) -> tuple[int, str]:
    found = ((place, kind) for place, (folder, kind) in enumerate(_FOLDERS) if folder in parts)
    return next(found, (0, "file"))
