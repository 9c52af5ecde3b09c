"""Parameters and model FLOPs against what was published."""

import pytest

from sim.config import catalog
from sim.model import counts
from sim.model.transformer import Transformer, load

PUBLISHED = {
    # Counts of the published checkpoints (Hugging Face hub, safetensors metadata).
    "mixtral-8x7b": 46_702_792_704,
    "gpt2-124m": 124_439_808,
    "gpt2-355m": 354_823_168,
    "gpt2-774m": 774_030_080,
    "gpt2-1.5b": 1_557_611_200,
    "bert-large": 336_226_108,
    "llama2-7b": 6_738_415_616,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    # Narayanan et al. 2021, table 1 (billions).
    "megatron-18b": 18.4e9,
    "megatron-39b": 39.1e9,
    "megatron-76b": 76.1e9,
    "megatron-145b": 145.6e9,
    "megatron-310b": 310.1e9,
    "megatron-530b": 529.6e9,
    "megatron-1t": 1008.0e9,
    # Korthikanti et al. 2022, table 3; Smith et al. 2022.
    "megatron-22b": 22e9,
    "gpt3-175b": 175e9,
    "mtnlg-530b": 530e9,
    # nanoGPT's train.py prints 10.65M (without positions); Turc et al. 2019, table 1.
    "gpt-small": 10.65e6 + 256 * 384,
    "bert-small": 28.8e6,
}
ROUNDED = {"megatron-1.7b": 1.7, "megatron-3.6b": 3.6, "megatron-7.5b": 7.5}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters_equal_the_published_count_within_one_percent(name: str, count: float) -> None:
    assert counts.parameters(load(name)) == pytest.approx(count, rel=0.01)


@pytest.mark.parametrize(("name", "billions"), ROUNDED.items())
def test_small_megatron_models_round_to_their_two_printed_digits(
    name: str, billions: float
) -> None:
    assert round(counts.parameters(load(name)) / 1e9, 1) == billions


def test_checkpoints_are_met_to_the_last_parameter() -> None:
    exact = {name: count for name, count in PUBLISHED.items() if isinstance(count, int)}
    assert {name: counts.parameters(load(name)) for name in exact} == exact


def test_every_packaged_model_has_a_published_count() -> None:
    folder = catalog.packaged_root() / "models"
    transformers = {path.stem for path in folder.glob("*.toml") if "kind" not in catalog.read(path)}
    assert transformers == PUBLISHED.keys() | ROUNDED.keys()


def test_megatron_parameters_follow_equation_2_of_narayanan() -> None:
    gpt = load("megatron-145b")
    l, h, s, v = gpt.layers, gpt.hidden, gpt.seq, gpt.vocab  # noqa: E741 - the paper's letters
    formula = 12 * l * h * h * (1 + 13 / (12 * h) + (v + s) / (12 * l * h))
    # The formula leaves out the final normalisation.
    assert counts.parameters(gpt) - 2 * h == pytest.approx(formula, rel=1e-12)


def test_recomputed_gpt3_flops_follow_equation_3_of_narayanan() -> None:
    gpt = load("gpt3-175b")
    l, h, s, v = gpt.layers, gpt.hidden, gpt.seq, gpt.vocab  # noqa: E741 - the paper's letters
    formula = 96 * 64 * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h))
    layers = counts.model_flops(gpt, 64) - 6 * 64 * s * h * v
    assert counts.model_flops(gpt, 64) + layers / 3 == pytest.approx(formula, rel=1e-12)


def test_tiny_model_is_countable_by_hand() -> None:
    tiny = Transformer(layers=1, hidden=4, heads=2, ffn=8, vocab=10, seq=3)
    attention = 4 * 12 + 12 + 4 * 4 + 4
    mlp = 4 * 8 + 8 + 8 * 4 + 4
    assert counts.parameters(tiny) == attention + mlp + 2 * 8 + 10 * 4 + 3 * 4 + 8
    # Per token: 48 + 16 + 64 elements of matrices and 40 of logits; scores 4 s h per token.
    assert counts.model_flops(tiny, 1) == 3 * (3 * 2 * (48 + 16 + 64 + 40) + 4 * 3 * 3 * 4)


def test_bert_pays_for_logits_of_masked_tokens_only() -> None:
    bert = load("bert-large")
    layers = 3 * bert.layers * (2 * 512 * counts.weights(bert, "dense") + 4 * 512 * 512 * 1024)
    logits = 6 * 80 * 1024 * 30522
    assert layers + logits < counts.model_flops(bert, 1) < (layers + logits) * 1.002
