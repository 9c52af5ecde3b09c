"""Models from the columns of tables."""

import pytest

from sim.config.errors import InputError
from sim.model import counts
from sim.model.columns import from_columns, masked_predictions

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
        ({"model": "llama3-8b"}, "hidden = 2048, but the file of its model says 4096"),
        ({"mla": "q1 kv2"}, "mla = 'q1 kv2'; write it like"),
        ({"sliding_window": "128"}, "no column says in which layers; describe the model"),
        ({"experts": "8", "top_k": "2", "dense_layers": "16"}, "16 of 16 layers leaves none"),
        ({"family": "resnet"}, "unknown family 'resnet'"),
        ({"heads": "33", "kv_heads": "33"}, "does not divide hidden"),
        ({"kv_heads": "5"}, "does not divide heads"),
        ({"layers": "two"}, "layers = .two. is not a whole number"),
        ({"family": "moe"}, "family = moe without experts; fill in experts"),
    ],
)
def test_a_row_that_cannot_be_modelled_is_named(change: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=f"row-1.*{words}"):
        from_columns(ROW | change)


def test_bert_predicts_twenty_tokens_of_128_and_eighty_of_512() -> None:
    assert [masked_predictions(seq) for seq in (128, 512)] == [20, 80]


V3 = ROW | {
    "family": "moe", "model": "deepseek-v3", "layers": 4, "hidden": 7168, "heads": 128,
    "kv_heads": 128, "ffn": 18432, "vocab": 129280, "tied_embeddings": "false", "experts": 256,
    "top_k": 8, "expert_ffn": 2048, "shared_experts": 1, "dense_layers": 1, "head_dim": 192,
    "mla": "q1536 kv512 nope128 rope64 v128",
}  # fmt: skip


def test_a_model_cut_short_keeps_what_no_column_says() -> None:
    model = from_columns(V3)
    assert model.kinds == ("dense", "experts", "experts", "experts")
    assert model.entry("experts")["groups"] == 8
    assert (model.mtp, from_columns(V3 | {"mtp": 1}).mtp) == (0, 1)


def test_columns_alone_describe_latent_attention_and_experts() -> None:
    named, own = from_columns(V3), from_columns(V3 | {"model": ""})
    assert counts.parameters(own) == counts.parameters(named)
    assert counts.model_flops(own, 1) == counts.model_flops(named, 1)


def test_a_column_that_contradicts_the_model_s_file_is_named() -> None:
    with pytest.raises(InputError, match=r"row-1.*experts.top_k = 4, but .* says 8"):
        from_columns(V3 | {"top_k": 4})


def test_tokens_are_dropped_where_the_row_says_so() -> None:
    assert from_columns(V3 | {"moe_tokens": "drop"}).entry("experts")["capacity"] == 1.0
    assert "capacity" not in from_columns(V3 | {"moe_tokens": "dropless balanced"}).entry("experts")


def test_windows_are_those_of_the_model_s_file() -> None:
    oss = V3 | {
        "model": "gpt-oss-120b", "layers": 4, "hidden": 2880, "heads": 64, "kv_heads": 8,
        "ffn": 2880, "vocab": 201088, "experts": 128, "top_k": 4, "expert_ffn": 2880,
        "shared_experts": 0, "dense_layers": 0, "head_dim": 64, "mla": "",
        "sliding_window": "128 in every other layer",
    }  # fmt: skip
    model = from_columns(oss)
    assert model.kinds == ("sliding", "experts", "sliding", "experts")
    assert model.entry("sliding")["window"] == 128
