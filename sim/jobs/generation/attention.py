"""Attention to a cache of keys and values: its bytes, and the kernels that read it.

Decoding reads the keys and values of a sequence once for its one query, by several CTAs that share
the sequence (Flash-Decoding, Dao et al. 2023). Latent attention keeps the latent and the rotary
part of K, one copy for all heads; queries and outputs are multiplied by the up-projection instead
of the cache (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1.2). These products are as large as
those of the up-projection of one token, which stands among the operators of the layer.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sim.hardware.device import Device
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import BYTES, Attention, MemoryBound, Precision
from sim.model.transformer import Transformer

# A CTA's split of a sequence is followed by a small kernel that joins the splits.
_LAUNCHES = 2


@dataclass(frozen=True, slots=True)
class CachedLayer:
    """Attention of `layers` equal layers on one rank: the kernel of a prompt, the heads of its
    queries, the elements of a token in the cache (`width`), the elements that are multiplied for
    each head and token in it (`multiplied`), and the tokens of a sequence that it sees at most
    (`window`, 0: all)."""

    kernel: Attention
    heads: int
    width: int
    multiplied: int
    window: int
    layers: int

    def bytes(self, cache: Precision) -> float:
        """Bytes of a token in the caches of these layers on a rank."""
        return self.layers * self.width * BYTES[cache]

    def seen(self, tokens: int) -> int:
        """The tokens of a sequence that stay in the cache."""
        return min(tokens, self.window) if self.window else tokens


def cached_layer(kernel: Attention, model: Transformer, layers: int) -> CachedLayer:
    """The cache of layers with this kernel of attention.

    GQA keeps the keys and values of a rank's heads, latent attention `kv` + `rotary` elements on
    every rank.
    """
    if model.latent:
        width = model.latent.kv + model.latent.rotary
        multiplied = width + model.latent.kv
    else:
        width = kernel.kv_heads * (kernel.head + kernel.values)
        multiplied = kernel.head + kernel.values
    window = model.window or model.chunk
    return CachedLayer(kernel, kernel.heads, width, multiplied, window, layers)


def decode_seconds(
    layers: Iterable[CachedLayer], device: Device, cache: Precision, attention: tuple[str, ...]
) -> dict[int, tuple[float, float]]:
    """For each window, the seconds of the kernels of all its layers, and of each token that they
    read: the longer of bytes over bandwidth and FLOPs over the rate of products."""
    found: dict[int, tuple[float, float]] = {}
    for layer in layers:
        empty = MemoryBound(name="decode attention", bytes=0.0, launches=_LAUNCHES)
        fixed = layer.layers * kernel_time(empty, device, attention)
        read = layer.bytes(cache) / (device.memory_bandwidth * device.stream.bandwidth)
        flops = 2.0 * layer.layers * layer.heads * layer.multiplied
        rate = device.peak_rate(layer.kernel.precision)
        before = found.get(layer.window, (0.0, 0.0))
        found[layer.window] = before[0] + fixed, before[1] + max(read, flops / rate)
    return found


def prefill_seconds(
    layer: CachedLayer, tokens: int, context: int, device: Device, attention: tuple[str, ...]
) -> float:
    """Seconds of attention of a chunk of a prompt, `context` tokens of which are in the cache: each
    token sees the cache, and half of the chunk on average."""
    own = replace(layer.kernel, batch=1, q=tokens, kv=tokens, causal=True, window=layer.window)
    seconds = kernel_time(own, device, attention)
    seen = layer.seen(context)
    if seen:
        ahead = replace(own, kv=seen, causal=False, window=0)
        seconds += kernel_time(ahead, device, attention)
    return layer.layers * seconds
