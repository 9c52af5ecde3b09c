"""Configs of Hugging Face checkpoints: the models that they stand for, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.config.errors import InputError
from sim.interface.document.terminal import text
from sim.interface.views.model import view
from sim.model.counts import active_parameters, model_flops, parameters, whole
from sim.model.execution import Execution, Sharding
from sim.model.hugging_face.document import document
from sim.model.hugging_face.layers import pattern
from sim.model.kernels import Gemm
from sim.model.kinds import specialised
from sim.model.operators import Operator, kernels_of
from sim.model.reading import load, model_of

# Configs, their architectures and numbers of trained parameters: transformers 5.24.0 on the meta
# device; it builds from `built` a type that it does not know, and the text of one that sees images.
CASES: dict[str, Any] = json.loads(Path(__file__).with_name("hugging_face.json").read_text())

ALONE = ("mamba-2.8b", "mamba2-2.7b")  # without attention
STATES = ("bamba", "falcon_h1", "granitemoehybrid", "jamba", "mamba", "mamba2", "minimax",
          "nemotron_h", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")  # fmt: skip


def described(config: dict[str, Any]) -> dict[str, Any]:
    return document(config, "config.json")


@pytest.mark.parametrize("name", CASES)
def test_a_config_has_the_parameters_that_transformers_counts(name: str) -> None:
    case = CASES[name]
    assert parameters(model_of(described(case["config"]), name)) == case["parameters"]


@pytest.mark.parametrize("name", CASES)
def test_a_config_is_shown_with_what_it_takes(name: str) -> None:
    model = model_of(described(CASES[name]["config"]), name)
    shown = text(view(model, name)).splitlines()
    heads = [line.split("  ")[1] for line in shown if line.startswith("  ") and line[2] != " "]
    kept = [head for head in heads if head in ("keys and values", "states")]
    assert heads == ["parameters", "FLOPs", *kept, "activations"]
    assert ("states" in kept) == (CASES[name]["config"]["model_type"] in STATES)
    assert ("keys and values" in kept) == (name not in ALONE)
    active = active_parameters(model)
    assert ("a token" in shown[1]) == (active != CASES[name]["parameters"])
    assert 0 < active <= CASES[name]["parameters"]


@pytest.mark.parametrize("name", CASES)
def test_transformers_still_counts_as_recorded(name: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    case = CASES[name]
    config = transformers.AutoConfig.for_model(**case.get("built", case["config"]))
    with torch.device("meta"):
        built = getattr(transformers, case["architecture"])(config)
    trained = sum(weight.numel() for weight in built.parameters() if weight.requires_grad)
    assert trained == case["parameters"]


# The packaged file of the same model, in the keys that its layers' time and memory come from.
@pytest.mark.parametrize(
    ("case", "packaged"),
    [("deepseek-v3", "deepseek-v3"), ("gpt-oss-120b", "gpt-oss-120b"), ("gpt2", "gpt2-124m")],
)
def test_a_config_is_the_packaged_model(case: str, packaged: str) -> None:
    ours, theirs = load(packaged), model_of(described(CASES[case]["config"]), case)
    sizes = ("layers", "hidden", "heads", "kv_heads", "head", "value_head", "latent")
    for key in (*sizes, "sinks", "glu_limit"):
        assert getattr(theirs, key) == getattr(ours, key), key
    assert len(set(theirs.kinds)) == len(set(ours.kinds))


def test_layers_slide_where_the_config_says_so() -> None:
    gemma = model_of(described(CASES["gemma-3"]["config"]), "gemma")
    assert gemma.pattern == "5 sliding_dense, dense"
    assert gemma.entry("sliding_dense")["window"] == CASES["gemma-3"]["config"]["sliding_window"]


@pytest.mark.parametrize(
    ("case", "pattern", "entry", "keys"),
    [
        ("llama4-scout", "3 chunked_experts, unrotated_experts", "unrotated_experts",
         {"positions": "none", "qk_norm": "none"}),
        ("llama4-maverick", "chunked_dense, chunked_experts, chunked_dense, unrotated_experts",
         "chunked_dense", {"chunk": 8192}),
        ("cohere2", "3 sliding_parallel, unrotated_parallel", "sliding_parallel",
         {"window": 4096}),
        ("smollm3", "3 dense, unrotated_dense", "unrotated_dense", {"positions": "none"}),
        ("exaone4", "3 sliding_dense, unrotated_dense", "sliding_dense", {"window": 4096}),
        ("gpt-neo-1.3b", "dense, sliding_dense", "sliding_dense", {"window": 256}),
        ("gemma-3-4b", "5 sliding_dense, dense", "sliding_dense", {"window": 1024}),
        ("modernbert-base", "dense, 2 sliding_dense", "sliding_dense", {"window": 129}),
    ],
)  # fmt: skip
def test_layers_differ_where_the_config_says_so(
    case: str, pattern: str, entry: str, keys: dict[str, Any]
) -> None:
    model = model_of(described(CASES[case]["config"]), case)
    assert model.pattern == pattern
    assert keys.items() <= model.entry(entry).items()


def test_llama_4_is_the_packaged_one() -> None:
    ours, theirs = load("llama4-scout"), model_of(described(CASES["llama4-scout"]["config"]), "")
    assert parameters(theirs) == parameters(ours)
    assert model_flops(replace(theirs, seq=ours.seq), 1) == model_flops(ours, 1)


def test_a_file_may_be_like_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CASES["qwen2.5-7b"]["config"]))
    (tmp_path / "mine.toml").write_text('like = "config.json"\nseq = 2048\nlayers = 2\n')
    model = load("mine.toml")
    assert (model.seq, model.layers, model.hidden) == (2048, 2, 3584)


def test_norms_lie_where_their_family_has_them() -> None:
    for case, names in (
        ("olmo2", ["q norm", "k norm", "attention output norm", "ffn output norm"]),
        ("glm4", ["attention norm", "attention output norm", "ffn norm", "ffn output norm"]),
        ("cohere", ["attention norm"]),
    ):
        model = model_of(described(CASES[case]["config"]), case)
        operators = operators_of(model.kinds[0], whole(model, 1))
        found = [one.name.replace(" rms", "") for one in operators if one.name.endswith("norm")]
        assert found == names, case


def test_norms_of_all_heads_are_not_divided() -> None:
    model = model_of(described(CASES["olmo2"]["config"]), "olmo2")
    run = replace(whole(model, 1), sharding=Sharding(tp=2))
    with pytest.raises(InputError, match="tp = 2: norms over the heads of all ranks"):
        operators_of("dense", run)


def operators_of(kind: str, run: Execution) -> tuple[Operator, ...]:
    module, own = specialised(kind, run)
    found: tuple[Operator, ...] = module.operators(own)
    return found


def test_a_pattern_is_its_shortest_period() -> None:
    assert pattern(["a"] * 7) == "a"
    assert pattern(["a", "b"] * 3) == "a, b"
    assert pattern(["a", "b", "a"]) == "a, b"
    assert pattern([*"aaabbbb"]) == "3 a, 4 b"


def test_what_is_not_modelled_is_said() -> None:
    config = CASES["llama"]["config"]
    assert described(config)["notes"] == []
    assert described(config | {"use_cache": False, "rms_norm_eps": 1e-5})["notes"] == []
    (note,) = described(config | {"wild_idea": 3})["notes"]
    assert note == "config.json: wild_idea = 3 is not modelled"
    (note,) = described(config | {"max_position_embeddings": 131072})["notes"]
    assert "131,072 tokens; 4,096 are assumed unless model.seq or --seq differs" in note


@pytest.mark.parametrize(
    ("case", "changes", "words"),
    [
        ("llama", {"model_type": "mamba3"}, "model_type = 'mamba3' is not known"),
        ("llama", {"model_type": "lama"}, "did you mean 'llama'"),
        ("llama", {"hidden_size": None}, "hidden_size is missing in this llama config"),
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before = False is not modelled"),
        ("opt", {"word_embed_proj_dim": 512}, "word_embed_proj_dim = 512 is not modelled"),
        ("deepseek-v3", {"attention_bias": True}, "attention_bias = True is not modelled"),
        ("gemma-3", {"layer_types": ["full_attention"]}, "has 1 values for 26 layers"),
        ("bert", {"architectures": ["BertModel"]}, "this head is not modelled"),
        ("llama", {"model_type": "zamba2"}, "'zamba2' has an attention layer whose weights"),
        ("llama", {"model_type": "kimi_linear"}, "'kimi_linear' has linear attention of another"),
        ("modernbert-base", {"norm_bias": True}, "norm_bias = True is not modelled"),
        ("whisper-large-v3", {"decoder_ffn_dim": 4096}, "decoder_ffn_dim = 4096 is not modelled"),
        ("wav2vec2-base", {"architectures": ["Wav2Vec2ForPreTraining"]}, "this head is not"),
        ("wav2vec2-base", {"add_adapter": True}, "add_adapter = True is not modelled"),
        ("wav2vec2-base", {"feat_extract_norm": "batch"}, "feat_extract_norm = 'batch' is not"),
        ("nemotron-h-8b", {"hybrid_override_pattern": "M-X"}, "layers of 'X' are not modelled"),
        ("llama", {"model_type": "gemma3n_text"}, "'gemma3n_text' has embeddings in each layer"),
        ("llama", {"model_type": "mllama"}, "'mllama' has attention to images in some layers"),
        ("t5-small", {"model_type": "umt5"}, "'umt5' has relative positions of its own in each"),
        ("hunyuan-7b", {"use_cla": True}, "use_cla = True is not modelled"),
        ("hunyuan-a13b", {"moe_topk": [8, 4] * 16}, "has no number that all layers share"),
        ("hunyuan-a13b", {"moe_topk": []}, "moe_topk has no number that all layers share"),
        ("hunyuan-a13b", {"moe_topk": ["8"] * 32}, "moe_topk = '8' is no whole number"),
        ("hunyuan-a13b", {"moe_topk": [8]}, "moe_topk has 1 values for 32 layers"),
        ("hunyuan-a13b", {"moe_topk": "8"}, "moe_topk = '8' is no whole number"),
        ("ernie-4.5-21b-a3b", {"moe_layer_end_index": 9}, "end_index = 9 is not modelled"),
        ("gpt-neo-1.3b", {"attention_layers": ["local"]}, "has 1 values for 24 layers"),
        ("gpt-neo-1.3b", {"attention_layers": None, "attention_types": 3}, "types = 3 is not"),
        ("roberta-base", {"architectures": ["RobertaModel"]}, "this head is not modelled"),
        ("roberta-base", {"architectures": [1]}, "this head is not modelled"),
        ("bert", {"model_type": "wavlm"}, "'wavlm' has gated biases of relative positions"),
        ("olmo", {"clip_qkv": 8.0}, "clip_qkv = 8.0 is not modelled"),
        ("mpt", {"attn_config": {"alibi": False}}, "attn_config without alibi"),
        ("llama4-scout", {"no_rope_layers": [1] * 48}, "name different layers"),
        ("llama4-scout", {"no_rope_layers": [1, 0]}, "has 2 values for 48 layers"),
        ("llama4-scout", {"no_rope_layers": 4}, "no_rope_layers = 4 is no list"),
        ("llama4-scout", {"interleave_moe_layer_step": 0}, "step = 0 is no positive whole number"),
        (
            "llama4-scout",
            {"moe_layers": [0, 48]},
            "moe_layers names layer 48, but layers are 0 to 47",
        ),
        ("gemma-3", {"layer_types": [["full_attention"]] * 26}, "is no list of texts or numbers"),
        ("llama", {"num_attention_heads": 0}, "num_attention_heads = 0 is no positive whole"),
        ("llama", {"hidden_size": "4096"}, "hidden_size = '4096' is no positive whole number"),
        ("llama", {"tie_word_embeddings": "no"}, "tie_word_embeddings = 'no' is no truth value"),
        ("mpt", {"attn_config": 3}, "attn_config = 3 is no table"),
        ("dbrx", {"attn_config": 3}, "attn_config = 3 is no table"),
    ],
)
def test_what_cannot_be_is_refused(case: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        described(CASES[case]["config"] | changes)


def test_what_a_config_leaves_out_is_as_transformers_has_it_and_said() -> None:
    config = CASES["gemma-3-4b"]["config"]
    whole = described(config)
    assert (whole["vocab"], whole["heads"], whole["kv_heads"], whole["head"]) == (262208, 8, 4, 256)
    assert "keys that transformers fills in: vocab_size = 262,208" in whole["notes"][0]
    full = described(config | {"text_config": config["text_config"] | {"num_attention_heads": 16}})
    assert full["heads"] == 16
    assert "num_attention_heads" not in full["notes"][0]


def test_a_config_whose_text_is_not_apart_has_the_language_model_of_one_whose_text_is() -> None:
    config = CASES["qwen2.5-7b"]["config"]
    flat = described(config | {"model_type": "qwen2_vl", "vision_config": {"depth": 32}})
    assert described(config) | {"notes": flat["notes"]} == flat
    assert 'vision_config = {"depth": 32} is not modelled' in flat["notes"][-1]


def test_sound_is_convolved_frame_by_frame() -> None:
    """Radford et al. 2022, section 2.1: 3,000 frames of 10 ms become 1,500."""
    model = model_of(described(CASES["whisper-large-v3"]["config"]), "whisper")
    run = whole(model, 1)
    products = [k for op in operators_of("embedding", run) for k in kernels_of(op.forward)
                if isinstance(k, Gemm)]  # fmt: skip
    hidden = 1280
    assert [k.flops for k in products] == [
        2 * 3000 * 3 * 128 * hidden,
        2 * 1500 * 3 * hidden * hidden,
    ]


def test_masked_words_stand_behind_the_padding_position() -> None:
    roberta = described(CASES["roberta-base"]["config"])
    assert (roberta["seq"], roberta["position_rows"]) == (512, 514)


def test_a_config_of_text_and_images_has_its_language_model() -> None:
    text = {key: value for key, value in CASES["gemma-3"]["config"].items() if key != "model_type"}
    whole = described({"model_type": "gemma3", "text_config": text, "vision_config": {}})
    assert whole["layers"] == text["num_hidden_layers"]
    assert "only the language model of gemma3 is simulated" in whole["notes"][-1]
    with pytest.raises(InputError, match="without text_config"):
        described({"model_type": "gemma3"})


@pytest.mark.parametrize("there", ["hidden_size", "num_key_value_heads"])
def test_a_misspelt_key_is_refused_with_the_key_that_is_meant(there: str) -> None:
    llama = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 32,
             "hidden_size": 4096, "num_key_value_heads": 8, "intermediate_size": 14336,
             "vocab_size": 128256}  # fmt: skip
    misspelt = there.replace("dd", "d").replace("value", "values")
    content = {misspelt if key == there else key: value for key, value in llama.items()}
    with pytest.raises(InputError, match=f"'{misspelt}' is no key .*; did you mean '{there}'"):
        document(content, "config.json")


def test_layers_of_minimax_that_nothing_names_begin_with_attention() -> None:
    """configuration_minimax.py of transformers, `__post_init__`."""
    config = {**CASES["minimax-text-01"]["config"], "layer_types": None, "num_hidden_layers": 3}
    assert described(config)["pattern"] == "experts, state_experts"
