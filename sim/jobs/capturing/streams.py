"""Streams and events of a device that is not there: what they order is recorded."""

from itertools import count
from typing import Any

from sim.jobs.capturing.log import Log


class Streams:
    """The streams of a process; the last of `stack` is the current one."""

    def __init__(self, device: Any, log: Log) -> None:
        self.device, self.log, self.serial = device, log, count(1)
        # torch.cuda.Stream and torch.cuda.Event of this process: classes that scripts instantiate
        self.stream = type("Stream", (FakeStream,), {"streams": self})
        self.event = type("Event", (FakeEvent,), {"streams": self})
        self.stack: list[Any] = [self.stream()]
        log.stream(self.current)

    @property
    def current(self) -> int:
        """The identity of the current stream."""
        return int(self.stack[-1].stream_id)

    def sync(self) -> None:
        """The host waits for the current stream."""
        self.log.add("sync", self.current)

    def sync_all(self) -> None:
        """The host waits for the device."""
        self.log.sync_all(self.current)


class FakeEvent:
    """torch.cuda.Event; `id` names its last record."""

    streams: Streams

    def __init__(self, *_: Any, **__: Any) -> None:
        self.id, self.device = next(self.streams.serial), self.streams.device
        self.on = self.streams.current  # the stream of its last record

    def synchronize(self) -> None:
        self.streams.log.add("sync", self.on, mark=self.id)

    def query(self) -> bool:
        return self.streams.log.passed(self.id)

    def elapsed_time(self, end: Any) -> float:
        return self.streams.log.milliseconds(self.id, end.id)

    def wait(self, stream: Any = None) -> None:
        (stream or self.streams.stack[-1]).wait_event(self)

    def record(self, stream: Any = None) -> "FakeEvent":
        self.id = next(self.streams.serial)
        own = stream or self.streams.stack[-1]
        self.on = own.stream_id
        self.streams.log.add("record", own.stream_id, mark=self.id)
        return self


class FakeStream:
    """torch.cuda.Stream."""

    streams: Streams
    device_index, device_type, priority = 0, 1, 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.stream_id = self.cuda_stream = next(self.streams.serial)
        self.device = self.streams.device

    def record_event(self, event: Any = None) -> Any:
        return (event or self.streams.event()).record(self)

    def wait_event(self, event: Any) -> None:
        self.streams.log.add("wait", self.stream_id, mark=event.id)

    def wait_stream(self, other: Any) -> None:
        self.wait_event(other.record_event())

    def synchronize(self) -> None:
        self.streams.log.add("sync", self.stream_id)

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> "FakeStream":
        self.streams.stack.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        self.streams.stack.pop()
