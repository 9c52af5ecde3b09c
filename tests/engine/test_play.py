"""One step, however it is played: folded or rank by rank, on the clock or without one."""

from dataclasses import replace
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.engine import clock
from sim.engine.accounts import Account, accounts
from sim.engine.columns.contention import clocked_contention
from sim.engine.fold import fold
from sim.engine.folded import ComputeStep
from sim.engine.machine import Machine
from sim.engine.play import play
from sim.engine.record import Record
from sim.engine.timeline import Span
from sim.hardware import stack as stacks
from sim.hardware.stack import Stack
from sim.model.transformer import Transformer
from sim.parallel.plan import Plan
from sim.parallel.schedule import table
from sim.parallel.step import training_step
from sim.program.program import Program
from sim.scenario.setup import assemble
from tests.all_pairs import all_pairs
from tests.engine.programs import machine, training, undisturbed

NAMES = sorted(name for name, own in table().items() if own.versions is None)
EXACT = dict(rel=1e-9, abs=1e-12)
REPLAYED = "no transfers share a link"


def step(stack: Stack, schedule: str, zero: int, cp: int) -> tuple[Program, Machine]:
    """A small job on four stages and two replicas whose transfers meet nobody's."""
    own = table()[schedule]
    chunks, microbatches = own.chunks or 2, max(4, own.least(4))
    setup = assemble(
        "small",
        model=Transformer(
            tied_embeddings=True,
            layers=4 * chunks, hidden=512, heads=8, ffn=2048, vocab=5000, seq=1024,
            attention="flash",
        ),
        stack=stack,
        topology=machine("dgx-h100-ndr", 8 * cp).topology,
        plan=Plan(
            global_batch=2 * microbatches, pp=4, dp=2, cp=cp, zero=zero,
            schedule=schedule, interleave=chunks,
        ),
    )  # fmt: skip
    return training_step(setup.job), undisturbed(setup.machine)


# With and without what the host takes, which hides nothing behind kernels.
BUSY = stacks.load("megatron-core")
FREE = replace(
    BUSY, launch_forward=0.0, launch_backward=0.0, launch_collective=0.0, layer_forward=0.0,
    layer_backward=0.0, step_host=0.0, optimizer_launch=0.0, operator_forward={},
    operator_backward={},
)  # fmt: skip


def spans(record: Record) -> dict[tuple[int, str, str], Span]:
    """By the lowest rank of a role, stream and name."""
    first = [role.first_rank for role in record.roles]
    return {(first[span.role], span.stream, span.name): span for span in record.timeline.spans}


def spent(record: Record) -> dict[int, Account]:
    """Accounts by the lowest rank of a role."""
    first = (role.first_rank for role in record.roles)
    return dict(zip(first, accounts(record), strict=True))


# --- Folded and rank by rank ----------------------------------------------------------------------


@pytest.mark.few(14)
@all_pairs(schedule=NAMES, zero=(0, 1, 2, 3), cp=(1, 2))
def test_folded_equals_unfolded(schedule, zero, cp):
    program, on = step(FREE, schedule, zero, cp)
    folded = play(program, on, engine="clock")
    unfolded = play(program, on, engine="clock", unfold=True)
    assert len(folded.roles) == 4 < len(unfolded.roles) == 8 * cp
    assert folded.end == pytest.approx(unfolded.end, **EXACT)
    alone, seconds = spans(unfolded), spent(unfolded)
    for key, span in spans(folded).items():
        # What is inside a pass has steps of its own only where ranks are apart; the last ends it.
        assert span.end == pytest.approx(alone[key].end, **EXACT)
    for rank, account in spent(folded).items():
        assert account == pytest.approx(seconds[rank], **EXACT)


# --- On the clock and without one -----------------------------------------------------------------


def assert_same(clocked: Record, replayed: Record) -> None:
    """Both engines say the same of a step, span by span."""
    assert (clocked.engine, replayed.engine) == ("clock", "replay")
    for what in ("end", "passes_end", "steps"):
        assert getattr(replayed, what) == pytest.approx(getattr(clocked, what), **EXACT)
    others = spans(replayed)
    assert others.keys() == spans(clocked).keys()
    for key, span in spans(clocked).items():
        other = others[key]
        assert (other.start, other.end) == pytest.approx((span.start, span.end), **EXACT)
        assert (other.cause, facts(other)) == (span.cause, facts(span))
        assert flights(other) == pytest.approx(flights(span), **EXACT)
    for account, seconds in zip(accounts(replayed), accounts(clocked), strict=True):
        assert account == pytest.approx(seconds, **EXACT)


def facts(span: Span) -> dict[str, object]:
    """What a span says of itself besides its times."""
    return {key: value for key, value in span.args.items() if key not in ("transfers", "parts")}


def flights(span: Span) -> dict[tuple[int, str, str, str], float]:
    """When transfers of a communication began and ended, and what a computation spent."""
    times = {("part", cause): seconds for cause, seconds in span.args.get("parts", ())}
    for number, (cause, kind, begun, arrived) in enumerate(span.args.get("transfers", ())):
        times |= {(number, cause, kind, "begun"): begun, (number, cause, kind, "end"): arrived}
    return times


@pytest.mark.few(14)
@all_pairs(schedule=NAMES, zero=(0, 1, 2, 3), cp=(1, 2))
def test_without_a_clock_the_step_is_the_clocks(schedule, zero, cp):
    program, on = step(BUSY, schedule, zero, cp)
    replayed = play(program, on, engine="replay")
    assert replayed.because == REPLAYED
    assert_same(play(program, on, engine="clock"), replayed)


@pytest.mark.parametrize(
    ("schedule", "stack"),
    list(zip(NAMES, cycle(["megatron-lm-2021", "nanotron", "llm-foundry-fsdp"]), strict=False)),
)
def test_so_it_is_with_every_manner_of_exchange(schedule, stack):
    program, on = step(stacks.load(stack), schedule, 1, 1)
    assert_same(play(program, on, engine="clock"), play(program, on, engine="replay"))


@st.composite
def plans(draw: st.DrawFn) -> dict:
    """Small layouts, with durations and sizes of their own."""
    own = table()[draw(st.sampled_from(NAMES))]
    pp = draw(st.sampled_from((2, 4)))
    group, least = own.group(pp), own.least(pp)
    return dict(
        schedule=own.name,
        pp=pp,
        tp=draw(st.sampled_from((1, 2))),
        dp=draw(st.sampled_from((1, 2))),
        microbatches=max(group * draw(st.integers(1, 3)), least),
        chunks=own.chunks or draw(st.integers(2, 3)),
        style=draw(st.sampled_from(("batched", "async-send", "overlapped"))),
        sync=draw(st.booleans()),
        layers=draw(st.integers(1, 3)),
        forward=draw(st.floats(1e-4, 1e-2)),
        boundary=draw(st.floats(1e3, 1e7)),
        gradients=draw(st.floats(1e6, 1e9)),
        overlap=draw(st.booleans()),
        host=draw(st.sampled_from((0.0, 1e-5, 1e-3))),
    )


def on_dgx(plan: dict, **slowed: object) -> tuple[Program, Machine]:
    gpus = plan.get("tp", 1) * plan.get("dp", 1) * plan["pp"]
    return training(**plan), machine("dgx-a100-hdr", gpus, **slowed)


@given(plan=plans())
def test_so_it_is_for_random_durations(plan):
    program, on = on_dgx(plan)
    on = undisturbed(on)
    assert_same(play(program, on, engine="clock"), play(program, on, engine="replay"))


@given(plan=plans(), nics=st.sampled_from((2, 8)))
def test_it_is_taken_wherever_the_clock_finds_no_contention_and_only_there(plan, nics):
    program, on = on_dgx(plan, **{"network.nics": nics})  # some ranks share a NIC, or none do
    record = play(program, on)
    clocked = play(program, on, engine="clock")
    contention = clocked_contention(fold(program, on))
    assert record.engine == ("clock" if contention else "replay")
    assert record.end == pytest.approx(clocked.end, **EXACT)
    if record.engine == "replay":
        assert_same(clocked, record)


# --- Where ranks have to be played together -------------------------------------------------------

# Messages of neighbours come upon each other and upon gradients.
SHARED = dict(pp=4, dp=2, microbatches=8, chunks=2, style="overlapped", boundary=4e7)
QUIET = dict(pp=4, dp=2, microbatches=8, boundary=1e4, overlap=False)


@pytest.mark.parametrize(
    ("plan", "slowed", "why"),
    [
        (SHARED, {}, "transfers share links"),
        (dict(QUIET, tp=2), {"slowdown": {3: 1.5}}, "ranks of a stage differ"),
        (dict(QUIET, tp=2), {"slow_link": "node1.nic0"}, "ranks of a stage differ"),
    ],
)
def test_what_has_to_be_played_together_is_played_on_the_clock_and_says_why(plan, slowed, why):
    program, on = on_dgx(plan, **slowed)
    with pytest.raises(InputError, match=f"cannot be replayed: {why}; take --engine auto or clock"):
        play(program, on, engine="replay")
    record = play(program, on)
    assert (record.engine, record.because) == ("clock", why)
    assert record.end == pytest.approx(play(program, on, engine="clock").end, rel=1e-9)


def test_ranks_that_are_kept_apart_are_played_on_the_clock():
    program, on = on_dgx(QUIET)
    assert play(program, on).engine == "replay"
    apart = play(program, on, unfold=True)
    assert (apart.engine, apart.because) == ("clock", "ranks of a stage differ")
    with pytest.raises(InputError, match="ranks of a stage differ"):
        play(program, on, engine="replay", unfold=True)


def test_a_slow_stage_needs_no_clock():
    program, on = on_dgx(QUIET)
    slow = replace(on, slowdown={0: 1.5, 1: 1.5})
    assert_same(play(program, slow, engine="clock"), play(program, slow))


def test_the_clock_that_was_asked_for_says_so():
    program, on = on_dgx(QUIET)
    record = play(program, on, engine="clock")
    assert (record.engine, record.because) == ("clock", "asked for")


def test_an_unknown_engine_names_a_known_one():
    program, on = on_dgx(QUIET)
    with pytest.raises(InputError, match=r"no engine is named 'clok'.*'clock'"):
        play(program, on, engine="clok")  # type: ignore[arg-type]


def test_the_clock_has_no_event_at_which_no_time_passes():
    program = fold(training(pp=4, dp=2, host=0.0), undisturbed(machine("dgx-h100-ndr", 8)))
    steps = [step for role in program.roles for row in role.streams.values() for step in row]
    computations = sum(isinstance(step, ComputeStep) for step in steps)
    # A computation has its end, and so has a transfer that takes nothing but its latency.
    assert clock.play(program).events == computations + len(program.transfers)
