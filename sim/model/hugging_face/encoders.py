"""Encoders: of words (BERT), of images (ViT), and with a decoder behind them (T5)."""

from typing import NoReturn

from sim.config.errors import InputError
from sim.model.hugging_face.config import Config, Document, length
from sim.model.hugging_face.gpt import usual, with_biases


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
    """BERT with positions that are counted from behind the padding's, and a bias in its logits
    (RobertaEmbeddings.create_position_ids_from_input_ids)."""
    config.refuse_unless("add_cross_attention", False)
    config.refuse_unless("is_decoder", False)
    heads = config("architectures", ["ForMaskedLM"])
    if not all(str(head).endswith("ForMaskedLM") for head in heads):
        _refuse_head(config, "an architecture for masked words")
    tokens = length(config) - config("pad_token_id", 1) - 1
    return _of_words(config) | {"seq": tokens, "predictions": tokens}


def vit(config: Config) -> Document:
    """ViT with a classifier (ViTForImageClassification): patches for words, classes for logits."""
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


_T5_SEQ, _T5_DECODER_SEQ = 512, 114  # of pre-training: Raffel et al. 2020, section 3.1.4


def t5(config: Config) -> Document:
    """T5, its versions 1.1 and Flan, mT5: T5ForConditionalGeneration."""
    layers = config("num_layers")
    behind = config("num_decoder_layers", layers)
    seq = config("n_positions", _T5_SEQ)
    tokens = f"sequences of {seq:,} and {_T5_DECODER_SEQ} tokens are taken, as in pre-training"
    config.notes.append(f"{config.place}: {tokens}; set model.seq and model.decoder_seq otherwise")
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
