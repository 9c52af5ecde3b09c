"""How the traces here were made: `python ddp.py`, with torch 2.13.0, on two busy cores.

Two steps of a small DDP job over gloo, buckets of 4 MiB each; of the trace's head is kept what says
who made it.
"""

import gzip
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

WORLD = 2
KEPT = ("schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit")


def run(rank: int) -> None:
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29612"}
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    layers = [nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU()]
    layers += [nn.Linear(1024, 8)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    path = Path(__file__).with_name(f"ddp-{rank}-of-{WORLD}.json")
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True,
        schedule=schedule(wait=0, warmup=3, active=2, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:  # fmt: skip
        for _ in range(5):
            model(torch.ones(64, 1024)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    trace = json.loads(path.read_text())
    kept = {key: trace[key] for key in KEPT if key in trace}
    kept["traceEvents"] = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    packed = gzip.compress(json.dumps(kept).encode(), mtime=0)
    path.with_suffix(".json.gz").write_bytes(packed)
    path.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, nprocs=WORLD)
