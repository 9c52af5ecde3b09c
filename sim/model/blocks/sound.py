"""The embedding of sound: convolutions over time in place of words.

Whisper has two convolutions over a spectrogram, and then adds fixed positions (Radford et al. 2022,
arXiv 2212.04356, section 2.2). wav2vec 2.0 has convolutions over the wave, followed by a projection
and a convolution for positions (Baevski et al. 2020, arXiv 2006.11477, section 2). Every
tensor-parallel rank holds the whole embedding.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from sim.config.dataclass import dataclass
from sim.model.blocks.embedding import behind
from sim.model.convolution_kernels import Shape, convolutions
from sim.model.execution import Execution
from sim.model.feed_forward import gelu
from sim.model.kernels import MemoryBound
from sim.model.linear import Linear, accumulate, bias_add, bias_gradient
from sim.model.operators import Matrix, Operator, normalise

LAYER = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """Keys of an embedding of sound.

    Convolutions with `widths` output channels run over `channels` of sound, each with its `taps`
    and `strides`; a norm follows the first or each of them (`norms`). With `projected` a norm and a
    linear layer to the hidden width follow. With `masked` a learned vector replaces hidden frames.
    A convolution of `position_taps` in `position_groups` makes the positions that are added; with 0
    taps fixed positions are added.

    Raises `ValueError` for lists of different lengths.
    """

    channels: int
    widths: tuple[int, ...]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    bias: bool = True
    norms: Literal["none", "first", "all"] = "none"
    projected: bool = False
    masked: bool = False
    position_taps: int = 0
    position_groups: int = 1

    def __post_init__(self) -> None:
        if not len(self.widths) == len(self.taps) == len(self.strides) > 0:
            raise ValueError("widths, taps and strides must be lists of equal length")


SETTINGS = Sound


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    return (*_convolutions(run), *_projected(run), *_positions(run), *behind(run))


def _convolutions(run: Execution) -> Iterator[Operator]:
    sound: Sound = run.block
    frames, channels = [run.seq], sound.channels
    for stride in reversed(sound.strides):
        frames.insert(0, frames[0] * stride)
    rows = zip(sound.widths, sound.taps, frames[:-1], frames[1:], strict=True)
    for number, (width, taps, read, written) in enumerate(rows):
        shape = Shape(images=run.microbatch, inputs=channels, outputs=width, read=channels * read,
                      written=width * written, taps=taps)  # fmt: skip
        name, elements = f"convolution {number}", run.microbatch * written
        yield _convolution(run, name, shape, bias=sound.bias, first=number == 0)
        if sound.norms == "all" or (sound.norms == "first" and number == 0):
            yield normalise(run, f"{name} norm", elements, width=width, residual=False)
        yield gelu(run, elements * width)
        channels = width


def _convolution(
    run: Execution, name: str, shape: Shape, *, bias: bool, first: bool = False
) -> Operator:
    """Return a convolution, which keeps its input. The `first` convolution makes no gradient of its
    input, the sound."""
    product, image, weights = convolutions(name, shape, run.precision, run.layout)
    read, written = (float(run.microbatch * each) for each in (shape.read, shape.written))
    biases = bias_add(run, name, written) if bias else ()
    back = bias_gradient(run, name, written) if bias else ()
    return Operator(
        name=name,
        forward=(product, *biases),
        input_gradient=() if first else (image,),
        weight_gradient=(weights, *back, *accumulate(run, name, shape.weights)),
        inputs=read * run.width,
        saved_for_weights=read * run.width,
        made=read * run.width if first else 0.0,
        handed=written * run.width,
        transient=(read + written) * run.width,
        parameters=float(shape.weights + shape.outputs * bias),
        matrices=(Matrix(shape.weights // shape.outputs, shape.outputs, hidden=False),),
    )


def _projected(run: Execution) -> Iterator[Operator]:
    sound, hidden = run.block, run.model.hidden
    if not sound.projected:
        return
    inputs = sound.widths[-1]
    yield normalise(run, "sound norm", run.rows, width=inputs, residual=False)
    linear = Linear(
        run=run, name="sound", rows=run.rows, inputs=inputs, outputs=(hidden,), bias=True
    )
    made = linear.operator
    yield replace(made, parameters=made.parameters + hidden * sound.masked)


def _positions(run: Execution) -> Iterator[Operator]:
    """Yield the operators that make positions and add them to the frames. The weights of a
    convolution for positions are a direction and a length for each tap (weight normalisation)."""
    sound, hidden, rows = run.block, run.model.hidden, run.rows
    if sound.position_taps:
        size = hidden * run.seq
        shape = Shape(images=run.microbatch, inputs=hidden, outputs=hidden, read=size, written=size,
                      taps=sound.position_taps, groups=sound.position_groups)  # fmt: skip
        made = _convolution(run, "positions", shape, bias=True)
        yield replace(made, parameters=made.parameters + sound.position_taps)
        yield gelu(run, rows * hidden)
    added = MemoryBound(name="add positions", bytes=float(3 * rows * hidden * run.width))
    yield Operator(name="add positions", forward=(added,))
