"""The basis of an answer: the files that were read, with the sources that they name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.config.errors import InputError
from sim.config.reads import path_of, text
from sim.interface.document.nodes import Listing, Section, Sentence, section
from sim.interface.document.terminal import aligned
from sim.results.answer import Inputs

_SHOWN = (".toml", ".json")
_MOST = 100_000  # characters of a file; longer ones are tables of numbers
_FOLDERS = (
    ("scenarios", "scenario"), ("models", "model"), ("devices", "device"), ("stacks", "stack"),
    ("backends", "collective library"), ("profiles", "profile"), ("validated", "measured runs"),
    ("recipes", "precision"), ("topologies", "cluster"),
)  # fmt: skip


def shown(inputs: Inputs, names: Sequence[str], given: Sequence[str]) -> Section:
    """The inputs, as they were understood (`given`), and each file as it stands, with comments."""
    files = [(title, content) for _, title, content in sorted(_files(names))]
    where = "" if files else " This page was written from a result alone: its files are not known."
    intro = (
        "As simulated, settings included. The files below say in their comments where each "
        f"number comes from. Written by clustersim {inputs.version}.{where}"
    )
    changed = (
        *_said("plan, keys that are not as usual", inputs.plan),
        *_said("changed for this question", inputs.change),
    )
    return section(
        "Inputs and their sources",
        Sentence(intro),
        *map(Listing, (*given, *changed)),
        *(Listing(content, title) for title, content in dict(files).items()),
        name="inputs",
    )


def told(inputs: Inputs) -> str:
    """Inputs as a text of their own."""
    said = {"model": inputs.model, "cluster": inputs.cluster, "GPUs": f"{inputs.gpus:,}"}
    keys = {**said, "stack": inputs.stack, **inputs.plan, **inputs.change}
    return aligned([(key, str(value)) for key, value in keys.items() if value])


def _files(names: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    for name in names:
        path = path_of(name)
        place, kind = _kind(path.parts)
        if path.suffix not in _SHOWN or kind == "measured runs":
            continue
        try:
            content = text(path)
        except InputError:
            continue  # was there when it was read
        shown = content if len(content) <= _MOST else f"{content[:_MOST]}\n... cut off here"
        yield place, f"{kind}: {path.stem}", shown


def _kind(parts: Sequence[str]) -> tuple[int, str]:
    found = ((place, kind) for place, (folder, kind) in enumerate(_FOLDERS) if folder in parts)
    return next(found, (0, "file"))


def _said(title: str, keys: Mapping[str, Any]) -> Iterator[str]:
    if keys:
        yield f"{title}\n" + aligned([(key, str(value)) for key, value in keys.items()])
