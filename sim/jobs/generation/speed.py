"""How long the steps of a server take, and how many tokens its cache holds."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

from sim.collectives.group import GroupShape
from sim.config.errors import InputError
from sim.config.units import human_bytes
from sim.engine.machine import Machine
from sim.hardware.kernels.time import kernel_time
from sim.jobs.generation.all_reduce import direct_seconds
from sim.jobs.generation.attention import Affine, CachedLayer, cached_layer
from sim.jobs.generation.engine import Engine
from sim.jobs.generation.layout import Layout
from sim.jobs.generation.leap import Pace
from sim.jobs.generation.passes import Passes, checked, kernels_in
from sim.model.kernels import Item, Lag, Overlap
from sim.model.model import Model
from sim.program.operations import Collective
from sim.program.routed import Routed

Chunk = tuple[int, int]  # tokens of a prompt in a step, and those of it in the cache before
_GRAINS = ((64, 1), (512, 8), (2048, 32), (1 << 62, 128))  # rows up to, and to multiples of


@dataclass(frozen=True, slots=True)
class Steps:
    """Seconds of decode steps of a batch: `device` whatever the caches hold and `slope` for each
    token that attention reads, by window; at least `floor`, and `extra` on top."""

    device: float
    slope: tuple[float, ...]
    floor: float
    extra: float

    def pace(self, read: Sequence[float], growing: Sequence[float]) -> Pace:
        """The steps where attention of each window reads so many tokens in the first, and so many
        more in each further one."""
        first = self.device + sum(s * r for s, r in zip(self.slope, read, strict=True))
        more = sum(s * g for s, g in zip(self.slope, growing, strict=True))
        return Pace(first, more, self.floor, self.extra)


@dataclass(eq=False)
class Speed:
    """The steps of one server: a model in a layout on a machine, run by an engine.

    The server takes the first GPUs of the machine. Raises `InputError` where the model does not
    fit, or the layout does not divide it.
    """

    model: Model
    machine: Machine
    engine: Engine
    layout: Layout = field(default_factory=Layout)
    where: str = "generation"

    def __post_init__(self) -> None:
        self.layout.check(self.model, self.where)
        device, stack = self.machine.topology.device, self.engine.stack
        self.passes = Passes(checked(self.model, self.where), self.layout, stack, device)
        device.peak_rate(self.layout.precision)
        if self.cache_tokens < self.engine.block:
            need, room = human_bytes(self.weights), human_bytes(self._room)
            fault = f"weights take {need} of each GPU's {room}, which leaves no room for a cache"
            raise InputError(self.where, fault, "raise tp or pp, or lower precision")

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
        """The windows of attention, 0 for layers that see everything; one entry each."""
        return tuple(sorted({layer.window for layer in self.layers}))

    @cached_property
    def window_bytes(self) -> tuple[float, ...]:
        """Bytes of a token in the caches of a GPU, by window of the layers."""
        each = dict.fromkeys(self.windows, 0.0)
        for layer in self.layers:
            each[layer.window] += layer.bytes(self.layout.cache) / self.layout.pp
        return tuple(each.values())

    @property
    def bytes_per_token(self) -> float:
        """Bytes of a token in the cache of a GPU, of a sequence no longer than any window."""
        return sum(self.window_bytes)

    @property
    def cache_bytes(self) -> float:
        """Bytes of a GPU that the cache may take."""
        return self._room - self.weights - self.engine.workspace

    @property
    def cache_tokens(self) -> int:
        """Tokens that the caches of the server's sequences hold together, in whole blocks, of
        sequences no longer than any window."""
        block = self.engine.block
        blocks = int(max(self.cache_bytes, 0.0) / (block * self.bytes_per_token))
        return self.layout.dp * blocks * block

    @property
    def _room(self) -> float:
        return self.engine.memory * self.machine.topology.device.usable_memory

    # --- Seconds ----------------------------------------------------------------------------------

    def decode(self, batch: int, context: float) -> float:
        """Seconds of a decode step of `batch` sequences with `context` tokens in their caches
        altogether, equally long."""
        read = [min(context, batch * w) if w else context for w in self.windows]
        return self.steps(batch).pace(read, read).seconds(1)

    def prefill(self, tokens: int, context: int = 0) -> float:
        """Seconds of a step on `tokens` of a prompt of which `context` tokens are in the cache."""
        return self.step(0, [0.0] * len(self.windows), ((tokens, context),))

    def steps(self, batch: int) -> Steps:
        """The decode steps of so many sequences, for any lengths of their caches."""
        known = self._steps.get(batch)
        if known is None:
            rows, pp, dp = self._micro(batch), self.layout.pp, self.layout.dp
            seconds, launches = self._rows(rows)
            device = pp * (seconds + self._ends(rows))
            device += sum(a.floor + a.sequence * batch / dp for a in self._attention)
            slopes = tuple(a.token / dp for a in self._attention)
            launches = pp * launches if rows > self.engine.graphs else 0.0
            known = self._steps[batch] = Steps(device, slopes, *self._waits(batch, launches))
        return known

    def step(self, batch: int, read: Sequence[float], chunks: Iterable[Chunk]) -> float:
        """Seconds of a step in which `batch` sequences decode, whose attention reads so many tokens
        by window, beside chunks of prompts."""
        chunks = tuple(chunks)
        tokens = batch + sum(tokens for tokens, _ in chunks)
        rows, emitted = self._micro(tokens), self._micro(batch + len(chunks))
        seconds, launches = self._rows(rows)
        pp, dp = self.layout.pp, self.layout.dp
        device = pp * (seconds + self._ends(emitted))
        if batch:
            for attention, seen in zip(self._attention, read, strict=True):
                device += attention.seconds(batch / dp, seen / dp)
        device += sum(self._chunk(tokens, context) for tokens, context in chunks) / dp
        launches = pp * launches if rows > self.engine.graphs else 0.0
        floor, extra = self._waits(batch + len(chunks), launches)
        return max(device, floor) + extra

    def _waits(self, sequences: int, launches: float) -> tuple[float, float]:
        """What a step takes at least, and on top, for its host."""
        host = self.engine.step + self.engine.sequence * sequences
        return (max(host, launches), 0.0) if self.engine.overlaps else (launches, host)

    @cached_property
    def _steps(self) -> dict[int, Steps]:
        return {}

    @cached_property
    def _known_rows(self) -> dict[int, tuple[float, float]]:
        return {}

    @cached_property
    def _known_ends(self) -> dict[int, float]:
        return {}

    @cached_property
    def _known_chunks(self) -> dict[Chunk, float]:
        return {}

    @cached_property
    def _attention(self) -> tuple[Affine, ...]:
        """Attention of a decode step, by window."""
        device, offered = self.machine.topology.device, self.engine.stack.attention
        each = dict.fromkeys(self.windows, Affine(0.0, 0.0, 0.0))
        for layer in self.layers:
            each[layer.window] += layer.decode(device, self.layout.cache, offered)
        return tuple(each.values())

    def _micro(self, sequences: int) -> int:
        """Rows of a microbatch: dp groups and pp microbatches share the sequences."""
        return ceil(sequences / (self.layout.dp * self.layout.pp))

    def _rows(self, rows: int) -> tuple[float, float]:
        """Device and launching seconds of the layers on so many rows, a stage's share."""
        rows = _padded(rows)
        if rows not in self._known_rows:
            items = list(self.passes.body(rows))
            device = sum(often * self._seconds(item) for item, often in items)
            launched = sum(often * self._launches(item) for item, often in items)
            pp = self.layout.pp
            self._known_rows[rows] = (
                device / pp + (self._sent(rows) if pp > 1 else 0.0),
                launched / pp + self.engine.stack.layer_forward * self.model.layers / pp,
            )
        return self._known_rows[rows]

    def _ends(self, rows: int) -> float:
        """Device seconds of the head, a stage's share."""
        rows = _padded(rows)
        if rows not in self._known_ends:
            items = self.passes.head(rows)
            seconds = sum(often * self._seconds(item) for item, often in items)
            self._known_ends[rows] = seconds / self.layout.pp
        return self._known_ends[rows]

    def _chunk(self, tokens: int, context: int) -> float:
        key = _padded(tokens), _padded(context) if context else 0
        if key not in self._known_chunks:
            device, offered = self.machine.topology.device, self.engine.stack.attention
            self._known_chunks[key] = sum(
                layer.prefill(*key, device, offered) for layer in self.layers
            )
        return self._known_chunks[key]

    def _sent(self, rows: int) -> float:
        """Seconds in which a stage hands the rows on."""
        size = rows * self.model.hidden * 2.0
        stride = self.layout.ranks
        return self._call("send_recv", size, 2, stride)

    def _seconds(self, item: Item) -> float:
        """Seconds of a kernel or a collective by itself."""
        device, offered = self.machine.topology.device, self.engine.stack.attention
        if isinstance(item, Collective):
            return self._collective(item)
        if isinstance(item, Overlap):
            own = sum(kernel_time(kernel, device, offered) for kernel in item.kernels)
            return max(own, self._collective(item.collective))
        if isinstance(item, Lag):
            full = sum(kernel_time(kernel, device, offered) for kernel in item.fullest)
            return max(0.0, full - sum(kernel_time(k, device, offered) for k in item.own))
        return sum(kernel_time(kernel, device, offered) for kernel in kernels_in(item))

    def _launches(self, item: Item) -> float:
        stack = self.engine.stack
        if isinstance(item, Collective):
            return stack.launch_collective
        return stack.launch_forward * sum(kernel.launches for kernel in kernels_in(item))

    def _collective(self, call: Collective) -> float:
        """Seconds of a collective whose group has its links to itself: tp and etp ranks are
        neighbours, ep ranks lie etp apart."""
        layout = self.layout
        axis = "".join(call.axes)
        ranks = {"tp": layout.tp, "etp": layout.etp, "ep": layout.ep, "": 1}[axis]
        stride = layout.etp if axis == "ep" else 1
        if ranks == 1:
            return 0.0
        library = call.times * self._call(call.kind, call.bytes, ranks, stride, call.routed)
        direct = self._direct(call, ranks) if axis == "tp" else None
        return library if direct is None else min(library, direct)

    def _direct(self, call: Collective, ranks: int) -> float | None:
        """Seconds of the engine's own kernels, where it would run them."""
        topology = self.machine.topology
        switched = topology.node is not None and topology.node.switched
        if not switched or ranks > topology.gpus_per_node or call.bytes > self.engine.direct:
            return None
        return direct_seconds(call.kind, call.bytes, ranks, topology.device.generation)

    def _call(
        self, kind: str, size: float, ranks: int, stride: int, routed: Routed | None = None
    ) -> float:
        each = min(ranks, max(1, self.machine.topology.gpus_per_node // stride))
        shape = GroupShape(ranks=ranks, nodes=ceil(ranks / each), per_node=each)
        call = self.machine.call(kind, size, shape, routed)
        return call.duration(self.machine.call_cost(kind, size, shape, routed))


def _padded(rows: int) -> int:
    """Rows rounded up, as CUDA graphs are captured for some sizes only.

    >>> [_padded(rows) for rows in (5, 65, 1000, 5000)]
    [5, 72, 1024, 5120]
    """
    grain = _GRAINS[bisect_left([most for most, _ in _GRAINS], rows)][1]
    return grain * ceil(rows / grain)
