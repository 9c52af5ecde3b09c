"""Attention to a cache of keys and values: the bytes of the cache, and the kernels that read it.

Decoding reads the keys and values of a sequence once for its single query. Several thread blocks
(CTAs) share the sequence (Flash-Decoding, Dao et al. 2023). Latent attention caches the latent
vector and the rotary part of K, one copy for all heads. The up-projection then multiplies queries
and outputs instead of the cache (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1.2). These products
cost as much as the up-projection of one token, which counts among the layer's operators.
"""

from collections.abc import Mapping
from dataclasses import replace

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.hardware.device import Device
from sim.hardware.kernels.fused_attention import offered_rates, share
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import BYTES, Attention, Precision
from sim.model.transformer import Transformer


@dataclass(frozen=True, slots=True)
class Reading:
    """How decoding kernels read a cache. A kernel takes `floor` seconds, and in addition `cta`
    seconds of an SM for each sequence and head of keys. It reads at `share` times the memory's
    bandwidth; an SM converts `converts` elements of an eight-bit cache in a clock cycle."""

    floor: float
    cta: float
    share: float
    converts: float


# One fit for each generation of devices (A100; L40S; H100 and H200; B200, GB200 and B300), on every
# second row of vLLM in kernels/aiconfigurator/generation_attention_*.csv.gz. docs/generation.md has
# the errors on the other rows.
READINGS: Mapping[str, Reading] = {
    "ampere": Reading(floor=17.7e-6, cta=3.3e-6, share=0.75, converts=9.3),
    "ada": Reading(floor=10.2e-6, cta=2.9e-6, share=0.88, converts=6.8),
    "hopper": Reading(floor=12.5e-6, cta=3.2e-6, share=0.92, converts=9.3),
    "blackwell": Reading(floor=9.3e-6, cta=1.2e-6, share=0.95, converts=24.0),
}
ASSUMED = "hopper"  # GPUs that were not timed take this generation's constants

_HEADS_OF_CTA = 64  # heads that share a latent in a CTA (deepseek-ai/FlashMLA, csrc, BLOCK_M)
_HEAD = 128  # products with latents run at the rate of attention with heads of this size


@dataclass(frozen=True, slots=True)
class Affine:
    """Seconds of reading caches: `floor` + `sequence` x sequences + `token` x tokens in them."""

    floor: float
    sequence: float
    token: float

    def seconds(self, sequences: float, tokens: float) -> float:
        """The seconds of reading `sequences` sequences with `tokens` cached tokens in all."""
        return self.floor + self.sequence * sequences + self.token * tokens

    def __add__(self, other: "Affine") -> "Affine":
        return Affine(
            self.floor + other.floor, self.sequence + other.sequence, self.token + other.token
        )

    def repeated(self, times: float) -> "Affine":
        """The seconds of `times` such reads one after the other."""
        return Affine(times * self.floor, times * self.sequence, times * self.token)


@dataclass(frozen=True, slots=True)
class CachedLayer:
    """Attention of `layers` equal layers on one rank. `kernel` is the kernel that computes a
    prompt. Keys and values have `kv_heads` heads (latent attention: groups of up to 64 heads of
    queries). The cache keeps `width` elements for a token. A head of queries takes `multiplied`
    multiplications for each cached token. Attention sees the last `window` tokens of a sequence (0:
    all tokens)."""

    kernel: Attention
    kv_heads: int
    width: int
    multiplied: int
    window: int
    layers: int

    def bytes(self, cache: Precision) -> float:
        """Bytes that a token takes in the caches of these layers on a rank."""
        return self.layers * self.width * BYTES[cache]

    def seen(self, tokens: int) -> int:
        """How many of a sequence's `tokens` stay in the cache."""
        return min(tokens, self.window) if self.window else tokens

    def decode(self, device: Device, cache: Precision, attention: tuple[str, ...]) -> Affine:
        """Seconds of decoding. A cached token takes the longest of three times: its bytes /
        bandwidth, the conversion of its elements, and its FLOPs / the rate of fused attention."""
        reading = READINGS.get(device.generation, READINGS[ASSUMED])
        read = self.width * BYTES[cache] / (reading.share * device.memory_bandwidth)
        if BYTES[cache] < 2:
            read = max(read, self.width / (reading.converts * device.sms * device.clock))
        reached = share(offered_rates(device, attention), _HEAD, backward=False)
        flops = 2.0 * self.kernel.heads * self.multiplied
        token = max(read, flops / (reached * device.peak_rate(device.half)))
        sequence = reading.cta * self.kv_heads / device.sms
        return Affine(reading.floor, sequence, token).repeated(self.layers)

    def prefill(
        self, tokens: int, context: int, device: Device, attention: tuple[str, ...]
    ) -> float:
        """Seconds of a chunk of `tokens` tokens of a prompt after `context` cached tokens. Each
        token sees the cache, and on average half of the chunk."""
        chunk = replace(self.kernel, batch=1, q=tokens, kv=tokens, causal=True, window=self.window)
        seconds = kernel_time(chunk, device, attention)
        seen = self.seen(context)
        if seen:
            ahead = replace(chunk, kv=seen, causal=False, window=0)
            seconds += kernel_time(ahead, device, attention)
        return self.layers * seconds


def cached_layer(kernel: Attention, model: Transformer, layers: int) -> CachedLayer:
    """The cache of layers with this kernel of attention.

    GQA keeps the keys and values of a rank's heads; latent attention keeps `kv` + `rotary` elements
    on every rank.
    """
    window = model.window
    if model.latent:
        width = model.latent.kv + model.latent.rotary
        groups = -(-kernel.heads // _HEADS_OF_CTA)
        return CachedLayer(kernel, groups, width, width + model.latent.kv, window, layers)
    each = kernel.head + kernel.values
    return CachedLayer(kernel, kernel.kv_heads, kernel.kv_heads * each, each, window, layers)


def decode_time(kernel: Attention, device: Device) -> float:
    """Seconds of attention while decoding: the single query of each sequence reads a cache that has
    the kernel's precision. Raises `InputError` for several queries.

    >>> from sim.hardware.device import load
    >>> h100 = load("h100-80gb-sxm")
    >>> kernel = Attention(
    ...     name="", batch=64, heads=32, kv_heads=8, q=1, kv=8192, head=128, causal=False
    ... )
    >>> 0.8 < kernel.bytes / decode_time(kernel, h100) / h100.memory_bandwidth < 0.92
    True
    """
    if kernel.q != 1:
        raise InputError("kernel", f"{kernel.q} queries a sequence", "decoding has one")
    each = kernel.head + kernel.values
    width = kernel.kv_heads * each
    layer = CachedLayer(kernel, kernel.kv_heads, width, each, kernel.window, 1)
    tokens = kernel.batch * layer.seen(kernel.kv)
    offered = tuple(reversed(list(device.attention)))
    return layer.decode(device, kernel.precision, offered).seconds(kernel.batch, tokens)
