"""The answer to every question of `sim`: text, plain data, a table, a picture.

The keys of `to_dict` are the fields of a dataclass and derived values; `docs/schema` describes them
as JSON schemas.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, field, fields, is_dataclass
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.version import VERSION
from sim.engine.timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_RENDERERS = "sim.interface.document.answers"
SCHEMA = 1  # the version of all answers; rises when a key is removed or changes its meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs behind an answer: names of files, settings of a step (given or default), the keys
    of the `plan` that differ from their defaults, and the values in `change`. `batch` is the number
    of samples of one update of the weights, each of `tokens` (0: not known, 1: an image), `price`
    the price of rent. `notes` tell what was assumed or left out by default."""

    model: str = ""
    cluster: str = ""
    device: str = ""
    gpus: int = 0
    stack: str = ""
    precision: str = ""
    optimizer: str = ""
    batch: float = 0
    tokens: int = 0
    plan: dict[str, Any] = field(default_factory=dict)
    change: dict[str, Any] = field(default_factory=dict)
    price: str = ""
    notes: tuple[str, ...] = ()
    version: str = VERSION

    @property
    def counted(self) -> str:
        """The unit that rates and costs count: tokens, or samples if the model has no tokens."""
        return "samples" if self.tokens == 1 else "tokens"

    @property
    def step(self) -> str:
        """A description of a step, except its precision, in a few words."""
        from sim.results.formatting import count

        of = f" of {self.tokens:,} tokens" if self.tokens > 1 else ""
        batch = f"{count(self.batch)} {'sequences' if of else 'samples'}{of} an update"
        return ", ".join(filter(None, (self.stack, self.optimizer, batch * bool(self.batch))))


class Answer:
    """An answer, which is shown as the document that `view` makes ("module:function", or a module
    with a function `view`). `picture` draws it (by default with the function `figure` of the
    module), as do the `pictures` by name. `report` is the module of its page, `comparison` the
    class that compares several answers ("module:Class"). `units` has the units of `columns` by the
    part of their names before a dot: "s", "%" (of shares), "B" or "USD".

    JSON leaves out the `unwritten` fields; `derived` has further keys of JSON: names of properties,
    or "key=property". `frame_rows` names the rows of its table, `frame_index` the columns that tell
    them apart. Fields of the same name mean the same in answers of all kinds (`get`).
    """

    __slots__ = ()
    view: ClassVar[str]
    picture: ClassVar[str] = ""  # no picture
    pictures: ClassVar[Mapping[str, str]] = {}
    report: ClassVar[str] = "sim.interface.page.answer"
    comparison: ClassVar[str] = ""
    unwritten: ClassVar[tuple[str, ...]] = ()
    derived: ClassVar[tuple[str, ...]] = ()
    units: ClassVar[Mapping[str, str]] = {}
    frame_rows: ClassVar[str] = ""
    frame_index: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **given: Any) -> None:
        """Give a subclass its own `__repr__`, because a dataclass replaces an inherited one."""
        super().__init_subclass__(**given)
        cls.__repr__ = Answer.__repr__  # type: ignore[method-assign]

    def __str__(self) -> str:
        return self._rendered("text")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._rendered('line')}>"

    def _repr_html_(self) -> str:
        return self._rendered("html")

    def _rendered(self, form: str) -> str:
        """Return the answer as "text", "html" or a "line", by the outer ring."""
        return str(getattr(import_module(_RENDERERS), form)(self))

    @property
    def noted(self) -> tuple[str, ...]:
        """The notes of the answer's inputs, if these belong to a single job."""
        inputs = getattr(self, "inputs", None)
        return inputs.notes if isinstance(inputs, Inputs) else ()

    def get(self, name: str) -> Any:
        """Return a field that answers of some kinds have; None in others."""
        return getattr(self, name, None)

    @property
    def title(self) -> str:
        """The title of its picture."""
        return str(self.get("scenario") or "")

    @property
    def excerpt(self) -> Timeline | None:
        """The part of its timeline that a picture has room for; None without a timeline."""
        timeline: Timeline | None = self.get("timeline")
        return timeline

    @property
    def excerpt_name(self) -> str:
        """The name of the part of the run that `excerpt` shows; empty for a step."""
        return ""

    @property
    def columns(self) -> dict[str, Any]:
        """The answer's figures as columns of a sweep's table."""
        return {}

    @property
    def misfit(self) -> str:
        """Why the job would not run; empty if it would."""
        return ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes of the answer's inputs, and its own warnings."""
        return (*self.noted, *getattr(self, "warnings", ()))

    @classmethod
    def written(cls) -> dict[str, str]:
        """The keys of `to_dict` except "schema", with the attribute that gives each value."""
        names = {f.name: f.name for f in fields(cls) if f.name not in cls.unwritten}  # type: ignore[arg-type]
        return names | {entry.split("=")[0]: entry.split("=")[-1] for entry in cls.derived}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the answer, its `inputs`, and the number of its schema."""
        written = {key: plain(getattr(self, name)) for key, name in self.written().items()}
        return {"schema": SCHEMA, **written}

    def to_frame(self) -> "pd.DataFrame":
        """A table of `frame_rows`, or of the pieces of its timeline (`sim.engine.pieces`)."""
        return import_module(_RENDERERS).frame(self)  # type: ignore[no-any-return]

    def plot(self, of: str = "") -> "Figure":
        """Return the answer's picture, or its picture `of` something. Raises `InputError`."""
        if not (of or self.picture):
            raise InputError("picture", f"a {type(self).__name__} has none", "print the answer")
        if of and of not in self.pictures:
            where, fault = type(self).__name__, f"has no picture of {of!r}"
            if not self.pictures:
                raise InputError(where, fault, "leave it out")
            raise InputError.unknown(where, fault, of, list(self.pictures))
        figure: Figure = function_of(self.pictures.get(of, self.picture), "figure")(self)
        return figure


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnswer(Answer):
    """Fields of answers of all kinds of jobs: the number of `events` on the clock, `wall_seconds`
    of the simulation itself (no part of the answer), `straggler_seconds` that slow parts cost the
    job. `fits` says whether all devices have the memory that they need (None: unknown)."""

    scenario: str
    inputs: Inputs = field(default_factory=Inputs)
    fits: bool | None
    events: int
    wall_seconds: float
    straggler_seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    timeline: Timeline = field(compare=False)


@dataclass(frozen=True, slots=True)
class Figures:
    """An answer as a row of a sweep's table: its columns, and why the job would not run."""

    columns: Mapping[str, Any]
    misfit: str
    wall_seconds: float = 0.0


def function_of(place: str, usual: str) -> Callable[..., Any]:
    """Return the function that "module:function" names, or the `usual` function of a "module"."""
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name or usual)
    return function


def finite(value: Any) -> Any:
    """Plain data with None for every number that is not finite, for which JSON has no text.

    >>> finite({"loss": float("nan"), "curve": [(1.0, float("inf"))]})
    {'loss': None, 'curve': [[1.0, None]]}
    """
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def plain(value: Any) -> Any:
    """Plain data of a value: dataclasses become tables, sequences and deferred rows lists."""
    if isinstance(value, Answer):
        return {key: entry for key, entry in value.to_dict().items() if key != "schema"}
    if is_dataclass(value) and not isinstance(value, type):
        return finite(asdict(value))
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(entry) for entry in value]
    return finite(value)


def said_of(thing: Any) -> dict[str, Any]:
    """Return the keys of a dataclass that are not at their defaults, with their values."""
    said = {}
    for key in fields(thing):
        value = getattr(thing, key.name)
        usual = key.default if key.default_factory is MISSING else key.default_factory()
        if value != usual:
            said[key.name] = plain(value)
    return said
