"""What passes between neighbouring pipeline stages, in the manner of the software stack.

`batched`: after every pass one blocking exchange sends its output and receives the next pass's
input (Megatron-LM's send_forward_recv_backward and its kin, batch_isend_irecv). `async-send`: the
send runs on a stream of its own, the receive blocks the compute stream when its data is needed.
`overlapped`: both run on streams of their own (Megatron-Core's overlap_p2p_communication).
"""

from collections.abc import Callable, Sequence
from typing import Literal

from sim.parallel.pipeline import Pass
from sim.program import Call, Communicate, Operation, Receive, Send

Style = Literal["batched", "async-send", "overlapped"]
Emit = Callable[[Pass, tuple[str, ...]], list[Operation]]


def exchanged(
    passes: Sequence[Pass],
    emit: Emit,
    *,
    stage: int,
    stages: int,
    chunks: int,
    bytes: float,
    style: Style,
    sync: bool = False,
) -> list[Operation]:
    """The passes of a stage in order, with their sends and receives.

    `emit(pass, after)` gives the operations of a pass; the one called `name_of(pass)` ends it.
    `sync` makes the host wait for what blocks the compute stream.
    """
    route = _Route(stage, stages, chunks, bytes)
    if style == "batched" and chunks == 1:
        return _batched(passes, emit, route, sync)
    return _streamed(passes, emit, route, own_receive_stream=style == "overlapped", sync=sync)


def name_of(one: Pass) -> str:
    """The operation that ends a pass."""
    return f"{one.phase}{one.microbatch}.{one.chunk}"


class _Route:
    """Where a pass's input comes from and its output goes: virtual stage v = chunk x p + stage."""

    def __init__(self, stage: int, stages: int, chunks: int, bytes: float) -> None:
        self.stage, self.stages, self.chunks, self.bytes = stage, stages, chunks, bytes

    def _virtual(self, one: Pass) -> int:
        return one.chunk * self.stages + self.stage

    def receives(self, one: Pass) -> tuple[Receive, ...]:
        v, last = self._virtual(one), self.stages * self.chunks - 1
        source = v - 1 if one.phase == "F" else v + 1
        if not 0 <= source <= last or self.stages == 1:
            return ()
        key = f"{one.phase}{one.microbatch} {source}>{v}"
        return (Receive(source=source % self.stages, bytes=self.bytes, key=key),)

    def sends(self, one: Pass) -> tuple[Send, ...]:
        v, last = self._virtual(one), self.stages * self.chunks - 1
        to = v + 1 if one.phase == "F" else v - 1
        if not 0 <= to <= last or self.stages == 1:
            return ()
        key = f"{one.phase}{one.microbatch} {v}>{to}"
        return (Send(to=to % self.stages, bytes=self.bytes, key=key),)


def _batched(passes: Sequence[Pass], emit: Emit, route: _Route, sync: bool) -> list[Operation]:
    done: list[Operation] = []
    calls: tuple[Call, ...] = route.receives(passes[0])
    for number, one in enumerate(passes):
        if calls:
            done.append(Communicate(name=f"exchange {number}", calls=calls, sync=sync))
        done += emit(one, ())
        following = passes[number + 1 : number + 2]
        calls = (*route.sends(one), *(r for f in following for r in route.receives(f)))
    if calls:
        done.append(Communicate(name=f"exchange {len(passes)}", calls=calls, sync=sync))
    return done


def _streamed(
    passes: Sequence[Pass], emit: Emit, route: _Route, *, own_receive_stream: bool, sync: bool
) -> list[Operation]:
    done: list[Operation] = []
    for one in passes:
        after: tuple[str, ...] = ()
        for call in route.receives(one):
            stream = f"receive {one.phase}" if own_receive_stream else "compute"
            done.append(
                Communicate(
                    name=f"receive {call.key}",
                    calls=(call,),
                    stream=stream,
                    sync=sync and not own_receive_stream,
                )
            )
            after = (done[-1].name,) if own_receive_stream else ()
        done += emit(one, after)
        for send in route.sends(one):
            name, stream = f"send {send.key}", f"send {one.phase}"
            ended = (name_of(one),)
            done.append(Communicate(name=name, calls=(send,), after=ended, stream=stream))
    return done
