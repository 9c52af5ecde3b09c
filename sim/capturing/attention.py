"""Fused attention, as torch chooses it on a GPU; without one it composes attention of products."""

from typing import Any


def fused_attention(torch: Any) -> Any:
    """A `scaled_dot_product_attention` that takes the kernel that CUDA would.

    Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: flash attention for half
    precision without a mask, where Q, K and V are equally wide, else memory-efficient attention.
    """
    halves, aten = (torch.float16, torch.bfloat16), torch.ops.aten

    def scaled_dot_product_attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        alike = query.shape[-1] == value.shape[-1]
        if attn_mask is None and query.dtype in halves and alike:
            return aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, False, scale=scale
            )[0]
        heads = query.size(-3)
        key, value = (
            one if one.size(-3) == heads else one.repeat_interleave(heads // one.size(-3), -3)
            for one in (key, value)
        )
        mask = None
        if attn_mask is not None:
            mask = attn_mask.to(query.dtype).expand(*query.shape[:-1], key.size(-2))
        return aten._scaled_dot_product_efficient_attention(
            query,
            key,
            value,
            mask,
            torch.is_grad_enabled(),
            dropout_p,
            is_causal,
            scale=scale,
        )[0]

    return scaled_dot_product_attention
