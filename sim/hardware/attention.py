"""How long a fused attention kernel takes, by its generation (FlashAttention 1, 2, 3, cuDNN)."""

from collections.abc import Mapping
from dataclasses import dataclass

from sim.model.kernel import Attention

QUERIES = 128  # of one CTA (flash-attention, csrc/flash_attn/src/flash_fwd_launch_template.h)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRates:
    """Share of the 16-bit peak that a kernel generation sustains, by head size.

    A head between two sizes takes the rate of the larger: kernels are compiled for few sizes and
    pad. Counted over the multiplications performed (half of them when causal).
    """

    forward: Mapping[int, float]
    backward: Mapping[int, float]

    def __post_init__(self) -> None:
        for shares in (self.forward, self.backward):
            if not shares or not all(size > 0 and 0 < s <= 1 for size, s in shares.items()):
                raise ValueError("shares must lie in (0, 1], by positive head size")

    def share(self, head: int, *, backward: bool) -> float:
        """Of the peak, for a head size."""
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

    FLOPs at the sustained rate, plus half of the longest CTA's time: the SMs finish unevenly, by
    half a CTA on average. CTAs take `QUERIES` queries (keys when backward) of one head.
    """
    rate = peak * rates.share(kernel.head, backward=kernel.backward)
    longest = min(QUERIES, kernel.q) * kernel.kv * kernel.head * (10.0 if kernel.backward else 4.0)
    ctas = kernel.batch * kernel.heads * -(-kernel.q // QUERIES)
    busy = min(sms, ctas)
    computed = max(kernel.flops / (rate / sms * busy), longest / (rate / sms))
    tail = 0.5 * longest / (rate / sms) if ctas > sms else 0.0
    return float(max(computed + tail, kernel.bytes / bandwidth))
