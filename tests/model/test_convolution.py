"""Convolutional models: published counts, FLOPs, and throughput on one device."""

from dataclasses import replace

import pytest

from sim.config.errors import InputError
from sim.hardware import device, stack
from sim.hardware.kernels.time import kernel_time
from sim.jobs.sharing.methods.all_reduce import AllReduce
from sim.jobs.sharing.worker_step import worker_step
from sim.model import counts, reading
from sim.model.convolution import Convolutional, ResidualStage, operator
from sim.model.convolution_kernels import Convolution, Shape, convolutions, together
from sim.model.execution import Execution, Sharding
from sim.model.fusion import Fusion
from sim.model.kernels import Gemm, MemoryBound, Precision
from sim.model.operators import Operator, kernels_of
from sim.program.operations import Collective

# NVIDIA DeepLearningExamples @729963d, PyTorch ResNet-50 v1.5 of 21.03, one GPU: device, precision,
# batch (configs.yml), images/s. 16-bit images are NHWC there, the others NCHW.
MEASURED = [
    ("a100-80gb-sxm", "fp16", 256, 2470.0),
    ("v100-16gb-sxm", "fp32", 112, 367.0),
    ("v100-16gb-sxm", "fp16", 256, 1200.0),
    ("v100-32gb-sxm", "fp32", 112, 356.0),
    ("v100-32gb-sxm", "fp16", 256, 1156.0),
]
# Seconds of ResNet-50's kernels forward and back, 32 images, on an A100 40GB in TF32 and a V100 in
# fp32, by traces of torch's profiler (hta `nccl_parser_config` and `ns_resolution_trace`).
TRACED = [
    ("a100-40gb-sxm", "tf32", (18.72e-3, 10.46e-3, 8.03e-3)),
    ("v100-32gb-sxm", "fp32", (60.17e-3, 17.21e-3, 12.97e-3)),
]


def load(name: str) -> Convolutional:
    return reading.load(name).source


def execution(precision: Precision = "fp32", batch: int = 4) -> Execution:
    return Execution(
        model=reading.load("resnet50"),
        microbatch=batch,
        sharding=Sharding(),
        precision=precision,
        fusion=Fusion(),
    )


def operators(model: Convolutional, run: Execution | None = None) -> list[Operator]:
    return [operator(layer, model, run or execution()) for layer in model.layers]


@pytest.mark.parametrize(
    ("name", "parameters", "gflops"),
    [("resnet50", 25_557_032, 8.18), ("vgg16", 138_357_544, 30.94)],
)
def test_counts_are_the_published_ones(name, parameters, gflops):
    """torchvision's model cards: 4.09 and 15.47 G multiply-adds an image."""
    model = reading.load(name)
    assert counts.parameters(model) == parameters
    assert counts.model_flops(model, 1) / 3e9 == pytest.approx(gflops, rel=0.003)


@pytest.mark.parametrize(("name", "precision", "batch", "measured"), MEASURED)
def test_single_device_throughput_is_met_within_an_eighth(name, precision, batch, measured):
    """Fitted to layers of traces alone; A100 in TF32 (938 images/s) is missed by 18 %."""
    ddp, plan = stack.load("pytorch-ddp"), AllReduce(precision=precision)
    step = worker_step(reading.load("resnet50"), batch, plan, ddp, device.load(name))
    assert batch / (step.seconds + step.optimizer) == pytest.approx(measured, rel=0.125)


@pytest.mark.parametrize(("name", "precision", "seconds"), TRACED)
def test_convolutions_norms_and_the_rest_take_what_traces_show(name, precision, seconds):
    found = [0.0, 0.0, 0.0]
    at_full_clock = device.load(name).in_bursts()  # the A100 waits for its host most of a step
    for layer in operators(load("resnet50"), execution(precision, 32)):
        for kernel in kernels_of((*layer.forward, *layer.backward)):
            kind = 0 if isinstance(kernel, Convolution) else 1 if "norm" in kernel.name else 2
            found[kind] += kernel_time(kernel, at_full_clock)
    assert found == pytest.approx(seconds, rel=0.2)
    assert sum(found) == pytest.approx(sum(seconds), rel=0.05)


SHAPE = Shape(images=8, inputs=64, outputs=256, read=64 * 56**2, written=256 * 56**2)


def test_a_pointwise_convolution_is_the_product_of_its_shape():
    forward, image, weights = convolutions("x", SHAPE, "bf16", "nhwc")
    assert (forward.m, forward.n, forward.k) == (8 * 56**2, 256, 64)
    plain = Gemm(name="x", m=forward.m, n=256, k=64, precision="bf16")
    a100 = device.load("a100-80gb-sxm")
    assert kernel_time(forward, a100) == kernel_time(plain, a100)
    assert forward.flops == image.flops == weights.flops


@pytest.mark.parametrize("precision", ["tf32", "fp32", "bf16"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_twice_the_images_take_at_most_twice_as_long(precision, layout):
    a100 = device.load("a100-80gb-sxm")
    for taps in (1, 9):
        shape = replace(SHAPE, taps=taps)
        pairs = zip(
            convolutions("x", shape, precision, layout),
            convolutions("x", replace(shape, images=16), precision, layout),
            strict=True,
        )
        for less, more in pairs:
            assert kernel_time(less, a100) < kernel_time(more, a100)
            assert kernel_time(more, a100) <= 2.001 * kernel_time(less, a100)


def test_tensor_cores_want_channels_last():
    """Copies of both images and the weights, unless images in NCHW are matrices whose rows begin at
    multiples of 16 bytes."""
    three = replace(SHAPE, taps=9)
    elements = 8 * (three.read + three.written) + 9 * 64 * 256
    assert {k.copied for k in convolutions("x", three, "tf32", "nchw")} == {2 * 4 * elements}
    odd = replace(SHAPE, read=64 * 7**2, written=256 * 7**2)
    assert all(kernel.copied > 0 for kernel in convolutions("x", odd, "tf32", "nchw"))
    for layout, precision in (("nhwc", "tf32"), ("nchw", "fp32")):
        assert not any(kernel.copied for kernel in convolutions("x", three, precision, layout))
    assert convolutions("x", SHAPE, "tf32", "nchw")[0].copied == 0


def test_copies_of_an_h100_are_those_of_a_trace():
    """VGG-13's second layer, 512 images in TF32 (triosim): 9.1 ms before and behind 8.8 ms."""
    image = 64 * 224**2
    shape = Shape(images=512, inputs=64, outputs=64, read=image, written=image, taps=9)
    forward = convolutions("x", shape, "tf32", "nchw")[0]
    h100 = device.load("h100-80gb-sxm")
    alone = kernel_time(replace(forward, moved=0.0), h100)
    assert kernel_time(forward, h100) - alone == pytest.approx(9.105e-3, rel=0.03)


def test_operands_that_do_not_lie_along_k_slow_a_product():
    """All of it, or the half that a captured backward pass is in one."""
    h100 = device.load("h100-80gb-sxm")
    big = Shape(images=512, inputs=512, outputs=512, read=512 * 784, written=512 * 784, taps=9)
    image, weights = convolutions("x", big, "tf32", "nhwc")[1:]
    share = h100.gemm.gathered.of("tf32")
    straight = replace(weights, sums=0.0)
    slower = kernel_time(weights, h100) / kernel_time(straight, h100)
    assert slower == pytest.approx(1.0 / share, rel=0.02)
    both = together([image, weights])
    assert both.flops == image.flops + weights.flops
    apart = kernel_time(image, h100) + kernel_time(weights, h100)
    assert kernel_time(both, h100) == pytest.approx(apart, rel=0.1)


def test_winograd_takes_fewer_multiplications_of_fp32_alone():
    v100 = device.load("v100-16gb-sxm")
    big = Shape(images=32, inputs=256, outputs=256, read=256 * 28**2, written=256 * 28**2, taps=9)
    strided = replace(big, read=4 * big.read)
    times = [kernel_time(convolutions("x", s, "fp32", "nchw")[0], v100) for s in (big, strided)]
    assert times[0] < 0.6 * times[1]


def test_few_channels_leave_sms_idle_in_a_batch_norm():
    a100 = device.load("a100-80gb-sxm")
    norm = MemoryBound(name="batch norm", bytes=1e9)
    half = kernel_time(replace(norm, ctas=54), a100)
    assert half == pytest.approx(2 * kernel_time(norm, a100), rel=0.01)
    assert kernel_time(replace(norm, ctas=512), a100) == kernel_time(norm, a100)


def test_backward_multiplies_twice_as_much_as_forward_but_for_the_first_layer():
    layers = operators(load("resnet50"))
    for number, layer in enumerate(layers):
        ahead = sum(item.flops for item in layer.forward if isinstance(item, Gemm))
        back = sum(item.flops for item in layer.backward if isinstance(item, Gemm))
        assert back == pytest.approx((1 if number == 0 else 2) * ahead, rel=1e-3)


def test_a_convolution_reads_its_image_once():
    plain = Gemm(name="im2col", m=4 * 56 * 56, n=64, k=64 * 9, precision="fp32")
    three = next(
        item
        for layer in operators(load("resnet50"))
        for item in layer.forward
        if isinstance(item, Convolution) and item.name == "1.0 3x3"
    )
    assert three.flops == plain.flops
    assert three.bytes < 0.3 * plain.bytes
    v100 = device.load("v100-16gb-sxm")
    assert kernel_time(three, v100) <= kernel_time(plain, v100)


def test_synchronised_batch_norm_adds_a_collective_each_way():
    model = replace(load("resnet50"), synchronised=True)
    layers = operators(model)
    for way in ("forward", "backward"):
        calls = [
            item for layer in layers for item in getattr(layer, way) if isinstance(item, Collective)
        ]
        assert len(calls) == sum(layer.norm for layer in model.layers) == 53


def test_a_size_that_does_not_halve_five_times_is_refused():
    with pytest.raises(ValueError, match="multiple of 32"):
        Convolutional(
            kind="convolutional",
            family="vgg",
            image=100,
            stages=(ResidualStage(blocks=1, width=8),),
        )


def test_workers_of_a_measured_model_take_what_its_layers_took():
    """1536 tokens of 32 sentences, forward and back, at the batch that was profiled."""
    model = reading.load("gnmt-v100")
    static = replace(stack.load("pytorch-ddp"), step_host=0.0, layer_forward=0.0)
    step = worker_step(model, 32, AllReduce(), static, device.load("v100-16gb-sxm"))
    took = sum(layer.forward + layer.backward for layer in model.source.layers)
    assert step.seconds == pytest.approx(took, rel=1e-3)
    with pytest.raises(InputError, match="was measured on V100 16GB SXM2"):
        worker_step(model, 32, AllReduce(), static, device.load("a100-40gb-sxm"))


def test_a_deep_network_lists_its_layers_once() -> None:
    model = load("resnet50")
    assert replace(model).layers is model.layers


def test_more_layers_than_can_be_simulated_are_refused() -> None:
    document = {
        "kind": "convolutional",
        "family": "resnet",
        "stages": [{"blocks": 10**5, "width": 64}],
    }
    with pytest.raises(InputError, match="300,003 is more than can be simulated"):
        reading.model_of(document, "images.toml")
