"""`sim.show` describes a model, topology, profile, algorithm, recording or scenario as text, in a
notebook or as a drawing."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from sim.config import catalog
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.interface.document import html, terminal
from sim.interface.document.nodes import Document, Listing, document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RANKS = 8  # ranks of an algorithm, if the caller gives no number


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The answer of `show`: a document, and a function `draw` that draws it (None: text alone)."""

    document: Document
    draw: "Callable[[], Figure] | None" = None

    def __str__(self) -> str:
        return terminal.text(self.document)

    def _repr_html_(self) -> str:
        return html.html(self.document)

    def plot(self, path: str | PathLike[str] | None = None) -> "Figure":
        """Draw the picture, and write it to a path if one is given. Raises `InputError` if there
        is no picture."""
        from sim.interface.plots.picture import save

        if self.draw is None:
            raise InputError("--picture", "this is shown as text", "leave it out")
        figure = self.draw()
        if path is not None:
            save(figure, Path(path))
        return figure


def show(name: str, *, gpus: int | None = None) -> Shown:
    """Show a model, a topology, a profile of a device or fabric, a collective algorithm, a
    recording, or a scenario as TOML. A model is a name, a TOML file or a Hugging Face config.json.
    `gpus` is the number of GPUs of a topology, or of ranks of an algorithm. Raises `InputError`.

    >>> print(str(show("gpt2-124m")).splitlines()[0])
    gpt2-124m: 12 layers (dense), 768 hidden, 12 heads, 50,257 words
    """
    from sim.interface.views.collective import is_algorithm
    from sim.interface.views.fabric import is_fabric
    from sim.interface.views.model import is_model
    from sim.interface.views.profile import is_profile
    from sim.jobs.recorded.file import is_script

    if is_algorithm(name) and name not in catalog.names("topologies"):
        return _algorithm(name, gpus or _RANKS)
    kinds = ((is_script, _recording), (is_model, _model), (is_fabric, _fabric),
             (is_profile, _profile), (_is_scenario, _scenario))  # fmt: skip
    made = next((made for holds, made in kinds if holds(name)), None)
    if made is None:
        return _topology(name, gpus)
    if gpus is not None:
        raise InputError("--gpus", f"{name} has no number of GPUs", "leave it out")
    return made(name)


def _model(name: str) -> Shown:
    from sim.interface.views.model import title, view
    from sim.model import reading

    return Shown(document=view(reading.load(name), title(name)))


def _is_scenario(name: str) -> bool:
    return catalog.has("scenarios", name) and not catalog.has("topologies", name)


def _scenario(name: str) -> Shown:
    import tomli_w

    from sim import kind

    written = tomli_w.dumps(kind.document(name))
    return Shown(document=document("", Listing(title="", text=written.rstrip())))


def _recording(name: str) -> Shown:
    from sim.interface.views.recording import view
    from sim.jobs.recorded.file import read

    return Shown(document=view(read(Path(name))))


def _algorithm(name: str, ranks: int) -> Shown:
    """Show the collectives of an algorithm, and draw the rounds of its first collective."""
    from sim.interface.plots import collective
    from sim.interface.views.collective import algorithm as view
    from sim.interface.views.collective import schedules

    def draw() -> "Figure":
        return collective.figure(schedules(name, ranks)[0], title=name)

    return Shown(document=view(name, ranks), draw=draw)


def _fabric(name: str) -> Shown:
    from sim.interface.plots import fabric
    from sim.interface.views.fabric import view

    return Shown(document=view(name), draw=lambda: fabric.figure(name))


def _profile(name: str) -> Shown:
    from sim.hardware.kernels.profile import load
    from sim.interface.plots import profile
    from sim.interface.views.profile import view

    shown, named = load(name), Path(name).stem
    return Shown(document=view(shown, named), draw=lambda: profile.figure(shown, named))


def _topology(name: str, gpus: int | None) -> Shown:
    from sim.collectives.libraries import backend
    from sim.engine.machine import Machine
    from sim.hardware.cluster.topology import load
    from sim.interface.plots import topology
    from sim.interface.views.topology import view

    shown = load(name)
    shown = shown.with_gpus(gpus) if gpus else shown
    Machine(shown, backend.load(shown.backend))  # refuses a topology that its library cannot serve
    return Shown(document=view(shown), draw=lambda: topology.figure(shown))
