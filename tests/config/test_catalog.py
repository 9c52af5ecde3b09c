"""The catalog finds named files, the user's first; validation takes plain data or says why not."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from sim.config import catalog
from sim.config.errors import InputError
from sim.config.near import nearest
from sim.config.schema import validate
from sim.config.units import Seconds
from sim.hardware.cluster.topology import load as load_topology
from sim.hardware.device import Device
from sim.hardware.stack import Stack
from sim.model import reading
from sim.model.counts import parameters
from sim.model.transformer import Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    spokes: int
    size: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cart:
    name: str = "cart"
    wheels: tuple[Wheel, ...] = ()
    spare: Wheel | None = None
    horses: int | None = None
    covered: bool = False
    wood: Literal["oak", "ash"] = "oak"
    brake: Seconds = 0.1
    loads: tuple[int, ...] = ()
    prices: dict[str, float] = field(default_factory=dict)


# The catalog.


def test_a_file_of_the_users_own_wins_over_the_packaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = catalog.find("models", "gpt3-175b").read_text()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "gpt3-175b.toml").write_text(packaged.replace("= 96 ", "= 48 "))
    monkeypatch.chdir(tmp_path)
    assert catalog.load("models", "gpt3-175b", Transformer).layers == 48
    assert catalog.load("models", "gpt2-124m", Transformer).layers == 12


def test_names_are_those_of_both_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    names = catalog.names("models")
    assert names == sorted(names)
    assert {"mine", "gpt3-175b", "llama3-405b"} <= set(names)


def test_a_path_names_a_file_anywhere(tmp_path: Path) -> None:
    (tmp_path / "cart.toml").write_text("horses = 2")
    path = str(tmp_path / "cart.toml")
    assert catalog.find("models", path) == Path(path)
    assert catalog.load("models", path, Cart) == Cart(horses=2)


def test_json_that_is_a_list_is_not_called_invalid(tmp_path: Path) -> None:
    (tmp_path / "listed.json").write_text("[]")
    with pytest.raises(InputError, match="has no keys and values; take a file that begins with"):
        catalog.read(tmp_path / "listed.json")


def test_a_name_that_is_nearly_known_is_answered_with_the_known_one() -> None:
    with pytest.raises(InputError, match="did you mean 'llama3-405b'"):
        catalog.find("models", "llama-405b")


def test_a_name_that_is_nothing_like_any_points_to_the_list() -> None:
    with pytest.raises(InputError, match="`sim list` shows every stack"):
        catalog.find("topologies/stacks", "qqqq")


# Validation.


def test_plain_data_becomes_the_dataclass_that_it_describes() -> None:
    data = {
        "wheels": [{"spokes": 8}, {"spokes": 12, "size": 2}],
        "spare": {"spokes": 3},
        "covered": True,
        "wood": "ash",
        "brake": "200 ms",
        "loads": [1, 2],
        "prices": {"hay": 3},
    }
    assert validate(data, Cart, "cart.toml") == Cart(
        wheels=(Wheel(spokes=8), Wheel(spokes=12, size=2.0)),
        spare=Wheel(spokes=3),
        covered=True,
        wood="ash",
        brake=0.2,
        loads=(1, 2),
        prices={"hay": 3.0},
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"hoses": 2}, "cart.toml: unknown key 'hoses'; did you mean 'horses'?"),
        ({"wheels": [{"spoke": 2}]}, "cart.toml, wheels.0: unknown key 'spoke'; did you mean"),
        ({"spare": {"spoke": 2}}, "cart.toml, spare: unknown key 'spoke'; did you mean"),
        ({"wheels": [{}]}, "cart.toml, wheels.0: spokes is missing; add spokes = ..."),
        ({"horses": "2"}, 'cart.toml: horses = "2" is not a whole number; write horses = 2'),
        ({"horses": 2.0}, "horses = 2.0 is not a whole number"),
        ({"horses": True}, "horses = true is not a whole number"),
        ({"covered": 1}, "covered = 1 is not true or false; write covered = true"),
        ({"covered": "yes"}, 'covered = "yes" is not true or false'),
        ({"name": 3}, 'name = 3 is not a text; write name = "..."'),
        ({"loads": [1, "2"]}, 'loads = "2" is not a whole number'),
        ({"loads": 1}, "loads"),
        (
            {"prices": {"hay": "3"}},
            'cart.toml, prices: hay = "3" is not a number; write hay = 3',
        ),
        (
            {"spare": {"spokes": 3, "size": float("nan")}},
            "spare: size = nan is not a finite number",
        ),
        ({"wood": "aash"}, "did you mean 'ash'?"),
        ({"wood": "teak"}, "known: oak, ash"),
        ({"brake": 0.2}, "0.2 has no unit; write it like '2 us'"),
        ({"wheels": {"spokes": 3}}, "wheels"),
        ([], "cart.toml"),
    ],
)
def test_validation_refuses_what_it_would_have_to_guess(data: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        validate(data, Cart, "cart.toml")
    assert said in str(caught.value)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


def test_an_object_that_is_made_already_passes() -> None:
    wheel = Wheel(spokes=3)
    assert validate({"spare": wheel}, Cart, "cart.toml").spare is wheel


def test_the_nearest_word_comes_first_and_all_words_where_none_is_near() -> None:
    assert nearest("interleavd", ["1f1b", "interleaved"]) == "did you mean 'interleaved'?"
    assert nearest("?", ["oak", "ash"]) == "known: oak, ash"


# What is packaged.


@pytest.mark.parametrize("name", catalog.names("models"))
def test_every_model_loads(name: str) -> None:
    assert parameters(reading.load(name)) > 0


@pytest.mark.parametrize("name", catalog.names("topologies"))
def test_every_topology_loads(name: str) -> None:
    assert load_topology(name).gpus > 0


@pytest.mark.parametrize("name", catalog.names("topologies/devices"))
def test_every_device_loads(name: str) -> None:
    assert catalog.load("topologies/devices", name, Device).usable_memory > 0


@pytest.mark.parametrize("name", catalog.names("topologies/stacks"))
def test_every_stack_loads(name: str) -> None:
    assert catalog.load("topologies/stacks", name, Stack).name


def numbers_without_a_word(path: Path) -> list[str]:
    """Lines that state a number with neither a comment behind nor one in the lines before."""
    bare, explained = [], False
    for line in path.read_text().splitlines():
        key, equals, value = line.partition("=")
        if line.startswith("#"):
            explained = True
        elif not equals or line.startswith(" "):
            explained = explained and bool(line.strip()) and not line.startswith("[")
        elif re.match(r'\s*[\["{]*-?\d', value) and not explained:
            bare += [key.strip()] if "#" not in value else []
        else:
            explained = False
    return bare


@pytest.mark.parametrize("folder", ["models", "scenarios"])
def test_every_number_has_its_source_in_a_comment(folder: str) -> None:
    files = sorted((catalog.packaged_root() / folder).glob("*.toml"))
    assert files
    bare = {path.name: numbers_without_a_word(path) for path in files}
    assert {name: keys for name, keys in bare.items() if keys} == {}


# Files that stand for several names, or say only what is different.


def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    (tmp_path / "carts").mkdir()
    for name, text in files.items():
        (tmp_path / "carts" / f"{name}.toml").write_text(text)
    monkeypatch.chdir(tmp_path)


def test_a_pattern_stands_for_several_names_and_the_exact_name_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _folder(tmp_path, monkeypatch, hay='names = ["hay-*"]\nhorses = 1', **{"hay-2": "horses = 2"})
    assert catalog.load("carts", "hay-1", Cart).horses == 1
    assert catalog.load("carts", "hay-2", Cart).horses == 2


def test_two_patterns_that_match_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _folder(tmp_path, monkeypatch, a='names = ["hay-*"]', b='names = ["*-1"]')
    with pytest.raises(InputError, match=r"a\.toml and b\.toml both stand for 'hay-1'"):
        catalog.find("carts", "hay-1")


def test_a_file_like_another_states_what_is_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = 'names = ["hay-*"]\nhorses = 1\n[spare]\nspokes = 3\nsize = 2'
    _folder(tmp_path, monkeypatch, old=old, new='like = "old"\n[spare]\nspokes = 4')
    assert catalog.load("carts", "new", Cart) == Cart(horses=1, spare=Wheel(spokes=4, size=2))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('like = "none"', "carts/mine.toml, like: no file named 'none'"),
        ('like = "mine"', "carts/mine.toml: like = 'mine' leads in a circle"),
        ("like = 1", "carts/mine.toml: like is not a text"),
        ('names = "mine-*"', "carts/mine.toml: names is not a list of texts"),
    ],
)
def test_bad_names_and_likes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    _folder(tmp_path, monkeypatch, mine=text)
    with pytest.raises(InputError, match=said):
        catalog.load("carts", "other" if "names" in text else "mine", Cart)


def test_a_file_that_lies_here_is_named_with_its_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text("")
    with pytest.raises(InputError, match=r"give the file with its ending: mine\.toml"):
        catalog.find("topologies", "mine")
