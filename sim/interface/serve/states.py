"""A state of the page: a scenario that the page begins with, and the settings that change it."""

import json
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import field
from itertools import chain
from typing import Any

from sim import kind
from sim.config import catalog, gate, reads
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.interface.serve.proposals import of_remedies
from sim.interface.views.model import title
from sim.model import reading
from sim.scenario.scenario import BaseScenario
from sim.scenario.setting_texts import setting
from sim.scenario.settings import flat

_FOLDERS = ("models", "topologies", "scenarios")
_CLUSTER, _GPUS, _BATCH = "dgx-h100-ndr", 64, 256  # defaults for a model without a scenario
_MOST, _LONGEST = 200, 200_000  # settings of a state, characters of a key or a value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Base:
    """A scenario that a page can begin with: a name of `sim list`, or the file or `document` with
    which the server was started. `settings` are the settings of the command."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    document: Mapping[str, Any] | None = None
    words: tuple[str, ...] = ()  # the `sim run` command for this base

    def written(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the base's document with settings applied. Raises `InputError`."""
        given = self.name if self.document is None else self.document
        return kind.document(given, {**self.settings, **settings})


@dataclass(frozen=True, slots=True)
class State:
    """A base with the page's settings, which are texts for `--set`."""

    base: Base
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """The values of the settings' texts."""
        return dict(setting(f"{key}={text}") for key, text in self.settings)

    @property
    def document(self) -> dict[str, Any]:
        """The document of the scenario with the settings applied. Raises `InputError`."""
        return self.base.written(self.values)

    def scenario(self) -> BaseScenario:
        """Return the scenario with the settings applied. Raises `InputError`."""
        return kind.described(self.document, (), self.base.name)

    def with_settings(self, settings: Mapping[str, str | None]) -> "State":
        """Return the state with further settings; None removes a setting."""
        after = {**dict(self.settings), **settings}
        return State(
            self.base, tuple((key, text) for key, text in after.items() if text is not None)
        )

    @property
    def command(self) -> str:
        """The `sim run` command for this state."""
        words = self.base.words or ("sim", "run", self.base.name)
        return shlex.join((*words, *_options(dict(self.settings))))

    @property
    def toml(self) -> str:
        """The text of a scenario file for this state. Raises `InputError`."""
        import tomli_w

        return f"# Written by `sim serve`, from:\n# {self.command}\n{tomli_w.dumps(self.document)}"

    @property
    def python(self) -> str:
        """Lines of Python that run this state. Raises `InputError`."""
        if self.base.document is None:
            settings = {**self.base.settings, **self.values}
            asked = f"sim.load({self.base.name!r}, {settings!r})"
        else:
            asked = f"described({self.document!r})"
        imports = "import sim\n" + "from sim.kind import described\n" * bool(self.base.document)
        return f"{imports}\nscenario = {asked}\nresult = sim.run(scenario)\nprint(result)\n"


class Bases:
    """The bases that states of a page may have, and the files that they may read (`places`)."""

    def __init__(self, first: Base) -> None:
        self.first = first
        self._bases = {first.name: first}
        with reads.recorded() as seen:
            kind.set_up(State(first).scenario())
        named = [reads.path_of(name) for look, name in seen if look == "content"]
        roots = [root / folder for root in catalog.roots() for folder in _FOLDERS]
        self.places = [*roots, reads.packaged_root() / "measurements", *named]

    @property
    def names(self) -> list[str]:
        """The name of the first base, then every scenario of `sim list`."""
        return list(dict.fromkeys([self.first.name, *catalog.names("scenarios")]))

    def state(self, asked: Mapping[str, Any]) -> State:
        """Return the state that a page asks for. Raises `InputError` if the request is not a
        state."""
        name, settings = asked.get("base") or self.first.name, asked.get("settings") or {}
        if not _sound(settings):
            raise InputError("state", "settings are no texts", "open the page anew")
        if name not in self.names:
            raise InputError("scenario", f"no scenario named {name!r}", "choose one of the list")
        base = self._bases.setdefault(name, Base(name=name))
        return State(base, tuple(settings.items()))

    def states(self, asked: Mapping[str, Any]) -> dict[str, State]:
        """Return the states that a page asks for, by name. Raises `InputError`."""
        states = asked.get("states")
        if not isinstance(states, dict) or not all(
            isinstance(state, dict) for state in states.values()
        ):
            raise InputError("states", "are no table of states", "open the page anew")
        return {name: self.state(state) for name, state in states.items()}


def _sound(settings: Any) -> bool:
    """Whether settings are a table of texts, within the limits of number and length."""
    return (
        isinstance(settings, dict)
        and len(settings) <= _MOST
        and all(isinstance(text, str) and len(text) < _LONGEST
                for pair in settings.items() for text in pair)
    )  # fmt: skip


def base_of(scenario: str, settings: Mapping[str, Any]) -> Base:
    """Return the base for the SCENARIO of a command. Raises `InputError`."""
    words = ("sim", "run", scenario, *_options(settings))
    return Base(name=scenario, settings=settings, words=words)


def _options(settings: Mapping[str, Any]) -> tuple[str, ...]:
    pairs = ((key, str(value) if isinstance(value, str) else toml(value))
             for key, value in settings.items())  # fmt: skip
    return tuple(word for key, text in pairs for word in ("--set", f"{key}={text}"))


def base_of_job(job: Mapping[str, Any], settings: Mapping[str, Any]) -> Base:
    """Return the base for a model without a scenario. Its layout is the default, changed by the
    first remedy if the default does not fit into memory. Raises `InputError`."""
    name = title(str(job["model"]))
    cluster = {"topology": _CLUSTER, "gpus": _GPUS} if "topology" not in job else {}
    document = {"name": name, **cluster, **job, "plan": {"global_batch": _BATCH}}
    answer = kind.answer(kind.set_up(kind.described(dict(document), settings)))
    mended = next(iter(of_remedies(answer.get("remedies") or ())), None)
    if mended is not None:
        given = {key: setting(f"{key}={text}")[1] for key, text in mended.settings.items()}
        document = kind.document(document, given)
    named = ((f"--{key}", str(value)) for key, value in {**cluster, **job}.items())
    given = {**dict(flat({"plan": document["plan"]})), **settings}
    words = ("sim", "run", *chain.from_iterable(named), *_options(given))
    return Base(name=name, settings=settings, document=document, words=words)


def toml(value: Any) -> str:
    """Return a value as a text for `--set`.

    >>> toml({"tp": 8, "offload": {"overlap": True}, "layers": [1, 2], "name": "a"})
    '{tp = 8, offload = {overlap = true}, layers = [1, 2], name = "a"}'
    """
    if isinstance(value, Mapping):
        said = (f"{_key(key)} = {toml(entry)}" for key, entry in value.items() if entry is not None)
        return "{" + ", ".join(said) + "}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)


def model_of(written: str) -> str:
    """Return a model as a text for `--set`, from the content of a config.json or a file of models/.
    Raises `InputError`."""
    where = "the model's text"
    try:
        found = json.loads(written) if written.lstrip()[:1] == "{" else tomllib.loads(written)
    except (ValueError, RecursionError) as error:
        raise InputError(where, f"is neither JSON nor TOML ({error})", "paste it whole") from None
    if not isinstance(found, dict):
        raise InputError(where, "is no object", "paste the whole config.json")
    gate.refuse_unsound(found, where)
    keys = reading.keys_of(found, f"{where}, config.json")
    reading.model_of(dict(keys), where)
    return toml(keys)
