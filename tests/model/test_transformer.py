"""Transformers from files, and the kinds of their layers."""

import pytest

from sim.config.errors import InputError
from sim.model.counts import parameters
from sim.model.reading import load
from tests.model.small import small


def test_a_model_file_with_a_wrong_shape_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    text = "layers = 2\nhidden = 10\nheads = 3\nffn = 40\nvocab = 100\nseq = 8\n"
    text += "tied_embeddings = true\n"
    (tmp_path / "models" / "odd.toml").write_text(text)
    with pytest.raises(InputError, match="heads = 3 does not divide hidden = 10"):
        load("odd")


def test_a_pattern_is_repeated_until_all_layers_have_a_kind() -> None:
    assert small(layers=5).row == ("embedding", *["dense"] * 5, "head")
    mixed = small(layers=5, pattern="2 dense, sliding").kinds
    assert mixed == ("dense", "dense", "sliding", "dense", "dense")


@pytest.mark.parametrize("pattern", ["", "dense,", "0 dense", "dense 2", "two dense"])
def test_a_pattern_that_cannot_be_read_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match='write it like "3 dense, 58 experts"'):
        small(layers=5, pattern=pattern)


@pytest.mark.parametrize(("name", "tensors"), [("gpt3-175b", 12), ("llama3-8b", 7)])
def test_a_layer_has_a_tensor_for_each_matrix_norm_and_bias(name: str, tensors: int) -> None:
    """QKV, output, FFN in and out, the gate of SwiGLU, two norms; each with a bias in GPT-3."""
    assert load(name).tensors_of_a_layer == tensors


def test_a_norm_behind_the_embedding_has_a_gain_and_a_shift() -> None:
    plain, normed = small(), small(embedding_norm=True)
    assert parameters(normed) - parameters(plain) == 2 * normed.hidden
