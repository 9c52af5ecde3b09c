"""Normalisation over all ranks."""

from sim.jobs.recorded.kernels import kernel_of
from sim.model.convolution_kernels import Convolution
from tests.jobs.capturing.conftest import Capture

CHANNELS = 32
NORMALISED = """
dist.init_process_group("nccl")
net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten())
net = nn.SyncBatchNorm.convert_sync_batchnorm(net.to("cuda"))
net = nn.parallel.DistributedDataParallel(net, device_ids=[0])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    net(torch.randn(4, 3, 16, 16, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_statistics_of_batches_are_those_of_all_ranks(captured: Capture) -> None:
    own = captured(NORMALISED, world=8)
    sent = [(e.phase, e.name, e.bytes) for e in own.events if e.kind == "collective"]
    gathered = 8 * (2 * CHANNELS + 1) * 4.0  # mean, deviation and count in fp32
    assert ("forward", "all_gather", gathered) in sent
    assert ("backward", "all_reduce", 2 * CHANNELS * 4.0) in sent  # their gradients
    assert [e.kind for e in own.events if e.phase == "forward"].count("sync") == 1


CONVOLVED = """
torch.backends.cudnn.allow_tf32 = {allowed}
net = nn.Conv2d(8, 32, 3, padding=1).to("cuda"{layout})
x = torch.randn(4, 8, 16, 16, device="cuda"){contiguous}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    net(x).sum().backward()
    optimizer.step()
"""


def test_convolutions_take_cudnns_flag_and_the_layout_of_their_images(captured: Capture) -> None:
    """cuDNN computes them in TF32 by default, where products do not."""

    def kernel(allowed: bool, layout: str = "", contiguous: str = "") -> Convolution:
        script = CONVOLVED.format(allowed=allowed, layout=layout, contiguous=contiguous)
        own = captured(script, world=1)
        kernels = map(kernel_of, own.operators)
        return next(kernel for kernel in kernels if isinstance(kernel, Convolution))

    default = kernel(True)
    assert default.precision == "tf32"
    assert default.flops == 2 * 4 * 16 * 16 * 32 * 8 * 9
    assert default.copied > 0
    assert kernel(False).precision == "fp32"
    last = ", memory_format=torch.channels_last"
    assert kernel(True, last, f".to({last[2:]})").copied == 0
