"""The work of one worker in a step: seconds and parameters, layer by layer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from math import ceil, isqrt

from sim.config.dataclass import dataclass
from sim.jobs.sharing.tables import MeasuredStep


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedLayer:
    """A layer, or several layers: seconds of the passes, the number of parameters, and the rows and
    columns of its `matrices`. Unknown matrices count as a single matrix, as square as possible."""

    forward: float
    backward: float
    parameters: float
    matrices: tuple[tuple[int, int], ...] | None = None

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """The rows and columns of its matrices."""
        if self.matrices is None:
            rows = max(1, isqrt(int(self.parameters)))
            return ((rows, int(self.parameters) // rows),)
        return self.matrices


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A step of a worker on an idle device: layers in forward order, then the optimizer.

    `width` is the bytes of a parameter (and of a gradient) on the wire, `batch` the samples of a
    step. `stored` is the number of parameters on servers if a worker pulls only some of them.
    `inputs` and `outputs` are the bytes of a sample and of the model's outputs for it. The host
    takes `launches` seconds to launch a forward pass, `launch` for a kernel, `call` for a
    collective. `memory` is the bandwidth of the device's memory (B/s) if it differs from the
    machine's. If the worker is a group whose GPUs each hold a piece of the weights (`in_pieces`),
    `spent` has its seconds by cause. `held` are the bytes by part on the fullest GPU at the peak of
    a step (empty if unknown); its memory has `room` bytes.
    """

    layers: tuple[TimedLayer, ...]
    optimizer: float = 0.0
    width: float = 4.0
    batch: int = 1
    stored: float = 0.0
    inputs: float = 0.0
    outputs: float = 0.0
    launches: float = 0.0
    launch: float = 0.0
    call: float = 0.0
    memory: float = 0.0
    in_pieces: bool = False
    spent: Mapping[str, float] = field(default_factory=dict)
    held: Mapping[str, float] = field(default_factory=dict)
    room: float = 0.0

    @classmethod
    def plain(cls, seconds: float, parameters: float, **options: float) -> "Workload":
        """A single layer that takes `seconds`, a third of them in the forward pass."""
        layer = TimedLayer(forward=seconds / 3, backward=seconds * 2 / 3, parameters=parameters)
        return cls(layers=(layer,), **options)  # type: ignore[arg-type]

    @classmethod
    def measured(cls, step: MeasuredStep, *, width: float, batch: int) -> "Workload":
        """A step that was measured, cut into equal layers.

        >>> step = MeasuredStep(forward=0.1, backward=0.2, parameters=1e6, layers=2)
        >>> Workload.measured(step, width=4.0, batch=32).layers[0]
        TimedLayer(forward=0.05, backward=0.1, parameters=500000.0, matrices=None)
        """
        layer = TimedLayer(
            forward=step.forward / step.layers,
            backward=step.backward / step.layers,
            parameters=step.parameters / step.layers,
        )
        layers = (layer,) * step.layers
        return cls(layers=layers, optimizer=step.optimizer, width=width, batch=batch)

    @property
    def forward(self) -> float:
        return sum(layer.forward for layer in self.layers)

    @property
    def backward(self) -> float:
        return sum(layer.backward for layer in self.layers)

    @property
    def seconds(self) -> float:
        return self.forward + self.backward

    @property
    def parameters(self) -> float:
        return sum(layer.parameters for layer in self.layers)

    @property
    def whole(self) -> TimedLayer:
        """All layers joined into one."""
        return joined(self.layers)

    def fragment(self, number: int, count: int) -> TimedLayer:
        """Every `count`-th layer from layer `number` on; with fewer than `count` layers, an equal
        share of each layer.

        >>> work = Workload.plain(3.0, 12.0)
        >>> work.fragment(1, 4).parameters, work.fragment(0, 1) == work.whole
        (3.0, True)
        """
        if len(self.layers) >= count:
            return joined(self.layers[number::count])
        whole = self.whole
        return TimedLayer(
            forward=whole.forward / count,
            backward=whole.backward / count,
            parameters=whole.parameters / count,
            matrices=tuple((max(1, rows // count), columns) for rows, columns in whole.shapes),
        )

    def most_buckets(self, size: float) -> int:
        """The largest possible number of buckets of at least `size` bytes."""
        return min(len(self.layers), ceil(self.bytes / size) if size else len(self.layers))

    @property
    def bytes(self) -> float:
        """Bytes of all gradients, or of all weights, on the wire."""
        return self.parameters * self.width


def buckets(layers: Sequence[TimedLayer], *, parameters: float) -> tuple[TimedLayer, ...]:
    """Join layers, from the last on, into buckets of at least `parameters` parameters; return the
    buckets in forward order.

    >>> layer = TimedLayer(forward=1.0, backward=2.0, parameters=5.0)
    >>> [bucket.parameters for bucket in buckets([layer] * 3, parameters=8.0)]
    [5.0, 10.0]
    """
    return tuple(reversed(list(_filled(layers, parameters))))


def _filled(layers: Sequence[TimedLayer], parameters: float) -> Iterator[TimedLayer]:
    bucket: list[TimedLayer] = []
    for layer in reversed(layers):
        bucket.append(layer)
        if sum(held.parameters for held in bucket) >= parameters:
            yield joined(bucket)
            bucket = []
    if bucket:
        yield joined(bucket)


def joined(layers: Sequence[TimedLayer]) -> TimedLayer:
    """Join layers into one, which has all their matrices."""
    return TimedLayer(
        forward=sum(layer.forward for layer in layers),
        backward=sum(layer.backward for layer in layers),
        parameters=sum(layer.parameters for layer in layers),
        matrices=tuple(shape for layer in layers for shape in layer.shapes),
    )
