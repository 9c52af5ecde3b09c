"""Normalisation over all ranks."""

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
