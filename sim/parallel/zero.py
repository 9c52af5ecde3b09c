"""ZeRO stages 2 and 3: gradients are reduced in every backward pass, weights gathered when needed.

Stage 3 is FSDP (Zhao et al. 2023, section 3; Rajbhandari et al. 2020, section 5). Weights are
gathered and freed by *units* of a layer each, forward and again backward. After a unit's backward
pass its gradients are reduced and scattered. Gathers and reductions use one communicator and queue
in the order in which they are issued, unless the stack has another communicator for gradients.

With `prefetch` = 1 a unit is gathered when the computation before the previous unit has ended, one
unit ahead (torch FSDP2, `wait_for_unshard` in _fsdp_param_group.py, whose forward gathers may start
a unit earlier; FSDP1's `limit_all_gathers`, two in flight). A larger `prefetch` gathers as many
units ahead, and 0 gathers a unit when its turn comes. If the stack `regathers`, a unit that runs
again is freed before its backward pass and gathered once more. Units that are `kept` stay whole
from forward to backward: all units without `reshard` (FSDP's SHARD_GRAD_OP, FSDP2's
`reshard_after_forward=False`), otherwise the units that the stack keeps. In pipelines, or if
gradients are summed up first (`no_sync`), kept units stay whole from the step's first forward pass
to its last backward pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sim.model.block import Block
from sim.model.kernels import MemoryBound
from sim.model.kinds import is_layer
from sim.parallel import buckets, data
from sim.parallel.gathered_weights import weights_gathered
from sim.parallel.job import Job
from sim.parallel.offload import Activations, gradients_out, share_in
from sim.parallel.segments import Items, Piece, segments
from sim.parallel.unsharded import (
    divided,
    gathered,
    given_back,
    is_near,
    made,
    scattered,
    shared,
    trained,
)
from sim.program.causes import COMPUTE
from sim.program.memory import added
from sim.program.operations import (
    COMPUTE_STREAM,
    INPUT,
    After,
    Beside,
    Collective,
    Communicate,
    Compute,
    Operation,
    Recent,
    Segment,
    Work,
    issued,
)
from sim.program.schedule import PassVariant

Parts = tuple[Segment | Collective | Work, ...]

_FURTHEST = 2  # the most computations before a pass that its operations may wait for


@dataclass(slots=True, eq=False)
class _Unit:
    """Blocks whose weights are gathered together: the numbers of their pieces in a pass."""

    blocks: list[Block] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    kept: bool = False


def reduces(job: Job, variant: PassVariant) -> bool:
    """Whether the gradients of a pass are reduced unit by unit or bucket by bucket."""
    if not variant.makes_gradients:
        return False
    if job.plan.zero >= 2:
        return variant.last or not job.no_sync
    return variant.last and job.overlaps_gradients


def sharded_pass(job: Job, pieces: Sequence[Piece], variant: PassVariant) -> list[Operation]:
    """Return the operations of one pass: it gathers ahead, then computes a block, reduces its
    unit's gradients, gathers the next unit, and so on."""
    return _Pass(job, pieces, variant).operations()


class _Pass:
    def __init__(self, job: Job, pieces: Sequence[Piece], variant: PassVariant) -> None:
        self.job, self.pieces, self.variant = job, pieces, variant
        self.names = [f"layer {number}" for number in range(len(pieces) - 1)] + [""]
        self.units = _units(job, [piece.block for piece in pieces], forward=variant.kind == "F")
        self.fetched = [unit for unit in self.units if self._fetches(unit)]
        self.activations = Activations(job, pieces, variant, self.names)
        self._works: dict[object, Work] = {}
        leaves = reduces(job, variant) or data.gradients_leave_early(job, variant)
        self.reduced = self._leaving() if leaves else []

    def operations(self) -> list[Operation]:
        """Return the pass's operations. A gather follows the computation that it waits for, and
        that computation's reduction."""
        due: dict[int, list[int]] = {}
        for number in range(len(self.fetched)):
            due.setdefault(max(self._awaited(number), -1), []).append(number)
        issued: list[Operation] = [op for number in due.get(-1, ()) for op in self._gather(number)]
        done = [*issued, *self.activations.opening()]
        for number, piece in enumerate(self.pieces):
            done.append(self._compute(number, piece, beside=issued))
            issued = []
            for place, unit in enumerate(self.reduced):
                if self._leaves(unit) == number:
                    issued += self._reduce(place, unit)
            issued += [op for ahead in due.get(number, ()) for op in self._gather(ahead)]
            done += [*issued, *self.activations.behind(number)]
        return done

    # --- Weights ---------------------------------------------------------------------------------

    def _fetches(self, unit: _Unit) -> bool:
        job, variant = self.job, self.variant
        if not data.gathers(job, variant) or not self._comes(unit):
            return False
        if job.plan.zero < 3 or not unit.kept:
            return True
        return variant.kind == "F" and (variant.first or not data.held_all_step(job))

    def _gives_back(self, unit: _Unit) -> bool:
        job, variant = self.job, self.variant
        if job.plan.zero < 3 or not self._comes(unit):
            return False
        if unit.kept and data.held_all_step(job):
            return variant.makes_gradients and variant.last
        return variant.kind != "W" and (variant.kind != "F" or not unit.kept)

    def _comes(self, unit: _Unit) -> bool:
        """Whether other ranks, or the host, hold shares of a unit's weights."""
        return bool(self._calls(unit)) or self.job.plan.offload.parameters > 0.0

    def _calls(self, unit: _Unit) -> tuple[Collective, ...]:
        near = is_near(self.job, self.variant)
        return weights_gathered(self.job, _parameters(unit), near=near)

    def _awaited(self, number: int) -> int:
        """Return the number of the computation that a gather waits for; numbers below 0 count back
        from the beginning of the pass."""
        return self._behind(number - self.job.prefetch)

    def _behind(self, before: int) -> int:
        """Return the number of the last computation before the unit that is gathered at place
        `before`."""
        return self.fetched[before].numbers[0] - 1 if before >= 0 else before - 1

    def _gather(self, number: int) -> Iterator[Communicate]:
        unit, after = self.fetched[number], self._after(self._awaited(number))
        come = share_in(self.job, _parameters(unit), f"shards {number}", after)
        yield from come
        runs_again = self.variant.kind != "F" and any(block.recompute for block in unit.blocks)
        calls = self._calls(unit)
        if runs_again and self.job.stack.regathers:
            calls = tuple(replace(c, bytes=2.0 * c.bytes, times=2 * c.times) for c in calls)
        yield Communicate(
            name=f"weights {number}",
            calls=issued(calls, data.STREAM),
            after=(*after, *(copy.name for copy in come)),
            stream=data.STREAM,
            memory=gathered(self.job, unit.blocks, self.variant),
        )

    def _after(self, back: int) -> After:
        return (Recent(min(-back, _FURTHEST)),) if back < 0 else (self.names[back],)

    # --- Computation and gradients ---------------------------------------------------------------

    def _compute(self, number: int, piece: Piece, beside: Sequence[Operation]) -> Compute:
        after: After = (*((INPUT,) if number == 0 else ()), *self.activations.awaited(number))
        stack, precision = self.job.stack, self.job.plan.precision
        unit = next(unit for unit in self.units if number in unit.numbers)
        use = piece.memory.then(made(self.job, self.variant, piece.block))
        items: Parts = (piece.work,)
        if unit in self.fetched and number == unit.numbers[0]:
            after = (*after, f"weights {self.fetched.index(unit)}")
            items = (
                *self._copy("unshard", self._count(unit), stack.unsharding_bytes(precision)),
                *items,
            )
        for place, ended in enumerate(self.reduced):
            if number == ended.numbers[-1]:
                items = (*items, *self._joined(place, ended))
        if number == unit.numbers[-1] and self._gives_back(unit):
            use = use.then(given_back(self.job, unit.blocks, self.variant))
        fetched = f"weights {self.fetched.index(unit)}" if unit in self.fetched else ""
        calls = buckets.collectives(op for op in beside if op.name != fetched)
        work = self._whole(piece.work, items, calls)
        return Compute(name=self.names[number], work=work, after=after, memory=use)

    def _leaving(self) -> list[_Unit]:
        """Return the groups of blocks whose gradients are reduced together: units, or DDP's buckets
        if gradients are not sharded."""
        if self.job.plan.zero < 2:
            numbers = iter(range(len(self.pieces)))
            return [
                _Unit([piece.block for piece in bucket], [next(numbers) for _ in bucket])
                for bucket in buckets.cut(self.job, self.pieces)
            ]
        learning = (unit for unit in self.units if any(g.trained for g in _parameters(unit)))
        return sorted(learning, key=lambda unit: unit.numbers[-1])

    def _joined(self, place: int, unit: _Unit) -> Items:
        """Return the copies and casts of gradients around their reduction."""
        if self.job.plan.zero < 2:
            reduction = self._reduce(place, unit)
            replicated = bool(buckets.collectives(reduction))
            return buckets.around(self.job, unit.blocks, reduction) if replicated else ()
        stack, precision = self.job.stack, self.job.plan.precision
        whole = trained(self.job, unit.blocks) * stack.joining_bytes(precision)
        later = not self.variant.first
        share = shared(self.job, unit.blocks) * stack.shard_bytes(precision, later=later)
        return self._copy("join gradients", 1.0, whole + share)

    def _count(self, unit: _Unit) -> float:
        return sum(divided(self.job, unit.blocks).values())

    def _whole(self, work: Work, items: Parts, calls: tuple[Collective, ...]) -> Work:
        """Return a block's work with the collectives beside it; equal blocks share one object."""
        key = id(work), tuple(map(id, items)), calls
        if len(items) == 1 and not calls:
            return work
        if key not in self._works:
            beside = tuple(map(Beside, calls))
            self._works[key] = Work(name=work.name, items=items, beside=beside)
        return self._works[key]

    def _copy(self, name: str, parameters: float, width: float) -> Items:
        """Return a copy on the compute stream that moves `width` bytes per parameter."""
        if self.job.plan.zero < 2 or not width * parameters:
            return ()
        stack, kernel = self.job.host, MemoryBound(name=name, bytes=width * parameters)
        return segments(
            [kernel], name=name, cause=COMPUTE, time=self.job.time, launch=stack.launch_forward
        )

    def _leaves(self, unit: _Unit) -> int:
        """Return the number of the computation after which a unit's gradients are reduced."""
        return len(self.pieces) - 1 if self.job.reduces_last else unit.numbers[-1]

    def _reduce(self, place: int, unit: _Unit) -> list[Operation]:
        after = (self.names[self._leaves(unit)],)
        name, parameters = f"gradients {place}", _parameters(unit)
        if self.job.plan.zero < 2:
            done = data.summed(self.job, unit.blocks, name, after=after, stream=data.STREAM)
        else:
            done = self._scatter(place, unit, name, after)
        if data.gradients_leave_early(self.job, self.variant):
            behind = (done[-1].name,) if done else after
            done.append(gradients_out(self.job, parameters, f"{name} to host", behind))
        return done

    def _scatter(
        self, place: int, unit: _Unit, name: str, after: tuple[str, ...]
    ) -> list[Operation]:
        before = self.reduced[place - 1].blocks if place else []
        last = place == len(self.reduced) - 1
        use = scattered(self.job, unit.blocks, before, last=last)
        stack = self.job.stack
        stream = data.GRADIENTS if stack.reduce_stream else data.STREAM
        stream = stream if stack.overlap_gradients else COMPUTE_STREAM
        parameters = _parameters(unit)
        return data.reduced(self.job, parameters, name, after=after, stream=stream, memory=use)


def _units(job: Job, blocks: Sequence[Block], *, forward: bool) -> list[_Unit]:
    """Return the units of a pass: every layer is a unit, and so are embedding and head unless the
    stack's root unit holds both."""
    units: list[_Unit] = []
    root = _Unit(kept=True)
    layers = [number for number, block in enumerate(blocks) if is_layer(block.kind)]
    final = layers[-1 if forward else 0] if layers else None
    for number, block in enumerate(blocks):
        root_unit = root if number not in layers and job.stack.root_unit else _Unit()
        if root_unit not in units:
            units.append(root_unit)
        root_unit.kept = (
            root_unit.kept or not job.reshard or (number == final and job.stack.keeps_last)
        )
        root_unit.blocks.append(block)
        root_unit.numbers.append(number)
    return units


def _parameters(unit: _Unit) -> data.Parameters:
    return added(*(block.parameters for block in unit.blocks))
