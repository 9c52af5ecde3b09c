"""How ddp-0.json.gz was made, with torch 2.13.0 on CPUs: `python ddp.py`."""

import gzip
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ExecutionTraceObserver

WORLD = 2


def run(rank: int) -> None:
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29611"}
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 8))
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        model(torch.ones(16, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    step()  # with buckets as they are from now on
    path = Path(__file__).with_name(f"ddp-{rank}.json")
    observer = ExecutionTraceObserver().register_callback(str(path))
    observer.start()
    step()
    observer.stop()
    observer.unregister_callback()
    path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, nprocs=WORLD)
