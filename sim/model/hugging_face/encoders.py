"""Encoders of words (BERT), images (ViT) or sound (wav2vec 2.0), and encoders with a decoder after
them (T5, Whisper)."""

from math import prod
from typing import NoReturn

from sim.config.errors import InputError
from sim.model.hugging_face.config import Config, Document, length
from sim.model.hugging_face.gpt import usual, with_biases
from sim.model.hugging_face.layers import laid_out, layer_types
from sim.model.hugging_face.llama import llama


def bert(config: Config) -> Document:
    """BERT with a head over all tokens (BertForMaskedLM), or over pairs (BertForPreTraining)."""
    config.refuse_unless("add_cross_attention", False)
    config.refuse_unless("position_embedding_type", "absolute")
    heads = config("architectures", ["BertForMaskedLM"])
    if not {"BertForMaskedLM", "BertForPreTraining"} & set(heads):
        _refuse_head(config, "BertForMaskedLM, BertForPreTraining")
    return _of_words(config) | {"pooler": "BertForPreTraining" in heads}


def _refuse_head(config: Config, known: str) -> NoReturn:
    fault = f"architectures = {config('architectures', [])!r}: this head is not modelled"
    raise InputError(config.place, fault, f"known: {known}")


def _of_words(config: Config) -> Document:
    tokens = length(config)
    drops = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    return with_biases(config, *drops) | usual(config) | {
        "family": "bert",
        "ffn": config("intermediate_size"),
        "seq": tokens,
        "position_rows": config("max_position_embeddings"),
        "tied_embeddings": config("tie_word_embeddings", True),
        "positions": "learned",
        "causal": False,
        "post_norm": True,
        "token_types": config("type_vocab_size", 2),
        "predictions": tokens,
    }  # fmt: skip


def roberta(config: Config) -> Document:
    """BERT with a bias in its logits, and positions that begin after the padding token's number
    (RobertaEmbeddings.create_position_ids_from_input_ids)."""
    config.refuse_unless("add_cross_attention", False)
    config.refuse_unless("is_decoder", False)
    heads = config("architectures", ["ForMaskedLM"])
    if not all(str(head).endswith("ForMaskedLM") for head in heads):
        _refuse_head(config, "an architecture for masked words")
    tokens = length(config) - config("pad_token_id", 1) - 1
    return _of_words(config) | {"seq": tokens, "predictions": tokens}


def modernbert(config: Config) -> Document:
    """ModernBERT: Llama's layers in an encoder; most layers see a window on both sides. In the
    first layer, the norm stands after the embedding and not before attention. Here it stands before
    attention, which costs the same."""
    config.refuse_unless("norm_bias", False)
    config.refuse_unless("decoder_bias", True)
    config.refuse_unless("classifier_bias", False)
    config.read |= {"global_attn_every_n_layers", "local_attention", "global_rope_theta",
                    "local_rope_theta", "deterministic_flash_attn", "sparse_pred_ignore_index",
                    "sparse_prediction", "reference_compile", "embedding_norm"}  # fmt: skip
    count, every = config.layers(), config.positive("global_attn_every_n_layers", 3)
    types = layer_types(config, count)
    slides = [name == "sliding_attention" for name in types] or [
        n % every > 0 for n in range(count)
    ]
    shape = llama(config, tied=True) | {
        "normalisation": "layernorm",
        "norm_weights": 1,
        "causal": False,
        "dropout": config.dropout("attention_dropout", "embedding_dropout", "mlp_dropout"),
    }
    window = {"window": config("local_attention", 128) // 2 * 2 + 1}
    described = laid_out(shape, [("dense", window if each else {}) for each in slides])
    return described | {"predictions": described["seq"]}


def vit(config: Config) -> Document:
    """ViT with a classifier (ViTForImageClassification): patches in place of words, and logits of
    classes."""
    patch, image = config.positive("patch_size", 16), config("image_size", 224)
    seq = (image // patch) ** 2 + 1
    classes = int(config("num_labels", len(config("id2label", {})) or 2))
    drops = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    config.refuse_unless("qkv_bias", True)
    return with_biases(config, *drops) | usual(config) | {
        "ffn": config("intermediate_size"),
        "vocab": classes,
        "seq": seq,
        "position_rows": seq,
        "tied_embeddings": False,
        "positions": "learned",
        "causal": False,
        "blocks": {
            "embedding": {"kind": "patches", "patch": patch, "channels": config("num_channels", 3)},
            "head": {"kind": "classifier"},
        },
    }  # fmt: skip


def whisper(config: Config) -> Document:
    """Whisper: an encoder of a spectrogram, whose two convolutions halve its frames, and a decoder
    of words (WhisperForConditionalGeneration)."""
    hidden, layers, behind = config("d_model"), config("encoder_layers"), config("decoder_layers")
    for key in ("attention_heads", "ffn_dim"):
        config.refuse_unless(f"decoder_{key}", config(f"encoder_{key}"))
    config.refuse_unless("use_weighted_layer_sum", False)
    config.read |= {key for key in config.content if key.startswith(("mask_", "begin_suppress"))}
    config.read |= {"suppress_tokens", "apply_spec_augment", "median_filter_width", "max_length",
                    "num_hidden_layers", "encoder_layerdrop", "decoder_layerdrop"}  # fmt: skip
    tokens = config("max_target_positions")
    sound = {"kind": "sound", "channels": config("num_mel_bins"), "widths": [hidden, hidden],
             "taps": [3, 3], "strides": [1, 2]}  # fmt: skip
    return with_biases(config, "dropout", "attention_dropout", "activation_dropout") | {
        "layers": layers + behind,
        "hidden": hidden,
        "heads": config("encoder_attention_heads"),
        "ffn": config("encoder_ffn_dim"),
        "seq": config("max_source_positions"),
        "decoder_seq": tokens,
        "position_rows": tokens,
        "tied_embeddings": config("tie_word_embeddings", True),
        "positions": "learned",
        "key_bias": False,
        "causal": False,
        "pattern": f"{layers} dense, {behind} decoder",
        "blocks": {"embedding": sound},
    }  # fmt: skip


_CROP = 250_000  # samples of a wave in training: Baevski et al. 2020, section 4.2


def wav2vec2(config: Config) -> Document:
    """wav2vec 2.0 and HuBERT with an output layer of characters (Wav2Vec2ForCTC)."""
    heads = config("architectures", ["ForCTC"])
    if not all(str(head).endswith("ForCTC") for head in heads):
        _refuse_head(config, "an architecture with a loss by CTC")
    for key, usual_value in (("add_adapter", False), ("adapter_attn_dim", None),
                             ("use_weighted_layer_sum", False), ("feat_proj_layer_norm", True),
                             ("conv_pos_batch_norm", False)):  # fmt: skip
        config.refuse_unless(key, usual_value)
    unread = ("mask_", "adapter_", "codevector", "num_codevector", "proj_codevector", "tdnn_",
              "ctc_", "num_adapter", "contrastive", "diversity", "xvector", "feat_extract_a",
              "feat_quantizer")  # fmt: skip
    config.read |= {key for key in config.content if key.startswith(unread)}
    config.read |= {"num_negatives", "layerdrop", "num_feat_extract_layers", "output_hidden_size",
                    "apply_spec_augment", "mask_feature_prob", "mask_time_prob"}  # fmt: skip
    widths, strides = config("conv_dim", [512] * 7), config("conv_stride", [5] + [2] * 6)
    masked = config.content.get("mask_time_prob", 0.05) or config.content.get("mask_feature_prob")
    norms = {"group": "first", "layer": "all"}
    config.refuse_unless("feat_extract_norm", *norms)
    sound = {
        "kind": "sound", "channels": 1, "widths": widths, "strides": strides, "projected": True,
        "taps": config("conv_kernel", [10, 3, 3, 3, 3, 2, 2]), "bias": config("conv_bias", False),
        "norms": norms[config("feat_extract_norm", "group")], "masked": bool(masked),
        "position_taps": config("num_conv_pos_embeddings", 128),
        "position_groups": config("num_conv_pos_embedding_groups", 16),
    }  # fmt: skip
    seq = _CROP // prod(strides)
    config.notes.append(
        f"{config.place}: sequences of {seq:,} frames ({_CROP:,} samples) are assumed; CTC is "
        "assumed to cost as much as a cross-entropy over the frames"
    )
    drops = ("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout",
             "final_dropout")  # fmt: skip
    return with_biases(config, *drops) | usual(config) | {
        "ffn": config("intermediate_size"),
        "seq": seq,
        "tied_embeddings": False,
        "positions": "none",
        "causal": False,
        "post_norm": not config("do_stable_layer_norm", False),
        "biases": ["logits"],
        "blocks": {"embedding": sound},
    }  # fmt: skip


_T5_SEQ, _T5_DECODER_SEQ = 512, 114  # of pre-training: Raffel et al. 2020, section 3.1.4


def t5(config: Config) -> Document:
    """T5, its versions 1.1 and Flan, mT5: T5ForConditionalGeneration."""
    layers = config("num_layers")
    behind = config("num_decoder_layers", layers)
    seq = config("n_positions", _T5_SEQ)
    tokens = f"sequences of {seq:,} and {_T5_DECODER_SEQ} tokens are assumed, as in pre-training"
    config.notes.append(f"{config.place}: {tokens}; model.seq and model.decoder_seq change this")
    config.read |= {"relative_attention_max_distance", "feed_forward_proj"}
    return {
        "name": str(config("_name_or_path", "")),
        "family": "gpt",
        "layers": layers + behind,
        "hidden": config("d_model"),
        "heads": config("num_heads"),
        "head": config("d_kv"),
        "ffn": config("d_ff"),
        "gated_mlp": config("is_gated_act", "gated" in config("feed_forward_proj", "relu")),
        "vocab": config("vocab_size"),
        "seq": seq,
        "decoder_seq": _T5_DECODER_SEQ,
        "tied_embeddings": config("tie_word_embeddings", True),
        "positions": "relative",
        "position_buckets": config("relative_attention_num_buckets", 32),
        "normalisation": "rmsnorm",
        "bias": False,
        "dropout": config.dropout("dropout_rate"),
        "causal": False,
        "attention": "standard",
        "pattern": f"{layers} dense, {behind} decoder",
    }
