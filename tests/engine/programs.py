"""Small training-like programs for the engine's tests, without a model."""

from collections.abc import Mapping

from sim.collectives.libraries import backend as backends
from sim.engine.machine import Machine
from sim.hardware.cluster import topology as topologies
from sim.parallel import pipeline
from sim.parallel.exchange import Style, exchanged, name_of
from sim.parallel.pipeline import Pass
from sim.program import Collective, Communicate, Compute, Operation, Program, Segment, Work

AXES = ("tp", "dp", "pp")


def segment(seconds: float, *, host: float = 0.0, cause: str = "compute") -> Segment:
    return Segment(name=cause, cause=cause, device=seconds, host=host, lead=host + seconds)


def tensor(bytes: float = 1e7) -> Collective:
    return Collective(
        kind="all_reduce", axes=("tp",), bytes=bytes, name="tensor", cause="tensor communication"
    )


def data(name: str, bytes: float) -> Collective:
    return Collective(
        kind="all_reduce", axes=("dp",), bytes=bytes, name=name, cause="data communication"
    )


def training(
    *,
    tp: int = 1,
    dp: int = 1,
    pp: int = 1,
    microbatches: int = 4,
    chunks: int = 1,
    style: Style = "batched",
    order: tuple[str, ...] = AXES,
    layers: int = 2,
    forward: float = 1e-3,
    boundary: float = 4e6,
    gradients: float = 4e8,
    overlap: bool = True,
    host: float = 1e-5,
) -> Program:
    """A step with tensor-parallel layers, a pipeline and, if `overlap`, early gradients."""
    sizes = {"tp": tp, "dp": dp, "pp": pp}
    works = {
        "F": Work(name="F", items=(segment(forward, host=host), tensor()) * layers),
        "B": Work(name="B", items=(segment(2 * forward, host=host), tensor()) * layers),
    }
    schedule = (
        pipeline.interleaved(pp, microbatches, chunks)
        if chunks > 1
        else pipeline.one_f_one_b(pp, microbatches)
    )
    stages = []
    for stage in range(pp):
        emit = _emitter(works, schedule[stage], overlap, gradients)
        operations = exchanged(
            schedule[stage],
            emit,
            stage=stage,
            stages=pp,
            chunks=chunks,
            bytes=boundary,
            style=style,
        )
        stages.append((*operations, *_closing(operations, gradients)))
    return Program(mesh={axis: sizes[axis] for axis in order}, stages=tuple(stages))


def _emitter(works: Mapping[str, Work], order: tuple[Pass, ...], overlap: bool, gradients: float):
    last = {one.chunk: one for one in order if one.phase == "B"}

    def emit(one: Pass, after: tuple[str, ...]) -> list[Operation]:
        def compute(name: str, after: tuple[str, ...]) -> Compute:
            return Compute(
                name=name,
                work=works[one.phase],
                after=after,
                phase=one.phase,
                chunk=one.chunk,
                microbatch=one.microbatch,
            )

        if not overlap or last[one.chunk] != one:
            return [compute(name_of(one), after)]
        early = compute(f"{name_of(one)} early", after)
        call = data(f"gradients {one.chunk}", gradients)
        name = f"reduce {one.chunk}"
        reduce = Communicate(name=name, calls=(call,), after=(early.name,), stream="data")
        return [early, reduce, compute(name_of(one), ())]

    return emit


def _closing(operations: list[Operation], gradients: float) -> list[Operation]:
    reduces = tuple(op.name for op in operations if op.stream == "data")
    norm = Collective(
        kind="all_reduce", axes=AXES, bytes=4.0, name="norm", cause="data communication"
    )
    return [
        Communicate(name="rest", calls=(data("rest", gradients / 4),)),
        Communicate(name="norm", calls=(norm,), after=reduces),
    ]


def machine(
    preset: str,
    gpus: int,
    *,
    slowdown: Mapping[int, float] | None = None,
    slow_link: str = "",
    **overrides: object,
) -> Machine:
    topology = topologies.load(preset, overrides).with_gpus(gpus)
    if slow_link:
        topology = topology.slowed(slow_link, 4.0)
    return Machine(topology, backends.load("nccl"), slowdown or {})
