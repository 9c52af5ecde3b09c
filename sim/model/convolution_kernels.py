"""Which kernels does a convolution run on a device, forward and for its two gradients?

A convolution is an implicit matrix product: a row for each pixel of all images, a column for each
filter (Chetlur et al. 2014, cuDNN). It reads its image once, not once for each tap of the filter.
Tensor cores take images whose channels lie together (NHWC). In the other layout (NCHW), cuDNN
copies operands and results from one layout to the other. A pointwise product needs no copies if the
rows of its images begin at multiples of 16 bytes: the images are then a batch of matrices.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from sim.config.dataclass import dataclass
from sim.model.fusion import Layout
from sim.model.kernels import BYTES, Gemm, MemoryBound, Precision

# Rates of fp32 kernels relative to cuBLAS, from a trace of ResNet-50 on V100 (docs/kernels.md).
# Winograd's F(2 x 2, 3 x 3) has 1 / 2.25 of the multiplications (Lavin and Gray 2016, section 4.1).
WINOGRAD, DIRECT = 1.8, 0.85

# Bytes moved per byte of an image, forward and backward, from traces of ResNet-50 on V100 and A100.
# Batch norm reads x (backward x and dy) twice, in rows of channels at about 0.92 of a copy's rate.
# Torch gathers pooling's gradient for each pixel (max_pool_backward_nchw).
NORM, POOLING = (3.2, 5.5), (1.0, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution(Gemm):
    """A product that reads `image` elements of images and writes `result` elements. On tensor cores
    changes of layout move `moved` bytes; on other cores the kernel is Winograd's algorithm
    (`winograd`) or a direct product. A share `sums` of the FLOPs is summed over pixels."""

    # cuDNN pads channels for tensor cores (cuDNN developer guide, tensor core operations).
    pads: ClassVar[bool] = True
    splits: ClassVar[int] = 128  # CTAs that may share the pixels over which weights' gradients sum

    image: int = 0
    result: int = 0
    moved: float = 0.0
    winograd: bool = False
    sums: float = 0.0

    @property
    def bytes(self) -> float:
        """Bytes of the image and the weights, read once, and of the result, written once."""
        width = BYTES[self.precision]
        weights = min(self.m * self.n, self.n * self.k, self.m * self.k)
        return float((self.image + self.result + weights) * width)

    @property
    def gathered(self) -> float:
        return self.sums

    @property
    def copied(self) -> float:
        return 0.0 if self.precision == "fp32" else self.moved

    @property
    def speed(self) -> float:
        if self.precision != "fp32":
            return self.rate
        return self.rate * (WINOGRAD if self.winograd else DIRECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A convolution of `images` with `taps` weights for each pair of channels, in `groups`.

    `read` and `written` are the elements of an image and of its result.
    """

    images: int
    inputs: int
    outputs: int
    read: int
    written: int
    taps: int = 1
    groups: int = 1

    @property
    def pixels(self) -> int:
        """Pixels of a result."""
        return self.written // self.outputs

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs * self.taps // self.groups

    @property
    def strided(self) -> bool:
        return self.read // self.inputs > self.pixels

    def lies(self, precision: Precision, layout: Layout) -> bool:
        """Whether tensor cores can read images in NCHW without a copy."""
        if layout == "nhwc" or precision == "fp32" or self.taps > 1 or self.strided:
            return False
        return self.pixels * BYTES[precision] % 16 == 0


def convolutions(
    name: str, shape: Shape, precision: Precision, layout: Layout
) -> tuple[Convolution, Convolution, Convolution]:
    """Return the forward product, the gradient of the image and the gradient of the weights."""
    read, written = shape.images * shape.read, shape.images * shape.written
    inputs, outputs = shape.inputs // shape.groups, shape.outputs // shape.groups
    pixels, seen = shape.pixels, max(shape.read // shape.inputs, shape.pixels)
    matrices = shape.lies(precision, layout)
    batch, images = (shape.images, 1) if matrices else (1, shape.images)
    winograd = shape.taps == 9 and not shape.strided
    width, moved, parts = BYTES[precision], 0.0, 0.0
    if matrices:  # Each image makes a part of the weights' gradient, which is written and read.
        parts = 4.0 * batch * shape.weights
    elif layout == "nchw":
        moved = 2.0 * width * (read + written + shape.weights)
    return (
        Convolution(
            name=name,
            m=images * pixels,
            n=outputs,
            k=inputs * shape.taps,
            batch=batch * shape.groups,
            precision=precision,
            image=read,
            result=written,
            moved=moved,
            winograd=winograd,
        ),
        Convolution(
            name=f"{name} image",
            m=images * seen,
            n=inputs,
            k=max(outputs * shape.taps * pixels // seen, 1),
            batch=batch * shape.groups,
            precision=precision,
            image=written,
            result=read,
            moved=moved,
            winograd=winograd,
        ),
        Convolution(
            name=f"{name} weights",
            m=outputs,
            n=inputs * shape.taps,
            k=images * pixels,
            batch=batch * shape.groups,
            precision=precision,
            image=read + written,
            moved=moved + parts,
            winograd=winograd,
            sums=1.0,
        ),
    )


def batch_norm(
    name: str, image: float, channels: int, layout: Layout, backward: bool
) -> MemoryBound:
    """Return cuDNN's batch norm of `image` bytes. Its kernels for NCHW have a CTA for each channel
    (bn_fw_tr_1C11, bn_bw_1C11)."""
    ctas = 0 if layout == "nhwc" else channels
    return MemoryBound(name=name, bytes=NORM[backward] * image, ctas=ctas)


def together(products: Sequence[Convolution]) -> Convolution:
    """Return the gradients in `products` as one batch of products of the first product's shape."""
    first, count = products[0], len(products)
    if count == 1:
        return first
    return replace(
        first,
        name=first.name.rpartition(" ")[0],
        batch=count * first.batch,
        image=sum(product.image for product in products),
        result=sum(product.result for product in products),
        moved=sum(product.moved for product in products),
        sums=sum(product.sums for product in products) / count,
    )
