"""Which kernel of fused attention does torch choose on a GPU? Without a GPU it composes attention
of products.

Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (`can_use_flash_attention`,
`can_use_mem_efficient_attention`, `can_use_cudnn_attention`). It is the first kernel in torch's
order that can do the call, of the kernels that are switched on (`torch.nn.attention.sdpa_kernel`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call of attention; each method answers None where its kernel cannot do it."""

    torch: Any
    q: Any
    k: Any
    v: Any
    mask: Any
    dropout: float
    causal: bool
    scale: float | None

    @property
    def half(self) -> bool:
        return self.q.dtype in (self.torch.float16, self.torch.bfloat16)

    @property
    def grouped(self) -> bool:
        return bool(self.q.size(-3) != self.k.size(-3))

    def flash(self) -> Any:
        if self.mask is not None or not self.half or self.q.shape[-1] != self.v.shape[-1]:
            return None
        return self.torch.ops.aten._scaled_dot_product_flash_attention(
            self.q, self.k, self.v, self.dropout, self.causal, False, scale=self.scale
        )[0]

    def efficient(self) -> Any:
        if self.grouped:
            return None
        mask = self.mask
        if mask is not None:
            mask = mask.to(self.q.dtype).expand(*self.q.shape[:-1], self.k.size(-2))
        grad = self.torch.is_grad_enabled()
        return self.torch.ops.aten._scaled_dot_product_efficient_attention(
            self.q, self.k, self.v, mask, grad, self.dropout, self.causal, scale=self.scale
        )[0]

    def cudnn(self) -> Any:
        wide = max(self.q.shape[-1], self.v.shape[-1])
        if not self.half or wide > 128 or wide % 8:
            return None
        grad = self.torch.is_grad_enabled()
        return self.torch.ops.aten._scaled_dot_product_cudnn_attention(
            self.q, self.k, self.v, self.mask, grad, self.dropout, self.causal, False,
            scale=self.scale,
        )[0]  # fmt: skip

    def math(self) -> Any:
        return self.torch.ops.aten._scaled_dot_product_attention_math(
            self.q, self.k, self.v, self.mask, self.dropout, self.causal, None,
            scale=self.scale, enable_gqa=self.grouped,
        )[0]  # fmt: skip


_KERNELS: dict[str, Callable[[_Asked], Any]] = {
    "FLASH_ATTENTION": _Asked.flash,
    "EFFICIENT_ATTENTION": _Asked.efficient,
    "CUDNN_ATTENTION": _Asked.cudnn,
    "MATH": _Asked.math,
}


def fused_attention(torch: Any) -> Any:
    """A `scaled_dot_product_attention` that takes the kernel that CUDA would. Like torch's, it
    raises `RuntimeError` where no kernel can do the call."""

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
        asked = _Asked(torch, query, key, value, attn_mask, dropout_p, is_causal, scale)
        if asked.grouped and not enable_gqa:
            raise RuntimeError("queries and keys have unlike numbers of heads: enable_gqa")
        for backend in torch.nn.attention._cur_sdpa_kernel_backends(with_priority=True):
            found = _KERNELS[backend.name](asked) if backend.name in _KERNELS else None
            if found is not None:
                return found
        raise RuntimeError("No available kernel. Aborting execution.")

    return scaled_dot_product_attention
