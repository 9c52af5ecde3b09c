"""The search: the best of what fits, whatever was left out by bounds; it says why and what for."""

import json
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sim
from sim.analysis.search import search as searching
from sim.analysis.search.answer import SearchResult
from sim.analysis.search.choices.named import choices, not_tried, parsed, said
from sim.analysis.search.enlarging import remedies
from sim.analysis.search.evaluate import pipelining
from sim.analysis.search.in_words import plan_text
from sim.analysis.search.layouts import Pruned, layouts, meshes, passes
from sim.analysis.search.mesh_layouts import MeshLayouts
from sim.analysis.search.search import assembled, search
from sim.analysis.search.simplicity import score
from sim.analysis.search.space import Space, space
from sim.analysis.search.standings import Standings
from sim.config import catalog
from sim.config.errors import InputError
from sim.hardware.stack import Capabilities, capabilities_of
from sim.interface.cli.main import main
from sim.interface.document.answers import text as page
from sim.parallel.chunks import chunks_of
from sim.parallel.job import Known
from sim.parallel.plan import Plan
from sim.parallel.resolved import resolved
from sim.parallel.schedule import table
from sim.scenario.setup import from_scenario
from sim.simulate import answer as played
from sim.uncertainty.order import told_apart

Words = dict[str, tuple[str, ...]]


@cache
def outcome() -> SearchResult:
    return search(small(), jobs=1)


def small(**only: tuple[str, ...]) -> Space:
    choices = {"pp": ("1", "2", "4"), "tp": ("1", "2"), **only}
    return space("gpt2-774m", "dgx-a100-hdr", gpus=8, global_batch=16, only=choices)


def anyones(job: Space) -> Space:
    """The same of a software of which nobody has said what it cannot do."""
    return replace(job, capabilities=Capabilities())


def everything(job: Space) -> list[tuple[str, float, float]]:
    """Every layout that fits, evaluated without leaving any out: plan, time, memory."""
    found = []
    for sizes in meshes(job, Pruned()):
        mesh = MeshLayouts(job, sizes, Known())
        plans = [layout for plan in passes(job, sizes) for layout in layouts(job, plan)]
        fitting = [own for plan in plans if (own := mesh.candidate(plan)) is not None]
        times = mesh.evaluator.times(fitting).tolist()
        found += [
            (str(own.job.plan), time, own.memory) for own, time in zip(fitting, times, strict=True)
        ]
    return found


# What there is.


def test_every_layout_divides_and_fits() -> None:
    for layout in outcome().layouts:
        plan = layout.plan
        assert plan.tp * plan.cp * plan.pp * plan.data_parallel == 8
        assert plan.microbatches * plan.microbatch * plan.data_parallel == 16
        assert layout.memory <= outcome().space.topology.device.usable_memory


@pytest.mark.long
def test_what_people_use_is_searched() -> None:
    """Sharding of every stage and hybrid, schedules, recomputation, orders, uneven layers."""
    job = anyones(space("gpt2-774m", "dgx-a100-hdr", gpus=32, global_batch=64))
    plans = [
        layout
        for mesh in meshes(job, Pruned())
        for plan in passes(job, mesh)
        for layout in layouts(job, plan)
    ]
    assert {plan.zero for plan in plans} == {0, 1, 2, 3}
    assert {plan.dp_replicate for plan in plans} > {1}
    drained = {name for name, own in table().items() if own.versions is None}
    assert {plan.schedule for plan in plans} == drained - {"naive", "zb-auto"}
    assert {plan.recompute for plan in plans} == {"none", "selective", "full"}
    assert {plan.sequence_parallel for plan in plans} == {False, True}
    assert {plan.order for plan in plans} == {"tp-cp-dp-pp", "tp-cp-pp-dp"}
    assert any(plan.layers is not None for plan in plans)
    long = space("llama3-8b", "dgx-h100-ndr", gpus=16, global_batch=16, seq=65536)
    assert {mesh.cp for mesh in meshes(long, Pruned())} > {1, 2, 4, 8}


@pytest.mark.long
def test_sharded_gradients_and_weights_are_found_where_they_are_better() -> None:
    """A 7B model on 32 A100s: ZeRO-2 and 3 were not in the space, although smaller."""
    layouts = space("llama2-7b", "dgx-a100-hdr", gpus=32, global_batch=64,
                    only={"pp": ("1",), "tp": ("1", "2")})  # fmt: skip
    layouts = anyones(layouts)
    without = replace(layouts, without={"zero": ("2", "3")})
    best, plain = (search(job, jobs=1).best[0] for job in (layouts, without))
    assert best.step_time <= plain.step_time
    assert best.memory < plain.memory


def test_options_fix_and_exclude() -> None:
    job = small(zero=("1",), schedule=("zb-v",))
    assert {layout.plan.zero for layout in search(job, jobs=1).layouts} == {1}
    plans = [plan for mesh in meshes(job, Pruned()) for plan in passes(job, mesh)]
    assert {plan.schedule for plan in plans if plan.pp > 1} == {"zb-v"}
    assert any(plan.pp == 1 for plan in plans), "a schedule is asked of pipelines only"
    other = space("gpt2-774m", "dgx-a100-hdr", gpus=8, global_batch=16,
                  without={"recompute": ("full",), "tp": ("8", "4")})  # fmt: skip
    assert {mesh.tp for mesh in meshes(other, Pruned())} == {1, 2}
    plans = [plan for mesh in meshes(other, Pruned()) for plan in passes(other, mesh)]
    assert {plan.recompute for plan in plans} == {"none", "selective"}


# What is left out is left out rightly.


@pytest.mark.long
def test_no_layout_is_faster_than_its_bounds() -> None:
    job = small()
    for sizes in meshes(job, Pruned()):
        mesh = MeshLayouts(job, sizes, Known())
        for bound, plan in mesh.passes[::7]:
            for layout in list(layouts(job, plan))[::3]:
                candidate = mesh.candidate(layout)
                assert candidate is not None
                time = float(mesh.evaluator.times([candidate])[0])
                assert max(bound, mesh.stream_bound(candidate)) <= time * (1 + 1e-9)
                assert mesh.least_memory(layout) <= candidate.memory * (1 + 1e-9)


def test_passes_that_take_turns_have_a_bound_of_their_memory() -> None:
    """Experts in DualPipe: what one pass gives back the other one takes, so both leave little; but
    what was begun and not ended counts."""
    only = {"schedule": ("dualpipe", "dualpipev"), "pp": ("4",), "ep": ("4",)}
    job = space("deepseek-v2-lite", "dgx-h100-ndr", gpus=16, global_batch=64, only=only)
    (sizes,) = [own for own in meshes(job, Pruned()) if own.tp == 1]
    mesh = MeshLayouts(job, sizes, Known())
    for plan in list(passes(job, sizes))[::3]:
        own = next(layouts(job, plan))
        candidate, least = mesh.candidate(own), mesh.least_memory(own)
        assert mesh.least_of_passes(plan) > 0.0
        assert candidate is None or 0.5 * candidate.memory < least <= candidate.memory


def test_every_layout_takes_at_most_so_many_times_as_long_as_the_best() -> None:
    times = [own.uncontended for own in outcome().layouts]
    assert max(times) <= searching.WITHIN * min(times)


def test_bounds_leave_out_nothing_that_is_best_or_on_the_front() -> None:
    job = small(tp=("1",), recompute=("none", "full"), schedule=("1f1b", "zb-v"), pp=("1", "4"))
    whole, found = everything(job), search(job, jobs=1, within=10.0)
    times = sorted(time for _, time, _ in whole)
    known = {str(layout.plan): layout for layout in found.layouts}
    for plan, time, memory in whole:
        if time <= times[searching.BEST - 1]:
            assert plan in known
        beaten = any(t <= time and m <= memory and (t, m) != (time, memory) for _, t, m in whole)
        if not beaten:
            assert any(
                own.uncontended <= time * (1 + 1e-12) and own.memory <= memory
                for own in known.values()
            )
    decided = len(found.layouts) + found.pruned.slower + found.pruned.memory
    assert decided == len(whole) + found.pruned.memory


def test_nothing_on_the_pareto_front_is_beaten_in_both() -> None:
    front = outcome().pareto
    assert all(a.uncontended <= b.uncontended and a.memory > b.memory for a, b in pairwise(front))
    for best in front:
        assert not any(
            layout.uncontended < best.uncontended and layout.memory < best.memory
            for layout in outcome().layouts
        )


# What it says.


def test_the_best_were_played_in_full() -> None:
    assert len(outcome().best) == searching.BEST
    for layout in outcome().best[::3]:
        assert layout.result is not None
        assert layout.step_time == played(assembled(outcome().space, layout.plan)).step_time
    assert outcome().best[0].step_time == min(layout.step_time for layout in outcome().best)


def test_the_search_knows_the_memory_that_a_run_reports() -> None:
    for layout in outcome().best[::3]:
        assert layout.result is not None
        assert layout.memory == pytest.approx(layout.result.memory_per_gpu["total"])


def test_two_processes_find_what_one_finds() -> None:
    job = small(tp=("1",), schedule=("1f1b",))
    answers = [search(job, jobs=jobs).to_dict() for jobs in (1, 2)]
    for answer in answers:
        answer.pop("wall_seconds")
        for row in answer["best"]:
            row.pop("wall_seconds")
    assert json.dumps(answers[0]["best"]) == json.dumps(answers[1]["best"])


def test_the_recommended_layout_is_held_against_the_fastest_other_by_cause() -> None:
    first, *others = outcome().best
    for chosen, other in ((first, others[0]), (others[0], first)):
        way = "longer" if chosen is first else "less"
        says = replace(outcome(), recommended=chosen).why
        assert re.match(rf"{re.escape(plan_text(other.plan))} takes .* {way}, simulated: ", says)
    rows = outcome().to_dict()["best"]
    lost = sum(rows[1]["breakdown"].values()) - sum(rows[0]["breakdown"].values())
    assert lost == pytest.approx(rows[1]["step_time"] - rows[0]["step_time"], abs=1e-9)


def surer(apart: float) -> SearchResult:
    """The search, if errors of layouts of one job were that far apart."""
    first, *others = outcome().best
    assert first.result
    law = {**first.result.interval, "apart": apart}
    known = replace(first, result=replace(first.result, interval=law))
    return replace(outcome(), best=(known, *others), recommended=known)


@pytest.mark.parametrize("apart", [1e-5, 0.01, 0.05, 1.0])
def test_layouts_that_cannot_be_told_apart_from_the_first_are_said_to_be_so(apart: float) -> None:
    searched = surer(apart)
    first, *others = [own.step_time for own in searched.best]
    alike = sum(other < (1.0 + told_apart(apart)) * first for other in others)
    told = f"Of {alike + 1} or more layouts that cannot be told apart it is the simplest that"
    assert (told in page(searched)) == (alike > 0)
    chances = [row["slower_than_first"] for row in searched.to_dict()["best"]]
    assert chances[0] == 0.5
    assert chances == pytest.approx(sorted(chances), rel=1e-12)
    assert sum(chance < 0.9 for chance in chances[1:]) == alike


def test_a_plan_says_what_a_run_of_the_first_would_show() -> None:
    first = outcome().to_dict()["best"][0]
    assert first["step_time_low"] < first["step_time_expected"] < first["step_time_high"]
    assert "The recommended layout should take " in page(outcome())


def test_a_layout_is_a_job_to_run_and_arguments_to_write() -> None:
    found = outcome()
    second = found.best[1]
    assert second.result is not None
    assert played(from_scenario(found.scenario(second))).step_time == second.result.step_time
    text, unsaid = found.emitted("megatron", second)
    assert f"--micro-batch-size {second.plan.microbatch}" in text
    assert unsaid == []
    kept = replace(second, plan=replace(second.plan, zero=3, reshard=False))
    assert found.emitted("megatron", kept)[1] == ["reshard = False"], "no word of Megatron's"
    assert found.emitted("megatron")[1] == []
    assert found.emitted("toml")[0].startswith("[plan]\n")
    with pytest.raises(InputError, match="no framework that is known; did you mean 'megatron'"):
        found.emitted("megatrn")


def test_the_ends_of_the_front_are_named_in_the_picture() -> None:
    drawn = outcome().plot()
    assert [text.get_text() for text in drawn.axes[0].texts] == ["A", "B"]
    ends = (outcome().pareto[0], outcome().pareto[-1])
    named = [f"{mark}: {plan_text(own.plan)}" for mark, own in zip("AB", ends, strict=True)]
    assert drawn.get_supxlabel().splitlines() == named


class Stopping:
    """A function that Ctrl-C meets when it is called for the second time."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls == 2:
            raise KeyboardInterrupt
        return self.function(*arguments)


@pytest.mark.parametrize("where", ["evaluated_layouts", "_result"])
def test_a_search_that_is_stopped_keeps_what_it_has_found(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, where, Stopping(getattr(searching, where)))
    found = search(small(tp=("1",)), jobs=1)
    assert found.stopped
    assert "stopped: others may be faster" in page(found)
    assert all(layout.result for layout in found.best)
    known = {str(layout.plan): layout.uncontended for layout in outcome().layouts}
    both = [one for one in found.layouts if str(one.plan) in known]
    assert both
    assert all(one.uncontended == pytest.approx(known[str(one.plan)]) for one in both)
    assert len(found.best) == (1 if where == "_result" else min(searching.BEST, len(found.layouts)))


def test_a_search_that_is_stopped_before_it_knows_any_layout_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(searching, "bounded", Stopping(searching.bounded))
    with pytest.raises(KeyboardInterrupt):
        search(small(), jobs=1)


PLAN = ("plan", "gpt2-124m", "dgx-a100-hdr", "--gpus=8", "--global-batch=32", "--only=tp=1",
        "--only=pp=1", "--only=cp=1", "--only=zero=1", "--only=recompute=none")  # fmt: skip


def interrupted(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt
    yield


def test_a_plan_that_is_stopped_among_scenarios_prints_its_layouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sim.analysis.search.plan._faster", interrupted)
    ended = CliRunner().invoke(main, PLAN)
    assert ended.exit_code == 130
    assert "recommended" in ended.stdout
    assert "stopped: these are the results so far" in ended.stderr


def test_a_plan_that_is_stopped_without_layouts_says_that_there_is_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(searching, "counted", interrupted)
    ended = CliRunner().invoke(main, PLAN)
    assert ended.exit_code == 130
    said = "stopped before there was a result; files that were written stay\n"
    assert (ended.stdout, ended.stderr) == ("", said)


@pytest.mark.long
def test_more_gpus_per_batch_are_never_slower() -> None:
    options = {"tp": ("1", "2"), "pp": ("1", "2"), "schedule": ("1f1b",)}
    half, whole = (
        search(space("gpt2-774m", "dgx-a100-hdr", gpus=gpus, global_batch=16, only=options), jobs=1)
        for gpus in (4, 8)
    )
    assert whole.best[0].step_time < half.best[0].step_time


def test_longer_limits_find_more() -> None:
    job = small(tp=("1",), schedule=("1f1b",))
    near, far = (search(job, jobs=1, within=within) for within in (1.0, 4.0))
    assert near.best[0].plan == far.best[0].plan
    assert len(near.layouts) < len(far.layouts)


# The command.


def invoke(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["plan", "gpt2-774m", "dgx-a100-hdr", "--gpus", "8",
                                     "--global-batch", "16", "--jobs", "1", *words])  # fmt: skip
    return done.exit_code, done.stdout, done.stderr


def test_the_command_prints_the_table_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "front.png"
    code, text, _ = invoke("--only", "tp=1", "--only", "schedule=1f1b", "--plot", str(picture))
    assert code == 0
    head, first = text.splitlines()[:2]
    assert head.split()[:4] == ["tp", "pp", "dp", "microbatch"]
    assert first.split()[0] == "1"
    assert "recommended" in first
    assert "Against the recommended layout, " in text
    assert "layouts evaluated in" in text
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "zro=1"), "'zro' is not a choice; did you mean 'zero'?"),
        (("--only", "zero=4"), "'4' is not a value of zero"),
        (("--without", "schedule=1f1"), "did you mean '1f1b'?"),
        (("--only", "tp=many"), "tp = 'many' is not a number"),
        (("--only", "dispatcher=falt"), "did you mean 'flat'?"),
        (("--only", "overlap_experts=maybe"), "'maybe' is not a value of overlap_experts"),
        (("--only", "tp"), "'tp' has no value; write tp=VALUE[,VALUE]"),
        (("--only", "tp=7"), "no layout of 8 GPUs for this model has tp = 7"),
        (("--global-batch=1000000000", "--only=microbatch=2"), "in at most 20,000 micro-steps"),
        (("--within", "0.5"), "--within"),
    ],
)
def test_bad_options_are_one_line(words: tuple[str, ...], said: str) -> None:
    code, _, error = invoke(*words)
    assert code == 2
    assert said in error
    assert "Traceback" not in error


def test_a_model_that_no_layout_suits_is_refused_with_what_does_not() -> None:
    words = ["nemotron-3-nano", "dgx-h100-ndr", "--gpus=16", "--global-batch=16", "--only=tp=16"]
    done = CliRunner().invoke(main, ["plan", *words, "--jobs=1"])
    assert done.exit_code == 2
    assert "no layout of 16 GPUs suits the model: tp = 16 does not divide" in done.stderr


def test_what_does_not_fit_is_said() -> None:
    few = {"pp": ("4",), "schedule": ("1f1b",), "microbatch": ("1",), "recompute": ("full",)}
    huge = space("gpt3-175b", "dgx-a100-hdr", gpus=8, global_batch=8, only=few)
    with pytest.raises(InputError, match=r"fits in memory; --gpus \d+ fits \(\d+"):
        search(huge, jobs=1)


def test_a_cluster_without_more_gpus_is_said_to_have_none() -> None:
    few = {"tp": ("8",), "recompute": ("full",), "microbatch": ("1",)}
    node = space("deepseek-v3", "a100-node", gpus=8, global_batch=8, only=few)
    with pytest.raises(InputError, match="nor up to 8 GPUs help"):
        search(node, jobs=1)


def test_options_that_would_make_a_job_fit_do() -> None:
    """Each of those told, given to the same command."""
    fixed = ("zero=0", "tp=1", "pp=1", "cp=1", "recompute=none")
    words = ["plan", "llama3-8b", "dgx-h100-ndr", "--gpus", "8", "--global-batch", "8"]
    words += ["--jobs", "1", *(f"--only={own}" for own in fixed)]
    refused = CliRunner().invoke(main, words)
    told = re.findall(r"(--only [\w=]+) fits", refused.stderr)
    assert (refused.exit_code, len(told)) == (3, 2), refused.stderr
    for option in told:
        assert CliRunner().invoke(main, [*words, *option.split()]).exit_code == 0, option


def test_plans_read_well() -> None:
    layout = outcome().best[0]
    assert plan_text(layout.plan).startswith(f"tp {layout.plan.tp}, pp {layout.plan.pp}, dp ")
    assert layout.result is not None
    assert outcome().mfu(layout) == pytest.approx(layout.result.mfu)


@pytest.mark.few(1)
@pytest.mark.parametrize("stack", ["megatron-core", "megatron-lm-zero-bubble"])
def test_schedules_that_look_for_an_order_are_searched_where_they_are_asked_for(stack):
    """With the second stack stages end their steps apart."""
    only = {"pp": ("4",), "tp": ("1",), "recompute": ("none",), "zero": ("0",),
            "schedule": ("zb-auto", "zb-h1"), "microbatch": ("1",)}  # fmt: skip
    job = space("gpt2-774m", "dgx-a100-hdr", gpus=8, global_batch=32, stack=stack, only=only)
    found = search(job, jobs=1)
    assert {layout.plan.schedule for layout in found.best} == {"zb-auto", "zb-h1"}
    assert found.best[0].plan.schedule == "zb-auto"
    for layout in found.best:
        assert layout.uncontended <= layout.step_time * (1 + 1e-9)
        assert played(assembled(job, layout.plan)).step_time == layout.step_time


@pytest.mark.long
def test_schedules_that_do_not_drain_are_searched_where_they_are_asked_for() -> None:
    """Whatever ZeRO is asked for, and not with a word embedding that stages share."""
    only = {"pp": ("4",), "tp": ("1",), "recompute": ("full",), "microbatch": ("1",),
            "schedule": ("pipedream", "pipedream-2bw", "1f1b"), "layers": ("even",)}  # fmt: skip
    job = space("llama2-7b", "dgx-a100-hdr", gpus=8, global_batch=64, only=only)
    found = search(job, jobs=1)
    assert found.best[0].plan.schedule in ("pipedream", "pipedream-2bw")
    assert {layout.plan.zero for layout in found.best if layout.plan.schedule != "1f1b"} == {0}
    for layout in found.best:
        assert layout.uncontended <= layout.step_time * (1 + 1e-9)
        assert played(assembled(job, layout.plan)).step_time == layout.step_time
    tied = space("gpt2-774m", "dgx-a100-hdr", gpus=8, global_batch=32, only=only)
    assert {layout.plan.schedule for layout in search(tied, jobs=1).best} == {"1f1b"}


def test_offload_is_searched_where_it_is_asked_for() -> None:
    only = {"tp": ("8",), "pp": ("1",), "recompute": ("full",), "microbatch": ("4",)}
    job = space("llama2-70b", "dgx-a100-hdr", gpus=8, global_batch=32, only=only)
    with pytest.raises(InputError, match="fits in memory"):
        search(job, jobs=1)
    asked = search(replace(job, only={**only, "offload": ("none", "optimizer")}), jobs=1)
    assert {layout.plan.offload.optimizer for layout in asked.best} == {1.0}


@pytest.mark.long
def test_weights_that_stay_are_searched_with_parameters_that_are_sharded() -> None:
    job = space("gpt2-774m", "dgx-a100-hdr", gpus=8, global_batch=16, only={"zero": ("3",)})
    found = search(job, jobs=1).layouts
    assert {own.plan.reshard for own in found if own.plan.pp == 1} == {True, False}
    assert {own.plan.reshard for own in found if own.plan.pp > 1} <= {False, None}


def test_unlike_layers_are_cut_for_the_passes_of_each_plan() -> None:
    job = space("resnet50", "dgx-a100-hdr", gpus=8, global_batch=64, precision="fp32")
    mesh = MeshLayouts(job, Plan(global_batch=64, precision="fp32", pp=8), Known())
    cuts = set()
    for recompute in ("none", "full"):
        plan = Plan(global_batch=64, microbatch=1, pp=8, precision="fp32", recompute=recompute)
        own = mesh._job(plan).chunks
        assert own == chunks_of(job.model, job.stack, plan, job.topology.device)
        cuts.add(tuple(chunk.layers for (chunk,) in own))
    assert len(cuts) == 2, "else nothing is told"


def test_memory_of_unlike_layers_is_bounded_whatever_is_evaluated_first() -> None:
    job = space("vgg16", "dgx-a100-hdr", gpus=8, global_batch=512, precision="fp32")
    plan = Plan(global_batch=512, microbatch=8, precision="fp32", pp=4, dp=2)
    ways = ((0, False), (3, False), (3, True))
    plans = [replace(plan, zero=zero, no_sync=late) for zero, late in ways]
    for first in plans:
        mesh = MeshLayouts(job, plan, Known())
        mesh.candidate(first)
        for own in plans:
            candidate = mesh.candidate(own)
            assert candidate is not None
            assert mesh.least_memory(own) <= candidate.memory * (1 + 1e-9)


def test_passes_in_pairs_are_evaluated_in_pairs() -> None:
    job = space("mixtral-8x7b", "dgx-h100-ndr", gpus=64, global_batch=512)
    plan = resolved(Plan(global_batch=512, pp=4, ep=8, overlap_experts=True), 64)
    own = pipelining(MeshLayouts(job, plan, Known())._job(plan)).schedule
    assert own.pairs == plan.passes().pairs != ()


@pytest.mark.long
def test_layouts_of_experts_are_searched_where_they_are_asked_for() -> None:
    """Experts divided over neighbours, both ways to reach them, passes that take turns."""
    only = {"tp": ("2",), "pp": ("4",), "ep": ("4",), "etp": ("1", "2"), "zero": ("1",),
            "microbatch": ("1",), "recompute": ("full",), "schedule": ("1f1b", "gpipe"),
            "dispatcher": ("flat", "hierarchical"), "overlap_experts": ("no", "yes"),
            "interleave": ("1",), "layers": ("even",), "sequence_parallel": ("yes",)}  # fmt: skip
    job = space("mixtral-8x7b", "dgx-h100-ndr", gpus=64, global_batch=128, only=only)
    plans = [plan for mesh in meshes(job, Pruned()) for plan in passes(job, mesh)]
    assert {plan.etp for plan in plans} == {1, 2}
    assert {plan.dispatcher or job.stack.dispatcher for plan in plans} == {"flat", "hierarchical"}
    assert {plan.schedule for plan in plans if plan.overlap_experts} == {"1f1b"}
    unasked = replace(job, only={name: only[name] for name in ("tp", "pp", "ep")})
    plans = [plan for mesh in meshes(unasked, Pruned()) for plan in passes(unasked, mesh)]
    assert {(plan.etp, plan.dispatcher, plan.overlap_experts) for plan in plans} == {
        (1, None, None)
    }
    best = search(job, jobs=1, within=4.0).best
    for layout in best:
        assert played(assembled(job, layout.plan)).step_time == layout.step_time
    told = [plan_text(layout.plan) for layout in best]
    assert any("ep 4 x 2" in text for text in told)
    assert any("overlapped experts" in text for text in told)


def test_passes_that_reduce_gradients_on_the_compute_stream_are_searched() -> None:
    """ZeRO-2 of a stack that reduces in every micro-step and beside nothing."""
    only = {"zero": ("2",), "tp": ("1",), "pp": ("1",), "microbatch": ("2",)}
    job = space("bert-large", "dgx-a100-hdr", gpus=8, global_batch=32, stack="megatron-lm-2022",
                precision="fp16", only=only)  # fmt: skip
    first = search(job, jobs=1, best=1).best[0]
    assert first.result is not None
    assert first.uncontended == pytest.approx(first.result.step_time, rel=1e-9)


# What it recommends.

FOUR = {"tp": ["1"], "pp": ["4"], "microbatch": ["1"], "recompute": ["none"], "layers": ["even"]}
ASK: dict[str, Any] = {"gpus": 4, "global_batch": 4, "only": FOUR, "jobs": 1, "best": 1}


def test_chunks_that_are_named_restrict_the_schedules_to_those_that_have_them() -> None:
    def chunks(**only: tuple[str, ...]) -> set[int]:
        job = small(pp=("4",), microbatch=("1",), **only)
        return {plan.chunks for mesh in meshes(job, Pruned()) for plan in passes(job, mesh)}

    assert chunks(interleave=("3",)) == {3}
    assert chunks(interleave=("1", "3")) == {1, 3}
    assert chunks(interleave=("2",), schedule=("zb-v", "1f1b", "interleaved")) == {2}
    without = replace(small(pp=("4",)), without={"interleave": ("1",)})
    assert 1 not in {plan.chunks for mesh in meshes(without, Pruned())
                     for plan in passes(without, mesh)}  # fmt: skip


def test_chunks_that_the_named_schedule_does_not_have_are_refused() -> None:
    only = {**FOUR, "interleave": ["3"], "schedule": ["1f1b"]}
    with pytest.raises(InputError, match=r"has interleave = 3 with .*, schedule in --only"):
        sim.plan("gpt2-774m", "dgx-h100-ndr", **{**ASK, "only": only})


@pytest.mark.parametrize("held", [{"interleave": ("4",)}, {"schedule": ("interleaved",)}])
def test_ways_to_make_an_interleaved_pipeline_fit_are_found(held: dict[str, Any]) -> None:
    only = {"tp": ("1",), "pp": ("2",), "microbatch": ("1",), "recompute": ("none",), **held}
    job = space("llama2-7b", "dgx-h100-ndr", gpus=2, global_batch=2, seq=8192, only=only)
    assert remedies(job)[0].startswith("--only recompute=full fits")


def test_a_value_that_was_tried_on_slower_layouts_is_not_said_to_need_its_name() -> None:
    """Balanced layers are tried with 1F1B; the only layout kept has chunks of equal size."""
    only = {name: own for name, own in FOUR.items() if name != "layers"}
    found = sim.plan("gpt2-774m", "dgx-h100-ndr", within=1.0, **{**ASK, "only": only})
    assert [own.plan.layers for own in found.layouts] == [None]
    (line,) = (own for own in page(found).splitlines() if own.startswith("Tried only if"))
    assert "offload=optimizer" in line
    assert "layers" not in line


def test_a_framework_is_written_the_layout_that_is_recommended_without_it() -> None:
    """A pipeline of as many microbatches as stages, which interleaving makes 20 % faster."""
    free, told = (
        sim.plan("gpt2-774m", "dgx-h100-ndr", framework=name, **ASK) for name in ("", "megatron")
    )
    assert free.recommended.plan == told.recommended.plan
    assert told.inputs.notes == ()
    text, unsaid = told.emitted("megatron")
    assert f"--num-virtual-stages-per-pipeline-rank {free.recommended.plan.interleave}" in text
    assert unsaid == []


def test_a_framework_that_cannot_be_told_the_recommended_layout_says_what_this_costs() -> None:
    own = {"stack": "megatron-deepspeed-3d", **ASK}
    free, told = (
        sim.plan("gpt2-774m", "dgx-h100-ndr", framework=name, **own) for name in ("", "megatron")
    )
    assert free.recommended.plan.schedule not in ("1f1b", "interleaved")
    longer = told.recommended.step_time / free.recommended.step_time - 1.0
    (note,) = told.inputs.notes
    assert f"of Megatron-LM expresses schedule={free.recommended.plan.schedule};" in note
    assert note.endswith(f"the layout written takes {longer:.1%} longer")
    assert f"note: {note}" in page(told)


def test_the_simplest_of_those_that_cannot_be_told_apart_is_recommended() -> None:
    found = outcome()
    first, fastest = found.recommended, found.best[0]
    assert first.result is not None
    assert fastest.result is not None
    longest = fastest.step_time * (1.0 + told_apart(fastest.result.interval["apart"]))
    assert first.step_time <= longest
    for own in found.layouts:
        simpler = score(own.plan) < score(first.plan)
        assert not simpler or played(assembled(found.space, own.plan)).step_time > longest
    assert found.scenario().plan == first.plan


def test_a_simple_layout_is_not_left_out_for_being_a_little_slower() -> None:
    few = Standings(best=1, within=1.25, times=(1.0,), front=((1.0, 5.0),), simple=((1.0, (3, 1)),))
    assert few.admit(1.05, 9.0, (2, 0))
    assert not few.admit(1.05, 9.0, (3, 1))
    assert not few.admit(1.2, 9.0, (0, 0))


def test_rows_are_told_in_words_that_only_takes() -> None:
    found = search(small(tp=("1",), pp=("2",)), jobs=1)
    words = said(found.space, found.best[0].plan)
    again = search(
        replace(found.space, only=parsed([f"{k}={v}" for k, v in words.items()], "--only")), jobs=1
    )
    assert [own.plan for own in again.layouts] == [found.best[0].plan]


def test_what_a_software_lacks_is_not_tried_but_named() -> None:
    old = space("gpt2-774m", "dgx-a100-hdr", gpus=8, global_batch=16, stack="megatron-lm-2021")
    plans = [own for mesh in meshes(old, Pruned()) for own in passes(old, mesh)]
    assert {plan.schedule for plan in plans if plan.pp > 1} == {"1f1b", "interleaved"}
    assert not any(plan.sequence_parallel or plan.recompute == "selective" for plan in plans)
    assert {plan.cp for plan in plans} == {1}
    asked, lacking = not_tried(old, plans)
    assert "zb-h1" in lacking["schedule"]
    assert lacking["sequence_parallel"] == ["yes"]
    assert "schedule" not in asked
    asked_for = replace(old, only={"schedule": ("zb-h1",), "pp": ("2",)})
    plan = next(own for mesh in meshes(asked_for, Pruned()) for own in passes(asked_for, mesh))
    notes = played(assembled(old, plan)).inputs.notes
    assert "Megatron-LM 2021 cannot do this: Megatron-LM has no schedule = zb-h1" in notes


@pytest.mark.parametrize("name", catalog.names("topologies/frameworks"))
def test_a_framework_names_choices_and_values_that_there_are(name: str) -> None:
    known = {choice.name: choice for choice in choices()}
    able = capabilities_of(name, where="test")
    for choice, values in able.since.items():
        assert all(re.match(r"20\d\d-\d\d", since) for since in values.values())
        own = known.get(choice)
        if own is not None and own.words is not None and not own.open:
            assert set(values) - {"more"} <= set(own.words())
        assert own is not None or choice in ("precision", "recipe", "interleaving", "argument")
    assert set(able.tried) <= set(known)


@pytest.mark.long
def test_what_deepseek_published_is_found() -> None:
    """Section 3 of the report, by the stack that trained it; nothing else is as fast."""
    job = space("deepseek-v3", "h800-node", gpus=2048, global_batch=15360, stack="hai-llm",
                precision="fp8")  # fmt: skip
    plan = search(job).recommended.plan
    assert (plan.tp, plan.pp, plan.ep, plan.schedule) == (1, 16, 64, "dualpipe")
    assert (plan.moments, plan.zero) == ("bf16", 1)


def test_a_scenario_that_is_faster_is_named() -> None:
    only = {"tp": ["8"], "pp": ["8"], "schedule": ["gpipe"], "microbatch": ["1"]}
    found = sim.plan("gpt3-175b", "dgx-a100-hdr", gpus=64, global_batch=64, precision="fp16",
                     stack="megatron-lm-2022", only=only, jobs=1, best=1)  # fmt: skip
    assert "gpt3-175b-megatron" in found.faster_scenarios
    assert "scenario gpt3-175b-megatron is" in page(found)
