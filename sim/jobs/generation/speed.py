"""How long the steps of a server take, and how many tokens its cache holds."""

from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import cached_property
from math import ceil

from sim.config.dataclass import dataclass
from sim.config.errors import FitError, InputError
from sim.config.readable import human_bytes
from sim.engine.machine import Machine
from sim.jobs.generation.attention import Affine, CachedLayer, cached_layer
from sim.jobs.generation.engine import Engine
from sim.jobs.generation.layout import Layout
from sim.jobs.generation.leap import Pace
from sim.jobs.generation.passes import Passes, checked
from sim.jobs.generation.timing import Parts, Timing
from sim.model.model import Model

Chunk = tuple[int, int]  # tokens of a prompt that a step computes, and cached tokens before them


@dataclass(frozen=True, slots=True)
class Steps:
    """Seconds of decode steps of a batch. The device takes `device` seconds with empty caches, and
    `slope` seconds for each token that attention reads, by window, but at least `floor` in all.
    `extra` comes on top."""

    device: float
    slope: tuple[float, ...]
    floor: float
    extra: float

    def pace(self, read: Sequence[float], growing: Sequence[float]) -> Pace:
        """The pace of steps whose attention, by window, reads `read` tokens in the first step and
        `growing` more tokens in each further step."""
        first, more = self.device, 0.0
        for slope, tokens, further in zip(self.slope, read, growing, strict=True):
            first += slope * tokens
            more += slope * further
        return Pace(first, more, self.floor, self.extra)


@dataclass(eq=False)
class Speed:
    """The steps of one server: a model in a layout on a machine, run by an engine.

    The server takes the first GPUs of the machine. Raises `FitError` if the model does not fit, and
    `InputError` if the layout does not divide the model.
    """

    model: Model
    machine: Machine
    engine: Engine
    layout: Layout = field(default_factory=Layout)
    where: str = "generation"
    _steps: dict[int, Steps] = field(default_factory=dict, init=False, repr=False)
    _bodies: dict[int, Parts] = field(default_factory=dict, init=False, repr=False)
    _heads: dict[int, Parts] = field(default_factory=dict, init=False, repr=False)
    _chunks: dict[Chunk, float] = field(default_factory=dict, init=False, repr=False)
    _scans: dict[int, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.layout.check(self.model, self.where)
        stack = self.engine.stack
        # The GPUs of a server wait for one another; GPUs of different servers do not.
        self.device = device = self.machine.topology.device.among(self.layout.gpus)
        self._timing = Timing(self.machine, device, self.engine, self.layout)
        self.passes = Passes(checked(self.model, self.where), self.layout, stack)
        device.peak_rate(self.layout.precision, self.where)
        if not self.layers:
            fault = "all layers have states in place of attention, so no tokens are cached"
            raise InputError(self.where, fault, "name a model with some attention")
        if self.cache_tokens < self.engine.block:
            need, room = human_bytes(self.weights), human_bytes(self._room)
            fault = f"weights take {need} of each GPU's {room}, which leaves no room for a cache"
            raise FitError(self.where, fault, "raise tp or pp, or lower precision")

    # --- Memory -----------------------------------------------------------------------------------

    @property
    def weights(self) -> float:
        """Bytes of weights on the fullest GPU."""
        return self.passes.parameter_bytes

    @cached_property
    def layers(self) -> tuple[CachedLayer, ...]:
        """The caches of a rank that has all layers."""
        return tuple(cached_layer(*core) for core in self.passes.cores)

    @cached_property
    def windows(self) -> tuple[int, ...]:
        """The different windows of attention, ascending; 0 is for layers without a window."""
        return tuple(sorted({layer.window for layer in self.layers}))

    @cached_property
    def window_bytes(self) -> tuple[float, ...]:
        """Bytes that a token takes in the caches of a GPU, by window of the layers."""
        each = dict.fromkeys(self.windows, 0.0)
        for layer in self.layers:
            each[layer.window] += layer.bytes(self.layout.cache) / self.layout.pp
        return tuple(each.values())

    @cached_property
    def state_bytes(self) -> float:
        """Bytes of a sequence's states on a GPU; the sequence's length does not matter."""
        return self.passes.state_bytes / self.layout.pp

    @property
    def bytes_per_token(self) -> float:
        """Bytes that a token takes in the cache of a GPU, if its sequence exceeds no window."""
        return sum(self.window_bytes)

    @property
    def cache_bytes(self) -> float:
        """Bytes of a GPU's memory that the cache may take."""
        return self._room - self.weights - self.engine.workspace

    @property
    def cache_tokens(self) -> int:
        """How many tokens the server's caches hold in all, in whole blocks, if sequences exceed no
        window."""
        block = self.engine.block
        blocks = int(max(self.cache_bytes, 0.0) / (block * self.bytes_per_token))
        return self.layout.dp * blocks * block

    @property
    def room(self) -> float:
        """Bytes of the caches of all GPUs that have sequences of their own."""
        return self.layout.dp * self.cache_bytes

    @property
    def memory(self) -> dict[str, float]:
        """Bytes of the fullest GPU by part."""
        workspace = self.engine.workspace
        return {"weights": self.weights, "cache": self.cache_bytes, "workspace": workspace}

    @property
    def _room(self) -> float:
        return self.engine.memory * self.device.usable_memory

    # --- Seconds ----------------------------------------------------------------------------------

    def decode(self, batch: int, context: float) -> float:
        """Seconds of a decode step of `batch` equally long sequences with `context` tokens in all
        their caches together."""
        read = self._read(batch, context)
        return self.steps(batch).pace(read, read).seconds(1)

    def prefill(self, tokens: int, context: int = 0) -> float:
        """Seconds of a step on `tokens` tokens of a prompt after its `context` cached tokens."""
        return self.step(0, [0.0] * len(self.windows), ((tokens, context),))

    def account(self, batch: int, context: float) -> dict[str, float]:
        """Seconds of a decode step by part, the longest first."""
        rows, read = self._micro(batch), self._read(batch, context)
        parts = self._body(rows).plus(self._head(rows))
        seconds = {
            "products": parts.products,
            "attention": self._attending(batch, read),
            "communication": parts.communication,
            "other kernels": parts.others,
        }
        seconds["host"] = self.decode(batch, context) - sum(seconds.values())
        return dict(sorted(seconds.items(), key=lambda part: -part[1]))

    def steps(self, batch: int) -> Steps:
        """The decode steps of `batch` sequences, for any lengths of their caches."""
        known = self._steps.get(batch)
        if known is None:
            rows, shares = self._micro(batch), self._shares
            parts = self._body(rows).plus(self._head(rows))
            device = parts.device + sum(a.seconds(batch / shares, 0) for a in self._attention)
            slopes = tuple(a.token / shares for a in self._attention)
            waits = self._waits(batch, rows, parts)
            known = self._steps[batch] = Steps(device, slopes, *waits)
        return known

    def step(self, batch: int, read: Sequence[float], chunks: Iterable[Chunk]) -> float:
        """Seconds of a step in which `batch` sequences decode beside `chunks` of prompts; their
        attention reads `read` tokens, by window."""
        chunks = tuple(chunks)
        rows = self._micro(batch + sum(tokens for tokens, _ in chunks))
        sequences = batch + len(chunks)
        parts = self._body(rows).plus(self._head(self._micro(sequences)))
        device = parts.device + self._attending(batch, read)
        device += sum(self._chunk(*chunk) for chunk in chunks) / self._shares
        floor, extra = self._waits(sequences, rows, parts)
        return max(device, floor) + extra

    def _read(self, batch: int, context: float) -> list[float]:
        """Tokens that attention reads, by window."""
        return [min(context, batch * window) if window else context for window in self.windows]

    def _attending(self, batch: int, read: Sequence[float]) -> float:
        """Seconds of attention of sequences that decode."""
        if not batch:
            return 0.0
        each = zip(self._attention, read, strict=True)
        return sum(a.seconds(batch / self._shares, seen / self._shares) for a, seen in each)

    def _waits(self, sequences: int, rows: int, parts: Parts) -> tuple[float, float]:
        """The host's least seconds of a step, and the seconds that it adds to the device's. The
        engine's constants hold for the hosts of H100s; `pace` scales them to this host."""
        engine, pace = self.engine, self.device.host
        host = pace * (engine.step + engine.sequence * sequences)
        launches = pace * parts.launches if rows > engine.graphs else 0.0
        return (max(host, launches), 0.0) if engine.overlaps else (launches, host)

    @property
    def _shares(self) -> int:
        """The number of groups of sequences on which a server works at a time: each of `dp` groups
        of ranks has a microbatch on each of `pp` stages."""
        return self.layout.dp * self.layout.pp

    def _micro(self, sequences: int) -> int:
        """Rows of a rank's pass when the server works on `sequences` rows."""
        return ceil(sequences / self._shares)

    @cached_property
    def _attention(self) -> tuple[Affine, ...]:
        """Seconds of attention in a decode step, by window; the first entry includes the states."""
        device, offered = self.device, self.engine.stack.attention
        each = dict.fromkeys(self.windows, Affine(0.0, 0.0, 0.0))
        for layer in self.layers:
            each[layer.window] += layer.decode(device, self.layout.cache, offered)
        each[self.windows[0]] += self._states
        return tuple(each.values())

    @property
    def _states(self) -> Affine:
        """The seconds of states in a decode step: a kernel in each layer reads and writes them."""
        stream, moved = self.device.stream, 2.0 * self.passes.state_bytes
        seconds = moved / (self.device.memory_bandwidth * stream.bandwidth)
        return Affine(self.passes.state_layers * (stream.floor + stream.gap), seconds, 0.0)

    def _body(self, rows: int) -> Parts:
        """Seconds of all layers on `rows` rows: a microbatch's way through all stages."""
        rows = _padded(rows)
        if rows not in self._bodies:
            parts = self._timing.of(self.passes.body(rows))
            host = self.engine.stack.layer_forward * self.model.layers
            pp, size = self.layout.pp, rows * self.model.hidden * 2.0
            sent = (
                pp * self._timing.call("send_recv", size, 2, self.layout.ranks) if pp > 1 else 0.0
            )
            self._bodies[rows] = parts.plus(Parts(communication=sent, launches=host))
        return self._bodies[rows]

    def _head(self, rows: int) -> Parts:
        """Seconds of the head on `rows` sequences."""
        rows = _padded(rows)
        if rows not in self._heads:
            self._heads[rows] = self._timing.of(self.passes.head(rows))
        return self._heads[rows]

    def _chunk(self, tokens: int, context: int) -> float:
        """Seconds of attention and states of a chunk of a prompt."""
        key = _padded(tokens), _padded(context) if context else 0
        if key not in self._chunks:
            device, offered = self.device, self.engine.stack.attention
            seconds = (layer.prefill(*key, device, offered) for layer in self.layers)
            self._chunks[key] = sum(seconds) + self._scan(key[0])
        return self._chunks[key]

    def _scan(self, tokens: int) -> float:
        """Seconds of the states of a chunk; tokens before the chunk do not matter."""
        if tokens not in self._scans:
            scans = self.passes.scans(tokens) if self.passes.state_layers else ()
            self._scans[tokens] = self._timing.of(scans).device
        return self._scans[tokens]


def _padded(rows: int) -> int:
    """Rows rounded up to a size for which a CUDA graph is captured.

    >>> [_padded(rows) for rows in (5, 65, 1000, 5000)]
    [5, 72, 1024, 5120]
    """
    if rows <= 64:
        return rows
    grain = 8 if rows <= 512 else 32 if rows <= 2048 else 128
    return -(-rows // grain) * grain
