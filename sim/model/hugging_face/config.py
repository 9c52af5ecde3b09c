"""A config that is read key by key, so that what nobody read can be named."""

import re
from collections.abc import Mapping
from typing import Any

from sim.config.errors import InputError

Document = dict[str, Any]

_SEQ = 4096  # what is trained where a config allows for more, which it does not say

# What says nothing of the time or the memory of a training step.
_SILENT = re.compile(
    "_.*|model_type|architectures|auto_map|transformers_version|(torch_)?dtype|use_cache|return_dict|id2label"
    "|label2id|problem_type|.*_token_id|.*_token_ids|initializer_.*|init_std|.*_eps|.*_epsilon"
    "|rope_.*|rotary_.*|partial_rotary_factor|original_max_position_embeddings|hidden_act.*"
    "|activation(_function)?|pretraining_tp|output_.*|router_.*|summary_.*|classifier_dropout"
    "|scale_.*|reorder_and_upcast_attn|chunk_size_feed_forward|task_specific_params"
    "|is_encoder_decoder|scoring_func|norm_topk_prob|routed_scaling_factor|aux_loss_.*"
    "|seq_aux|ep_size|query_pre_attn_scalar|swiglu_.*|position_embedding_type"
    "|encoder_stride|dense_act_fn|quantization_config|pooler_.*|qk_head_dim|prefix|bos|eos|use_mrope|cache_implementation"
    "|max_window_layers|image_token_index|mm_tokens_per_image|boi_.*"
    "|eoi_.*|initial_context_length|experts_per_token|layer_norm_elementwise_affine"
    "|hidden_dropout_prob|attention_probs_dropout_prob|classifier_.*|tokenizer_class|name"
)


class Config:
    """A config that remembers which of its keys were read."""

    def __init__(self, content: Mapping[str, Any], place: str) -> None:
        self.content, self.place, self.read = content, place, set[str]()
        self.notes: list[str] = []

    def __call__(self, key: str, *default: Any) -> Any:
        """A value; the default where there is none. Raises `InputError` where both are missing."""
        self.read.add(key)
        value = self.content.get(key)
        if value is None and not default:
            what = f"{key} is missing in this {self.content.get('model_type')} config"
            raise InputError(self.place, what, "add it, or take the config of the checkpoint")
        return default[0] if value is None else value

    def unread(self) -> list[str]:
        """What the config has that was not read and may matter, one line each."""
        return [
            f"{self.place}: {key} = {value!r:.40} is not modelled"
            for key, value in self.content.items()
            if value and key not in self.read and not _SILENT.fullmatch(key)
        ]

    def refuse_unless(self, key: str, *allowed: Any) -> None:
        """Raise `InputError` for a value that the model here does not have."""
        if (value := self(key, allowed[0])) not in allowed:
            shown = " or ".join(map(repr, allowed))
            what = f"{key} = {value!r} is not modelled"
            raise InputError(
                self.place, what, f"only {shown} is; describe the model in a TOML file"
            )

    def dropout(self, *keys: str) -> bool:
        rates = [self(key, 0.0) for key in keys]  # all are read, whichever is first
        return any(rates)


def length(config: Config, key: str = "max_position_embeddings") -> int:
    """Tokens of a sequence: what a config allows for, but no more than is usual."""
    most = int(config(key))
    if most > _SEQ:
        what = f"{config.place}: sequences may have {most:,} tokens"
        config.notes.append(f"{what}; {_SEQ:,} are taken unless model.seq says otherwise")
    return min(most, _SEQ)
