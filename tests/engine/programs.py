"""Small training-like programs for the engine's tests, without a model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sim.collectives.interconnect import CallCost, CollectiveCall
from sim.collectives.libraries import backend as backends
from sim.engine.machine import Machine
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.slow_links import slowed
from sim.parallel.schedule import schedule as schedule_named
from sim.program.causes import COMPUTE, DATA, TENSOR, Cause
from sim.program.operations import (
    INPUT,
    Collective,
    Communicate,
    Compute,
    Drained,
    PassOps,
    Segment,
    Work,
)
from sim.program.program import Exchange, Program, Stage, Style
from sim.program.schedule import PassVariant

AXES = ("tp", "dp", "pp")


def segment(seconds: float, *, host: float = 0.0, cause: Cause = COMPUTE) -> Segment:
    return Segment(name=cause, cause=cause, device=seconds, host=host, lead=host + seconds)


def tensor(bytes: float = 1e7) -> Collective:
    return Collective(kind="all_reduce", axes=("tp",), bytes=bytes, name="tensor", cause=TENSOR)


def data(name: str, bytes: float) -> Collective:
    return Collective(kind="all_reduce", axes=("dp",), bytes=bytes, name=name, cause=DATA)


def training(
    *,
    tp: int = 1,
    dp: int = 1,
    pp: int = 1,
    microbatches: int = 4,
    chunks: int = 1,
    schedule: str = "",
    style: Style = "batched",
    sync: bool = False,
    order: tuple[str, ...] = AXES,
    layers: int = 2,
    forward: float = 1e-3,
    boundary: float = 4e6,
    gradients: float = 4e8,
    overlap: bool = True,
    host: float = 1e-5,
) -> Program:
    """A step with tensor-parallel layers, a pipeline and, if `overlap`, early gradients."""
    works = {
        kind: Work(name=kind, items=(segment(seconds, host=host), *calls) * layers)
        for kind, seconds, calls in (
            ("F", forward, (tensor(),)),
            ("B", 2 * forward, (tensor(),)),
            ("I", forward, (tensor(),)),
            ("W", forward, ()),
        )
    }
    name = schedule or ("interleaved" if chunks > 1 else "1f1b")
    passes = schedule_named(name, pp, microbatches, chunks)
    sizes = {"tp": tp, "dp": dp, "pp": pp}
    if style == "batched" and (passes.chunks > 1 or passes.splits_backward):
        style = "async-send"  # `sim.parallel.step` takes no batched exchange for these either
    return Program(
        mesh={axis: sizes[axis] for axis in order},
        schedule=passes,
        stages=tuple(
            Stage(
                ops_by_variant={
                    own: _pass_ops(works, own, overlap, gradients) for own in each.variants
                },
                closing=_closing(gradients),
            )
            for each in passes.actions
        ),
        exchange=Exchange(style=style, bytes=boundary, sync=sync),
    )


def _pass_ops(
    works: Mapping[str, Work], variant: PassVariant, overlap: bool, gradients: float
) -> PassOps:
    work = works[variant.kind]
    if not overlap or not variant.last:
        return PassOps((Compute(name="", work=work, after=(INPUT,)),))
    call = data(f"gradients {variant.chunk}", gradients)
    return PassOps(
        (
            Compute(name="early", work=work, after=(INPUT,)),
            Communicate(name="reduce", calls=(call,), after=("early",), stream="data"),
            Compute(name="", work=work),
        )
    )


def _closing(gradients: float) -> PassOps:
    norm = Collective(kind="all_reduce", axes=AXES, bytes=4.0, name="norm", cause=DATA)
    return PassOps(
        (
            Communicate(name="rest", calls=(data("rest", gradients / 4),)),
            Communicate(name="norm", calls=(norm,), after=(Drained("data"),)),
        )
    )


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
        topology = slowed(topology, slow_link, 4.0)
    return Machine(topology, backends.load("nccl"), slowdown or {})


@dataclass(frozen=True)
class Undisturbed:
    """A collective library whose calls load no link, so that nothing is in anybody's way.

    A call takes `latency` (s) for each member of its group, and its bytes at `bandwidth` (B/s).
    """

    latency: float = 1e-5
    bandwidth: float = 40e9

    def call_cost(self, call: CollectiveCall) -> CallCost:
        return CallCost(latency=self.latency * call.shape.ranks + call.size / self.bandwidth)


def undisturbed(on: Machine, **speed: float) -> Machine:
    """A machine on whose network no transfers meet."""
    return replace(on, backend=Undisturbed(**speed))
