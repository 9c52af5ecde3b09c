"""Traces of known answers: a host that launches and streams that run, as Kineto writes them."""

import json

LAUNCH = 5.0  # us that a call takes


class Machine:
    """One rank's host and streams; all times in us."""

    def __init__(self, rank=0, start=1000.0):
        self.rank, self.start, self.now = rank, start, start
        self.free, self.events, self.number = {}, [], 0
        self.waits = {}

    def think(self, us):
        """The host is busy with something of its own."""
        self.now += us

    def op(self, name, us):
        """An operator of the host around what is launched in its first so many us."""
        self.add("cpu_op", name, self.now, us, tid=1)

    def launch(self, us, name="gemm", stream=7, lag=0.0, **args):
        self.number += 1
        self.add(
            "cuda_runtime", "cudaLaunchKernel", self.now, LAUNCH, tid=1, correlation=self.number
        )
        self.now += LAUNCH
        begin = max(self.now, self.free.get(stream, 0.0), self.waits.pop(stream, 0.0)) + lag
        self.free[stream] = begin + us
        args |= {"correlation": self.number, "stream": stream}
        self.add("kernel", name, begin, us, tid=stream, **args)

    def reduce(self, us, group="0", elements=1_000_000, ranks=8, stream=20):
        self.launch(
            us, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", stream, dtype="BFloat16",
            **{"Collective name": "allreduce", "In msg nelems": elements, "Group size": ranks,
               "Out msg nelems": elements, "Process Group Name": group},
        )  # fmt: skip

    def record(self, stream):
        """An event of what was launched on a stream so far."""
        self.number += 1
        self.add("cuda_runtime", "cudaEventRecord", self.now, 1.0, tid=1, correlation=self.number)
        self.now += 1.0
        return self.number, self.free.get(stream, 0.0)

    def wait(self, stream, other, told=False, event=None):
        """What is launched next on a stream waits for what was launched on another, or for an
        event; the trace says so, or that it waits for `told` stream."""
        self.add("cuda_runtime", "cudaStreamWaitEvent", self.now, 1.0, tid=1)
        number, ended = event or (-1, self.free.get(other, 0.0))
        if told:
            args = {"stream": stream, "wait_on_stream": other if told is True else told}
            args["wait_on_cuda_event_record_corr_id"] = number
            self.add("cuda_sync", "Stream Wait Event", self.now, 0.0, tid=1, **args)
        self.now += 1.0
        self.waits[stream] = ended

    def synchronize(self):
        end = max(self.now, *self.free.values())
        self.add("cuda_runtime", "cudaDeviceSynchronize", self.now, end - self.now, tid=1)
        self.now = end

    def add(self, cat, name, ts, dur, tid, **args):
        event = {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 0, "tid": tid}
        self.events.append(event | {"args": args})

    @property
    def end(self):
        return max(self.now, *self.free.values())

    def write(self, path, world=8, steps=1):
        each = (self.now - self.start) / steps
        for n in range(steps):
            self.add("user_annotation", f"ProfilerStep#{n}", self.start + n * each, each, tid=1)
        job = {"rank": self.rank, "world_size": world}
        head = {"deviceProperties": [{"id": n} for n in range(8)], "distributedInfo": job}
        path.write_text(json.dumps(head | {"traceEvents": self.events}))
        return path
