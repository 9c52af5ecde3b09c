"""Transformers from tables and files, and the kinds of their layers."""

import pytest

from sim.config.errors import InputError
from sim.model import counts
from sim.model.transformer import Transformer, from_columns, load, masked_predictions

ROW = {
    "id": "row-1",
    "family": "llama",
    "layers": "16",
    "hidden": "2048",
    "heads": "32",
    "kv_heads": "32",
    "ffn": "8192",
    "vocab": "131072",
    "seq": "4096",
    "gated_mlp": "true",
    "tied_embeddings": "true",
    "experts": "",
    "attention": "flash",
}


def test_a_table_row_becomes_the_model_it_measured() -> None:
    model = from_columns(ROW)
    matrices = 16 * (4 * 2048 * 2048 + 3 * 2048 * 8192) + 131072 * 2048
    assert counts.parameters(model) == matrices + (2 * 16 + 1) * 2048
    assert (model.positions, model.bias, model.dropout) == ("rotary", False, False)


def test_numbers_as_pandas_reads_them_are_accepted() -> None:
    read = ROW | {"layers": 16.0, "gated_mlp": True, "experts": float("nan")}
    assert from_columns(read) == from_columns(ROW)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"experts": "8"}, "mixture of experts"),
        ({"family": "resnet"}, "unknown family 'resnet'"),
        ({"heads": "33", "kv_heads": "33"}, "does not divide hidden"),
        ({"kv_heads": "5"}, "does not divide heads"),
        ({"layers": "two"}, "could not convert"),
    ],
)
def test_a_row_that_cannot_be_modelled_is_named(change: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=f"row-1.*{words}"):
        from_columns(ROW | change)


def test_bert_predicts_twenty_tokens_of_128_and_eighty_of_512() -> None:
    assert [masked_predictions(seq) for seq in (128, 512)] == [20, 80]


def test_a_model_file_with_a_wrong_shape_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    text = "layers = 2\nhidden = 10\nheads = 3\nffn = 40\nvocab = 100\nseq = 8\n"
    (tmp_path / "models" / "odd.toml").write_text(text)
    with pytest.raises(InputError, match="heads = 3 does not divide hidden = 10"):
        load("odd")


def shape(**changes: object) -> Transformer:
    usual = dict(layers=5, hidden=64, heads=4, ffn=256, vocab=100, seq=32)
    return Transformer(**(usual | changes))  # type: ignore[arg-type]


def test_a_pattern_is_repeated_until_all_layers_have_a_kind() -> None:
    assert shape().row == ("embedding", *["dense"] * 5, "head")
    mixed = shape(pattern="2 dense, sliding").kinds
    assert mixed == ("dense", "dense", "sliding", "dense", "dense")


@pytest.mark.parametrize("pattern", ["", "dense,", "0 dense", "dense 2", "two dense"])
def test_a_pattern_that_cannot_be_read_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match='write it like "3 dense, 58 expert"'):
        shape(pattern=pattern)
