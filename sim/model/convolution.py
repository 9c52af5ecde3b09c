"""Convolutional networks for images: ResNets of bottleneck blocks, and VGG.

`sim.model.convolution_kernels` says which kernels a convolution is.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import ClassVar, Literal

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.model.convolution_kernels import POOLING, Shape, batch_norm, convolutions
from sim.model.execution import Execution
from sim.model.kernels import BYTES, Item, MemoryBound
from sim.model.operators import Matrix, Operator
from sim.model.stash import Map, kept
from sim.program.causes import DATA
from sim.program.operations import Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualStage:
    """A number of `blocks` of one resolution; `width` is their inner number of channels."""

    blocks: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolutional:
    """The content of `models/NAME.toml` for images of `image` x `image` pixels.

    A `resnet` has a 7x7 stem with pooling, then stages of bottleneck blocks (1x1, 3x3, 1x1 to four
    times the width; He et al. 2016, table 1) with the stride in the 3x3 (v1.5). Each of its
    convolutions has batch norm. A `vgg` has stages of 3x3 convolutions with biases, a pooling
    after each stage, and three linear layers, the inner ones of width `linear` (Simonyan and
    Zisserman 2015, table 1, D for 16 layers). `synchronised` batch norm takes its statistics over
    all data-parallel ranks.

    >>> from sim.model.reading import load
    >>> load("resnet50").source.parameters, load("vgg16").source.parameters
    (25557032, 138357544)
    """

    feature_maps: ClassVar[bool] = True
    divides_tables: ClassVar[bool] = False

    kind: Literal["convolutional"]
    name: str = ""
    family: Literal["resnet", "vgg"]
    image: int = 224
    channels: int = 3
    classes: int = 1000
    stages: tuple[ResidualStage, ...]
    linear: int = 4096
    synchronised: bool = False

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError("stages need blocks and a width; e.g. { blocks = 3, width = 64 }")
        if self.image % 32:
            raise ValueError(f"image = {self.image} is not a multiple of 32; e.g. 224")

    @property
    def layers(self) -> tuple["Layer", ...]:
        """The network's layers in forward order."""
        return _layers(self)

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def inputs(self) -> float:
        """Bytes of an image in fp32."""
        return 4.0 * self.channels * self.image**2

    def handed(self, layer: int, width: float) -> float:
        """Bytes of an image that a layer hands on, in activations of `width` bytes."""
        chosen = self.layers[layer]
        return chosen.outputs * (chosen.pooled or chosen.size) ** 2 * width

    def pulled(self, batch: int) -> "Convolutional":
        """Return the whole network: a worker holds all of it while servers keep its weights."""
        return self

    def check(self, precision: str, device: str) -> None:
        """Raise `InputError` for a precision below 16 bits; the network runs on every device."""
        if BYTES[precision] < 2:
            fault = f"precision = {precision!r} is not modelled for convolutions"
            raise InputError("plan", fault, "set a precision of 16 bits or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A convolution (with `size` 1 a linear layer) and the operators that follow it. `size` is the
    side of the image that the convolution writes, and `pooled` the side after a pooling (0: none).
    `sums` says whether a residual is added."""

    name: str
    inputs: int
    outputs: int
    size: int
    filter: int = 1
    stride: int = 1
    norm: bool = True
    bias: bool = False
    relu: bool = True
    sums: bool = False
    pooled: int = 0
    first: bool = False

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs * self.filter**2

    @property
    def read(self) -> int:
        """Elements of an image that the layer reads."""
        return self.inputs * (self.size * self.stride) ** 2

    @property
    def written(self) -> int:
        """Elements of an image that the layer writes."""
        return self.outputs * self.size**2

    @property
    def parameters(self) -> int:
        return self.weights + self.outputs * (2 * self.norm + self.bias)

    def shape(self, batch: int) -> Shape:
        return Shape(images=batch, inputs=self.inputs, outputs=self.outputs, read=self.read,
                     written=self.written, taps=self.filter**2)  # fmt: skip

    def maps(self, batch: int) -> Iterator[Map]:
        """Yield the feature maps that the backward passes of this layer and the next layer read.
        Batch norm and the next product read their inputs, a ReLU reads the signs of its results. A
        pooling reads which element of a window was the largest."""
        whole = float(batch * self.written)
        if self.norm:
            yield Map(whole)
        if self.pooled:
            window = (self.size // self.pooled) ** 2
            yield Map(whole, "signs")
            yield Map(whole / window, "places")
            yield Map(whole / window, "sparse", window)
        else:
            yield Map(whole, "sparse" if self.relu else "values")


@lru_cache(maxsize=16)
def _layers(model: Convolutional) -> tuple[Layer, ...]:
    return tuple(_resnet(model) if model.family == "resnet" else _vgg(model))


def _resnet(model: Convolutional) -> Iterator[Layer]:
    size, inputs = model.image // 2, model.stages[0].width
    yield Layer(name="stem", inputs=model.channels, outputs=inputs, size=size, filter=7, stride=2,
                pooled=size // 2, first=True)  # fmt: skip
    size //= 2
    for number, stage in enumerate(model.stages):
        for block in range(stage.blocks):
            stride = 2 if block == 0 and number else 1
            yield from _bottleneck(f"{number + 1}.{block}", inputs, stage.width, size, stride)
            size, inputs = size // stride, 4 * stage.width
    yield Layer(name="classes", inputs=inputs, outputs=model.classes, size=1, norm=False, bias=True,
                relu=False)  # fmt: skip


def _bottleneck(name: str, inputs: int, width: int, size: int, stride: int) -> Iterator[Layer]:
    small, outputs = size // stride, 4 * width
    if inputs != outputs:
        yield Layer(name=f"{name} shortcut", inputs=inputs, outputs=outputs, size=small,
                    stride=stride, relu=False)  # fmt: skip
    yield Layer(name=f"{name} reduce", inputs=inputs, outputs=width, size=size)
    yield Layer(name=f"{name} 3x3", inputs=width, outputs=width, size=small, filter=3,
                stride=stride)  # fmt: skip
    yield Layer(name=f"{name} expand", inputs=width, outputs=outputs, size=small, sums=True)


def _vgg(model: Convolutional) -> Iterator[Layer]:
    size, inputs = model.image, model.channels
    for number, stage in enumerate(model.stages):
        for block in range(stage.blocks):
            last = block == stage.blocks - 1
            yield Layer(name=f"{number + 1}.{block}", inputs=inputs, outputs=stage.width, size=size,
                        filter=3, norm=False, bias=True, pooled=size // 2 if last else 0,
                        first=inputs == model.channels)  # fmt: skip
            inputs = stage.width
        size //= 2
    widths = (inputs * size * size, model.linear, model.linear, model.classes)
    for number in range(3):
        yield Layer(name=f"linear {number}", inputs=widths[number], outputs=widths[number + 1],
                    size=1, norm=False, bias=True, relu=number < 2)  # fmt: skip


def operator(layer: Layer, model: Convolutional, run: Execution) -> Operator:
    """Return the operator of a layer, which keeps tensors as the run's stash says. Batch norm
    (cuDNN's), ReLU and residual sum (torch's) are separate kernels; ReLU and residual sum are one
    kernel where the stack says so (`Fusion.sum_relu`)."""
    batch, precision, stash = run.microbatch, run.precision, run.stash
    shared = (_statistics(layer),) if model.synchronised and layer.norm else ()
    product, image, weights = convolutions(layer.name, layer.shape(batch), precision, run.layout)
    maps = [kept(kept_map, BYTES[precision], stash) for kept_map in layer.maps(batch)]
    images = float(batch * BYTES[precision])
    return Operator(
        name=layer.name,
        forward=(
            product,
            *shared,
            *_behind(layer, run, False),
            *(kernel for kept_map in maps for kernel in kept_map.encode),
        ),
        input_gradient=(
            *(kernel for kept_map in maps for kernel in kept_map.decode),
            *shared,
            *reversed(_behind(layer, run, True)),
            *(() if layer.first else (image,)),
        ),
        weight_gradient=(weights,),
        inputs=images * layer.read,
        saved=sum(kept_map.bytes for kept_map in maps),
        # Backward: dy and dx are alive at once, beside the decoded maps.
        transient=images * (layer.read + layer.written) + sum(kept_map.whole for kept_map in maps),
        parameters=layer.parameters,
        matrices=(Matrix(layer.inputs * layer.filter**2, layer.outputs),),
    )


def _statistics(layer: Layer) -> Collective:
    return Collective(kind="all_reduce", axes=("dp",), bytes=8.0 * layer.outputs,
                      name=f"statistics {layer.name}", cause=DATA)  # fmt: skip


def _behind(layer: Layer, run: Execution, backward: bool) -> tuple[Item, ...]:
    """Return norm, residual sum, ReLU and pooling, with the bytes that each reads and writes.
    Forward a ReLU reads x, and a sum reads x and y. Backward a ReLU reads y and dy, and the
    gradients of a residual's two readers are added."""
    whole = float(run.microbatch * layer.written * BYTES[run.precision])
    passes = 3.0 if backward else 2.0
    items: list[Item] = []
    if layer.norm:
        items.append(batch_norm("batch norm", whole, layer.outputs, run.layout, backward))
    if layer.sums and run.fused("sum_relu"):
        passes += 1.0
    elif layer.sums:
        items.append(MemoryBound(name="residual", bytes=3.0 * whole))
    if layer.relu or layer.bias:
        items.append(MemoryBound(name="bias and relu", bytes=passes * whole))
    if layer.pooled:
        less = (layer.pooled / layer.size) ** 2
        items.append(MemoryBound(name="pooling", bytes=POOLING[backward] * (1.0 + less) * whole))
    return tuple(items)
