"""Variants of kinds: layers of one model that are not all alike."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from sim.config.errors import InputError
from sim.model import block as blocks
from sim.model import counts, kinds
from sim.model.reading import load
from sim.model.transformer import Transformer
from tests.model.small import small


def shape(pattern: str, **entries: dict[str, Any]) -> Transformer:
    return small(layers=4, pattern=pattern, blocks=entries)


def count(kind: str, model: Transformer) -> float:
    return blocks.block(kind, counts.whole(model, 1)).count


def test_an_entry_overrides_the_shape_for_its_layers_only() -> None:
    model = shape("dense, wide", wide={"kind": "dense", "ffn": 1024})
    assert model.kinds == ("dense", "wide", "dense", "wide")
    assert count("wide", model) - count("dense", model) == 2 * 64 * 768 + 768
    assert counts.parameters(model) - counts.parameters(shape("dense")) == 2 * (129 * 768)


def test_an_entry_may_build_on_another() -> None:
    base = {"kind": "dense", "ffn": 1024, "bias": False}
    model = shape("base, narrow", base=base, narrow={"kind": "base", "ffn": 512})
    assert model.entry("narrow") == {"kind": "dense", "ffn": 512, "bias": False}
    assert count("base", model) - count("narrow", model) == 2 * 64 * 512


def test_an_entry_named_like_its_kind_changes_all_layers_of_that_kind() -> None:
    assert count("dense", shape("dense", dense={"ffn": 512})) > count("dense", shape("dense"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Width:
    factor: int = 1


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A kind of its own, "scaled"; what its layers were told."""
    told: list[Any] = []
    module = ModuleType("scaled")
    vars(module)["SETTINGS"] = Width
    vars(module)["operators"] = lambda run: told.append((run.block, run.layer)) or _dense(run)
    known = dict(kinds.kinds()) | {"scaled": module}
    monkeypatch.setattr(kinds, "kinds", lambda: known)
    return told


def _dense(run: Any) -> Any:
    return kinds.kinds()["dense"].operators(run)


def test_the_settings_of_a_kind_reach_its_layers_and_numbers_where_asked(seen: list[Any]) -> None:
    model = shape("dense, scaled", scaled={"factor": 3, "numbered": True})
    assert model.kinds == ("dense", "scaled:1", "dense", "scaled:3")
    kinds.check_layers(model)
    for kind in model.kinds:
        blocks.block(kind, counts.whole(model, 1))
    assert seen == [(Width(factor=3), 1), (Width(factor=3), 3)]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"factr": 3}, "blocks.scaled: unknown key 'factr'.*did you mean 'factor'"),
        ({"factor": "3"}, 'factor = "3" is not a whole number'),
        ({"numbered": 1}, "numbered = 1 is not true or false"),
        ({"vocab": 5}, "unknown key 'vocab'"),
        ({"heads": 3}, "kv_heads = 4 does not divide heads = 3"),
    ],
)
def test_a_wrong_key_of_an_entry_is_named(
    seen: list[Any], entry: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        kinds.check_layers(shape("scaled", scaled=entry))


@pytest.mark.parametrize(
    ("pattern", "entries", "words"),
    [
        ("dense", {"slidng": {"kind": "dense"}}, 'no layer; name it in .* pattern = "slidng"'),
        ("2 dense, a", {"a": {}, "b": {"kind": "dense"}}, 'no layer; .* pattern = "2 dense, a, b"'),
        ("mine", {"mine": {"kind": "embedding"}}, "'mine' is no layer between"),
        ("dense", {"head": {"kind": "dense"}}, "blocks.head cannot be a layer"),
        ("mine", {"mine": {"kind": "dens"}}, "block is named 'dens'.*did you mean 'dense'"),
    ],
)
def test_an_entry_that_cannot_be_is_named(
    pattern: str, entries: dict[str, dict[str, Any]], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        kinds.check_layers(shape(pattern, **entries))


def test_kinds_that_lead_back_to_themselves_are_refused() -> None:
    with pytest.raises(ValueError, match="leads back to itself"):
        shape("a", a={"kind": "b"}, b={"kind": "a"})


def test_published_models_without_variants_know_nothing_of_them() -> None:
    run = counts.whole(load("gpt2-124m"), 1)
    assert kinds.specialised("dense", run)[1] is run
