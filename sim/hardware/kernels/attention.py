"""How long a fused attention kernel takes, by its generation (FlashAttention 1, 2, 3, cuDNN)."""

from collections.abc import Mapping
from dataclasses import dataclass

from sim.model.kernels import Attention

# Keys per CTA of the backward pass, and queries per CTA of the forward pass unless stated otherwise
# (flash-attention, csrc/flash_attn/src/flash_fwd_launch_template.h and flash_bwd_...).
ROWS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRates:
    """Share of the 16-bit peak that a kernel generation sustains, by head size.

    A head between two sizes takes the rate of the larger: kernels are compiled for a few sizes and
    pad. Only multiplications that are performed count (half of them when causal). `rows` are the
    queries of one CTA of the forward pass. SMs finish unevenly, `tail` CTAs of the longest kind
    later than they would if the work were spread evenly. `granule` is how many keys a causal mask
    skips at a time; the granules on the diagonal are multiplied in full.
    """

    forward: Mapping[int, float]
    backward: Mapping[int, float]
    rows: int = ROWS
    tail: float = 0.5
    granule: int = 0

    def __post_init__(self) -> None:
        for shares in (self.forward, self.backward):
            if not shares or not all(size > 0 and 0 < s <= 1 for size, s in shares.items()):
                raise ValueError("shares must lie in (0, 1], by positive head size")

    def __hash__(self) -> int:
        shares = frozenset(self.forward.items()), frozenset(self.backward.items())
        return hash((*shares, self.rows, self.tail, self.granule))

    def multiplied(self, kernel: Attention) -> float:
        """FLOPs performed: half of them when causal, and half of the granules on the diagonal.

        >>> rates = AttentionRates(forward={64: 0.5}, backward={64: 0.5}, granule=512)
        >>> short = Attention(
        ...     name="", batch=1, heads=1, kv_heads=1, q=256, kv=256, head=64, causal=True
        ... )
        >>> rates.multiplied(short) / short.flops
        2.0
        """
        return kernel.flops * (1.0 + min(1.0, self.granule / kernel.kv) * kernel.causal)

    def share(self, head: int, *, backward: bool) -> float:
        """The share of the peak for a head size."""
        shares = self.backward if backward else self.forward
        fitting = [size for size in shares if size >= head]
        if not fitting:
            return shares[max(shares)]
        # Padding to the compiled size multiplies zeros.
        size = min(fitting)
        return shares[size] * head / size


def attention_time(
    kernel: Attention, rates: AttentionRates, *, peak: float, sms: int, bandwidth: float
) -> float:
    """Seconds of a fused attention kernel on an otherwise idle device.

    FLOPs spread over the SMs at the sustained rate, at least the longest CTA, plus the tail. A CTA
    takes some queries (keys when backward) of one head.
    """
    rate = peak * rates.share(kernel.head, backward=kernel.backward) / sms
    rows, tail = (ROWS, min(0.5, rates.tail)) if kernel.backward else (rates.rows, rates.tail)
    longest = min(rows, kernel.q) * kernel.kv * kernel.head * (10.0 if kernel.backward else 4.0)
    ctas = kernel.batch * kernel.heads * -(-kernel.q // rows)
    work = max(rates.multiplied(kernel) / min(sms, ctas), longest)
    if ctas > 1:
        work += tail * longest
    return float(max(work / rate, kernel.bytes / bandwidth))
