"""A config that is read key by key, so that the keys that nothing reads can be named."""

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from sim.config.errors import InputError
from sim.config.silent import Silent, is_silent
from sim.model.model import MOST_LAYERS

Document = dict[str, Any]

_NEAR = 0.92  # difflib's ratio from which a key counts as a misspelling of another key
_SEQ = 4096  # assumed length in training where a config allows longer sequences

# Keys that change neither the time nor the memory of a training step.
_SILENT: Silent = {
    "": """
        _* name prefix attn_implementation model_type architectures auto_map transformers_version
        tokenizer_class task_specific_params
        dtype torch_dtype quantization_config cache_implementation use_cache return_dict output_*
        is_encoder_decoder chunk_size_feed_forward pretraining_tp ep_size reorder_and_upcast_attn
        id2label label2id problem_type classifier_* pooler_* summary_* bos eos *_token_id
        *_token_ids initializer_* init_std *_eps *_epsilon layer_norm_elementwise_affine
        activation activation_function hidden_act* dense_act_fn swiglu_*
        hidden_dropout_prob attention_probs_dropout_prob
        position_embedding_type rope_* rotary_* partial_rotary_factor use_mrope
        n_ctx model_max_length original_max_position_embeddings initial_context_length
        max_window_layers scale_* qk_head_dim query_pre_attn_scalar
        experts_per_token router_* scoring_func norm_topk_prob routed_scaling_factor aux_loss_*
        attention_softmax_in_fp32 scale_attention_softmax_in_fp32 masked_softmax_fusion
        bias_dropout_fusion skip_bias_* offset_alibi slow_but_exact
        inference_runner max_batch_size pad_key_length pre_allocate_kv_cache validate_runner_input
        seq_aux encoder_stride image_token_index mm_tokens_per_image boi_* eoi_*
    """
}

Kind = tuple[Callable[[Any], bool], str]  # whether a value is of the kind, and the kind's name


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_POSITIVE: Kind = (lambda value: _whole(value) and value > 0, "positive whole number")
# The kind of value that a key takes, by the type of its default.
_KINDS: dict[type, Kind] = {
    bool: (lambda value: value in (True, False), "truth value"),
    int: (lambda value: _whole(value) and value >= 0, "whole number"),
    float: (lambda value: isinstance(value, float) or _whole(value), "number"),
    str: (lambda value: isinstance(value, str), "text"),
    list: (
        lambda value: (
            isinstance(value, list) and all(isinstance(entry, str | int) for entry in value)
        ),
        "list of texts or numbers",
    ),
    dict: (lambda value: isinstance(value, Mapping), "table"),
}


def _kind(default: Any) -> Kind:
    return _KINDS.get(type(default), (lambda value: True, ""))


class Config:
    """A config that remembers which of its keys were read."""

    def __init__(self, content: Mapping[str, Any], place: str) -> None:
        self.content, self.place, self.read = content, place, set[str]()
        self.notes: list[str] = []

    def __call__(self, key: str, *default: Any) -> Any:
        """Return the value of a key, or the default if the config lacks the key. Without a default
        the value must be a positive whole number. Raises `InputError` if value and default are
        missing, and for a value of another kind than the default."""
        self.read.add(key)
        value = self.content.get(key)
        if value is None and not default:
            self._refuse_misspelt(key)
            fault = f"{key} is missing in this {self.content.get('model_type')} config"
            raise InputError(self.place, fault, "add it, or take the config of the checkpoint")
        if value is None:
            return default[0]
        self._check(key, value, *(_kind(default[0]) if default else _POSITIVE))
        return value

    def positive(self, key: str, default: int) -> int:
        """Return a positive whole number, such as the period of a pattern. Raises `InputError`."""
        value: int = self(key, default)
        self._check(key, value, *_POSITIVE)
        return value

    def layers(self) -> int:
        """Return the number of layers. Raises `InputError` for more than can be simulated."""
        count: int = self("num_hidden_layers")
        if count > MOST_LAYERS:
            fault = f"num_hidden_layers = {count:,} is more than can be simulated"
            raise InputError(self.place, fault, f"use at most {MOST_LAYERS:,}")
        return count

    def each(self, key: str, count: int) -> list[Any]:
        """Return a list with a value for each of `count` layers, or an empty list if the config
        lacks the key. Raises `InputError` for a list of another length."""
        values: list[Any] = self(key, [])
        if values and len(values) != count:
            fault = f"{key} has {len(values)} values for {count} layers"
            raise InputError(self.place, fault, "give a value for each layer")
        return values

    def some(self, key: str, count: int) -> list[int]:
        """Return a list of numbers of layers, or an empty list if the config lacks the key. Raises
        `InputError` for a number outside the model's `count` layers."""
        numbers: list[int] = self(key, [])
        if beyond := [number for number in numbers if number not in range(count)]:
            fault = f"{key} names layer {beyond[0]!r}, but layers are 0 to {count - 1}"
            raise InputError(self.place, fault, "take the config of the checkpoint")
        return numbers

    def _check(self, key: str, value: Any, holds: Callable[[Any], bool], said: str) -> None:
        if not holds(value):
            fault = f"{key} = {value!r:.40} is no {said}"
            raise InputError(self.place, fault, "take the config of the checkpoint")

    def _refuse_misspelt(self, key: str) -> None:
        """Raise `InputError` if a key that nothing reads is spelt nearly like `key`."""
        strange = [name for name in self.content if name not in self.read]
        for near in get_close_matches(key, strange, 1, _NEAR):
            fault = f"{near!r} is no key of a {self.content.get('model_type')} config"
            raise InputError(self.place, fault, f"did you mean {key!r}?")

    def unread(self) -> list[str]:
        """Return a line for each key of the config that was not read and may matter. Raises
        `InputError` for a misspelt key."""
        for key in sorted(self.read):
            self._refuse_misspelt(key)
        return [
            f"{self.place}: {key} = {json.dumps(value):.40} is not modelled"
            for key, value in self.content.items()
            if value and key not in self.read and not is_silent(key, _SILENT)
        ]

    def refuse_unless(self, key: str, *allowed: Any) -> None:
        """Raise `InputError` unless the value is one of `allowed`, the values that are modelled.
        The first of them is the default."""
        if (value := self(key, allowed[0])) not in allowed:
            shown = " or ".join(map(repr, allowed))
            fault = f"{key} = {value!r} is not modelled"
            raise InputError(
                self.place, fault, f"only {shown} is; describe the model in a TOML file"
            )

    def dropout(self, *keys: str) -> bool:
        rates = [self(key, 0.0) for key in keys]  # A list, so that every key counts as read.
        return any(rates)


def length(config: Config, key: str = "max_position_embeddings") -> int:
    """Return the tokens of a sequence: as many as the config allows, but at most `_SEQ`."""
    most = int(config(key))
    if most > _SEQ:
        note = f"{config.place}: sequences may have {most:,} tokens"
        config.notes.append(f"{note}; {_SEQ:,} are assumed unless model.seq or --seq differs")
    return min(most, _SEQ)
