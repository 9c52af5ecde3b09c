"""Parameters and model FLOPs against what was published."""

from dataclasses import replace

import pytest

from sim.config import catalog
from sim.model import counts
from sim.model.block import block
from sim.model.kernels import Attention
from sim.model.operators import kernels_of
from sim.model.reading import load
from sim.model.transformer import Transformer

PUBLISHED = {
    # Counts of the published checkpoints (Hugging Face hub, safetensors metadata).
    "qwen3-32b": 32_762_123_264,
    "nemotron-3-nano": 31_577_937_344,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "mixtral-8x22b": 140_630_071_296,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "mixtral-8x7b": 46_702_792_704,
    "gpt2-124m": 124_439_808,
    "gpt2-355m": 354_823_168,
    "gpt2-774m": 774_030_080,
    "gpt2-1.5b": 1_557_611_200,
    "bert-large": 336_226_108,
    "t5-11b": 11_307_321_344,
    "qwen2.5-7b": 7_615_616_512,
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
    # README_WEIGHTS.md of deepseek-ai/DeepSeek-V3: the checkpoint's 671,026,419,200 with a bias of
    # the router that no gradient trains, and 11.5 billion of the module that predicts further.
    "deepseek-v3": 671.03e9 + 11.5e9,
    # Safetensors metadata with such biases (Kimi Team 2025, table 2, prints 1.04 trillion).
    "kimi-k2": 1_026.4e9,
    # With a vision tower of 0.9 billion (safetensors metadata).
    "llama4-scout": 108.6e9,
    # Fedus et al. 2022, table 9; Parmar et al. 2024 and NVIDIA 2024, table 2.
    "switch-xxl": 395e9,
    "nemotron4-15b": 3.2e9 + 12.5e9,
    "nemotron4-340b": 9.4e9 + 331.6e9,
    # nanoGPT's train.py prints 10.65M (without positions); Turc et al. 2019, table 1.
    "gpt-small": 10.65e6 + 256 * 384,
    "bert-small": 28.8e6,
}
ROUNDED = {
    "megatron-1.7b": 1.7, "megatron-3.6b": 3.6, "megatron-7.5b": 7.5,
    # Liu et al. 2025, model card; Fedus et al. 2022, table 9.
    "moonlight-16b-a3b": 16, "switch-base": 7,
}  # fmt: skip
# Billions that a token meets, of which the source counts so many of the two matrices of words.
ACTIVE = {
    "mixtral-8x7b": (12.9, 2),  # Jiang et al. 2024, section 2
    "mixtral-8x22b": (39, 2),  # mistral.ai/news/mixtral-8x22b
    "deepseek-v2-lite": (2.4, 1),  # DeepSeek-AI 2024, arXiv 2405.04434, appendix B
    "deepseek-v2": (21, 2),  # the same, section 3.1.2
    "deepseek-v3": (37, 1),  # arXiv 2412.19437, section 4.2, without multi-token prediction
    "kimi-k2": (32.6, 2),  # Kimi Team 2025, table 2
    "moonlight-16b-a3b": (2.24, 0),  # model card
    "qwen3-30b-a3b": (3.3, 2),  # model cards
    "qwen3-235b-a22b": (22, 2),
    "gpt-oss-120b": (5.13, 1),  # OpenAI 2025, table 1
    "gpt-oss-20b": (3.61, 1),
    "llama4-scout": (17, 2),  # model card
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters_equal_the_published_count_within_one_percent(name: str, count: float) -> None:
    assert counts.parameters(load(name)) == pytest.approx(count, rel=0.01)


@pytest.mark.parametrize(("name", "billions"), ROUNDED.items())
def test_small_counts_round_to_their_printed_digits(name: str, billions: float) -> None:
    digits = 1 if isinstance(billions, float) else 0
    assert round(counts.parameters(load(name)) / 1e9, digits) == billions


@pytest.mark.parametrize(("name", "published"), ACTIVE.items())
def test_a_token_meets_the_published_number_of_parameters(
    name: str, published: tuple[float, int]
) -> None:
    billions, counted = published
    model = replace(load(name), mtp=0)
    met = counts.active_parameters(model) - (2 - counted) * model.vocab * model.hidden
    # Sources print two digits.
    assert met / 1e9 == pytest.approx(billions, rel=0.025)


def test_a_token_meets_all_of_a_dense_model() -> None:
    gpt = load("gpt3-175b")
    assert counts.active_parameters(gpt) == counts.parameters(gpt)


def test_gshard_has_the_experts_of_its_eighteen_layers() -> None:
    # Lepikhin et al. 2020, table 1, rounds "600B" and takes one layer without experts more.
    experts = 18 * 2048 * 2 * 1024 * 8192
    assert counts.parameters(load("gshard-600b")) == pytest.approx(experts, rel=0.01)


@pytest.mark.parametrize("name", sorted(ACTIVE))
def test_products_of_a_token_are_those_of_the_parameters_that_it_meets(name: str) -> None:
    # Without attention, norms and biases, 6 N FLOPs a token (Kaplan et al. 2020, section 2.1).
    model = replace(load(name), mtp=0)
    run = counts.whole(model, 1)
    core = sum(
        3 * kernel.full_flops
        for kind in model.kinds
        for kernel in kernels_of(block(kind, run).forward)
        if isinstance(kernel, Attention)
    )
    met = counts.active_parameters(model) - model.vocab * model.hidden
    products = (counts.model_flops(model, 1) - core) / model.seq
    # An even load is rounded up to whole tokens: 86 of 85.3 for each expert of Kimi K2.
    assert products == pytest.approx(6 * met, rel=6e-3)


def test_checkpoints_are_met_to_the_last_parameter() -> None:
    exact = {name: count for name, count in PUBLISHED.items() if isinstance(count, int)}
    assert {name: counts.parameters(load(name)) for name in exact} == exact


def test_every_packaged_model_has_a_published_count() -> None:
    folder = catalog.packaged_root() / "models"
    documents = {path.stem: catalog.document("models", path) for path in folder.glob("*.toml")}
    transformers = {name for name, document in documents.items() if "kind" not in document}
    stand_ins = {"gshard-600b"}
    assert transformers == PUBLISHED.keys() | ROUNDED.keys() | stand_ins


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
    tiny = Transformer(tied_embeddings=True, layers=1, hidden=4, heads=2, ffn=8, vocab=10, seq=3)
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


def test_model_flops_are_of_tokens_that_are_computed_whatever_slots_experts_have() -> None:
    """A slot that no token fills is executed and is no work of the model."""
    mixtral = load("mixtral-8x7b")

    def flops(**experts: object) -> float:
        blocks = {**mixtral.blocks, "experts": {**mixtral.blocks["experts"], **experts}}
        return counts.model_flops(replace(mixtral, blocks=blocks), 2)

    dropless, skewed = flops(), {"routing": {"law": "zipf"}}
    assert flops(capacity=4.0) == flops(capacity=1.25) == dropless
    assert flops(**skewed) == flops(**skewed, capacity=8.0) == dropless
    assert flops(**skewed, capacity=1.0) < dropless
