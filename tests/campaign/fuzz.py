"""Files and options that somebody might write by mistake, or that a disk has spoiled."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import tomli_w
import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from sim.config import catalog
from tests.campaign.bases import BASES, Base
from tests.campaign.case import Case

Document = dict[str, Any]
Path_ = tuple[str | int, ...]

HUGE = 10**400
NUMBERS = (
    0,
    -1,
    1,
    2,
    3,
    7,
    64,
    10**6,
    10**9,
    10**18,
    -(10**9),
    0.0,
    -0.0,
    0.5,
    -0.5,
    1e-300,
    5e-324,
    1e-9,
    1e9,
    1e30,
    1e300,
    1e308,
    -1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    True,
    False,
)
TEXTS = (
    "",
    " ",
    "x",
    "nan",
    "inf",
    "-1",
    "1e309",
    "0",
    "none",
    "auto",
    "full",
    "1 us",
    "0 s",
    "-1 s",
    "1e-300 s",
    "1e300 GB/s",
    "0 B",
    "1 B",
    "80 GiB",
    "1e30 B/s",
    "400 Gb/s",
    "1 parsec",
    "1 TFLOP/s",
    "1e-30 FLOP/s",
    "2 USD/h",
    "../x",
    "/dev/null",
    ".",
    "a\x00b",
    "\u202e",
    "x" * 5000,
    "é",
    "%s{}",
    "gpt2-124m",
    "dgx-a100-hdr",
    "job.toml",
    "order.csv",
    "inf d",
    "9" * 400 + " s",
)
SHAPES: tuple[Any, ...] = ([], {}, [[]], [1, 2], ["a"], {"a": 1}, [{"a": 1}], [{}])
VALUES = st.one_of(
    st.sampled_from([*NUMBERS, *TEXTS, *SHAPES]),
    st.integers(-(10**6), 10**12),
    st.floats(),
    st.text(max_size=8).filter(lambda text: text.isprintable()),
)


def places(document: Any, before: Path_ = ()) -> Iterator[Path_]:
    """Every place of a document that has a value."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*before, key)
        if isinstance(value, dict | list):
            yield from places(value, (*before, key))


def put(document: Any, place: Path_, value: Any) -> None:
    """Set a value, or take it away where it is None."""
    *path, last = place
    for key in path:
        document = document[key]
    if value is None:
        del document[last]
    else:
        document[last] = value


@st.composite
def edited(draw: st.DrawFn, document: Document) -> Document:
    """A document with one value changed, renamed, left out or put where it does not belong."""
    document = copy.deepcopy(document)
    all_places = list(places(document))
    if not all_places:
        return document
    place = draw(st.sampled_from(all_places))
    kind = draw(st.sampled_from(["value"] * 7 + ["without", "scaled", "beside"]))
    old: Any = document
    for key in place:
        old = old[key]
    if kind == "without":
        put(document, place, None)
    elif kind == "scaled" and isinstance(old, int | float) and not isinstance(old, bool):
        factor = draw(st.sampled_from([0, -1, 2, 3, 10, 1000, 10**6, 10**12, 0.5, 1e-6]))
        put(document, place, type(old)(old * factor))
    elif kind == "beside" and isinstance(place[-1], str):
        name = draw(
            st.sampled_from([str(place[-1])[:-1] or "x", "like", "names", "kind", "change"])
        )
        put(document, (*place[:-1], name), draw(VALUES))
    else:
        put(document, place, draw(VALUES))
    return document


@st.composite
def spoiled(draw: st.DrawFn, text: bytes) -> bytes:
    """A text with a piece of it changed, doubled, cut or made into bytes that are no text."""
    at = draw(st.integers(0, max(len(text) - 1, 0)))
    long = draw(st.integers(0, 40))
    kind = draw(st.sampled_from(["cut", "other", "twice", "end", "nested", "cell"]))
    if kind == "cut":
        return text[:at] + text[at + long :]
    if kind == "twice":
        return text[:at] + text[at : at + long] * 3 + text[at + long :]
    if kind == "end":
        return text[:at]
    if kind == "nested":
        opening = draw(st.sampled_from([b"[", b"{", b'{"a":', b"a.", b"(", b"9"]))
        return text[:at] + opening * draw(st.sampled_from([2, 1000, 20_000])) + text[at:]
    if kind == "cell":
        words = [str(one).encode() for one in (*NUMBERS, *TEXTS)]
        cells = text.split(b",")
        cells[draw(st.integers(0, len(cells) - 1))] = draw(st.sampled_from(words))
        return b",".join(cells)
    return text[:at] + draw(st.binary(max_size=8)) + text[at + long :]


def written(document: Document) -> bytes:
    """As TOML; what TOML cannot say is not what a user writes."""
    return tomli_w.dumps(document).encode(errors="surrogatepass")


FORMS: dict[str, tuple[Callable[[str], Any], Callable[[Any], bytes]]] = {
    "toml": (catalog.tomllib.loads, written),
    "json": (json.loads, lambda document: json.dumps(document).encode()),
    "yaml": (yaml.safe_load, lambda document: yaml.safe_dump(document).encode()),
}


@st.composite
def settings_of(draw: st.DrawFn, base: Base) -> str:
    """A `--set` with a value that makes no sense, or one that does not belong there."""
    value = draw(VALUES)
    keys = [*base.keys, "plan", "change", "model", "a" + ".a" * 3000]
    return f"--set={draw(st.sampled_from(keys))}={written({'v': value}).decode()[4:].strip()}"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A base with one or two mistakes in it."""
    base = draw(st.sampled_from(BASES))
    files = dict(base.files())
    arguments = list(base.arguments)
    for _ in range(draw(st.integers(1, 2))):
        kind = draw(st.sampled_from(["document"] * 5 + ["bytes", "setting", "setting", "option"]))
        name = draw(st.sampled_from(sorted(files))) if files else ""
        form = FORMS.get(name.rpartition(".")[2])
        if kind == "document" and form is not None:
            read, write = form
            try:
                files[name] = write(draw(edited(read(files[name].decode()))))
            except (ValueError, TypeError, RecursionError, yaml.YAMLError):
                continue  # spoiled before
        elif kind in ("bytes", "document") and name:
            files[name] = draw(spoiled(files[name]))
        elif kind == "setting" and base.keys:
            arguments.append(draw(settings_of(base)))
        elif base.options:
            option = draw(st.sampled_from(base.options))
            value = draw(st.sampled_from([*NUMBERS, *TEXTS, HUGE]))
            arguments.append(f"{option}={value}")
    safe = tuple(text.replace("\x00", "").encode(errors="replace").decode() for text in arguments)
    return Case(arguments=safe, files=files)


def cases_of(number: int, count: int, play: Callable[[Case], None]) -> None:
    """Hand so many cases of a seed to `play`."""

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def plays(case: Case) -> None:
        play(case)

    plays()
