"""The picture shows every pass where it was, in colours that all readers can tell apart."""

from itertools import combinations
from xml.etree import ElementTree

import matplotlib.collections
import numpy as np
import pytest
from matplotlib.colors import to_rgb

import sim
from sim.config.errors import InputError
from sim.engine.timeline import Role, Span, Timeline
from sim.interface.plots.picture import rendered, save
from sim.interface.plots.pipeline import ROW, figure, figures
from sim.interface.plots.pipeline_boxes import COLOURS, rows_of, shade
from sim.kind import load
from sim.program.causes import COMPUTE, DATA, OPTIMIZER, PIPELINE, TENSOR


def roles(count, **fields):
    return tuple(
        Role(index=i, name=f"stage {i}", stage=i, ranks=8, first_rank=8 * i, **fields)
        for i in range(count)
    )


def run(role, phase, microbatch, start, end, chunk=0, cause=COMPUTE):
    args = {"phase": phase, "microbatch": microbatch, "chunk": chunk}
    return Span(role, "compute", "x", cause, start, end, args | {"parts": ((cause, end - start),)})


def meet(role, start, end, begin, cause=PIPELINE, kind="send"):
    args = {"transfers": ((cause, kind, begin, end),), "kind": kind, "bytes": 1e6, "ranks": 2}
    return Span(role, "compute", "meet", cause, start, end, args)


def line(*spans, count=2, end=None):
    return Timeline(roles=roles(count), spans=list(spans), end=end or max(s.end for s in spans))


TWO_STAGES = line(
    run(0, "F", 0, 0.0, 1.0),
    meet(0, 1.0, 4.5, begin=4.25),
    run(0, "B", 0, 4.5, 6.5),
    meet(0, 6.5, 8.0, begin=7.0, cause=DATA, kind="all_reduce"),
    run(0, "", -1, 8.0, 10.0, cause=OPTIMIZER),
    meet(1, 0.0, 1.25, begin=1.0),
    run(1, "F", 0, 1.25, 2.25),
    run(1, "B", 0, 2.25, 4.25),
)


def rectangles(timeline):
    """Left, right, top, bottom of every box, in the axes' units."""
    (axes,) = figure(timeline).axes
    (boxes,) = [c for c in axes.collections if isinstance(c, matplotlib.collections.PolyCollection)]
    corners = [path.vertices for path in boxes.get_paths()]
    return [(*c[:, 0][[0, 1]].tolist(), c[:, 1].min(), c[:, 1].max()) for c in corners]


def legend(timeline):
    return [text.get_text() for text in figure(timeline).legends[0].get_texts()]


def test_every_pass_stands_on_its_row_from_start_to_end():
    tall = [box for box in rectangles(TWO_STAGES) if box[3] - box[2] > 0.5]
    assert [(box[0], box[1], round(box[2])) for box in tall] == [
        (0.0, 1.0, 0),
        (4.5, 6.5, 0),
        (8.0, 10.0, 0),
        (1.25, 2.25, 1),
        (2.25, 4.25, 1),
    ]


def test_transfers_lie_under_the_passes_and_their_waiting_is_blank():
    boxes = rectangles(TWO_STAGES)
    thin = [box for box in boxes if box[3] - box[2] < 0.5]
    assert [box[:2] for box in thin] == [(4.25, 4.5), (7.0, 8.0), (1.0, 1.25)]
    for left, right, top, bottom in thin:
        assert not any(
            box[0] < right and left < box[1] and box[2] < bottom and top < box[3]
            for box in boxes
            if box not in thin
        )


def test_the_legend_names_what_is_drawn_and_no_more():
    assert legend(TWO_STAGES) == [
        "forward",
        "backward",
        "optimizer",
        PIPELINE,
        DATA,
        "waiting (bubble)",
    ]
    chunks = line(*(run(0, phase, 0, i, i + 1, i // 2) for i, phase in enumerate("FBFB")), count=1)
    assert legend(chunks)[:2] == ["forward, chunks 0 to 1", "backward, chunks 0 to 1"]


def test_the_halves_of_a_backward_pass_are_passes_of_their_own():
    kinds = ("F", "I", "W", "F", "I", "W")
    spans = [run(0, kind, i // 3, i, i + 1) for i, kind in enumerate(kinds)]
    split = line(*spans, count=1)
    assert [box[3] - box[2] > 0.5 for box in rectangles(split)] == [True] * 6
    assert legend(split) == ["forward", "input gradients", "weight gradients", "waiting (bubble)"]
    (axes,) = figure(split).axes
    numbers = [text.get_text() for text in axes.texts if text.get_text().isdigit()]
    assert sorted(numbers) == ["0", "0", "0", "1", "1", "1"]


def test_a_schedule_that_splits_its_backward_passes_draws_nothing_else_in_their_place():
    setting = {"plan.schedule": "zb-v", "plan.interleave": 2, "plan.recompute": "none"}
    names = legend(sim.run(load("gpt3-175b-megatron", setting)).timeline)
    kinds = dict.fromkeys(name.partition(", chunks ")[0] for name in names if "chunk" in name)
    assert list(kinds) == ["forward", "input gradients", "weight gradients"]
    assert not {TENSOR, "backward"} & set(names)


@pytest.mark.parametrize(("scale", "unit"), [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")])
def test_time_is_given_in_the_unit_a_reader_would_choose(scale, unit):
    (axes,) = figure(line(run(0, "F", 0, 0.0, 5 * scale), count=1)).axes
    assert axes.get_xlabel() == f"time ({unit})"
    assert axes.get_xlim() == pytest.approx((0.0, 5.0))
    assert axes.get_title("right") == f"step 5.00 {unit}"


def test_rows_say_who_they_are_and_how_busy():
    slow = Role(index=0, name="stage 0, rank 3", stage=0, ranks=1, first_rank=3, slowdown=1.5)
    (axes,) = figure(
        Timeline(roles=(slow, *roles(2)[1:]), spans=TWO_STAGES.spans, end=10.0), title="50 $ a_b $"
    ).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["stage 0, rank 3 (1.5x slower)", "stage 1 (8 ranks)"]
    assert {"50%", "30%"} <= {text.get_text() for text in axes.texts}
    assert axes.get_title("left") == "50 $ a_b $"


def test_numbers_appear_only_where_they_fit():
    def numbers(timeline):
        (axes,) = figure(timeline).axes
        return [text.get_text() for text in axes.texts if text.get_text().isdigit()]

    few = line(*(run(0, "F", i, i, i + 1) for i in range(20)), count=1)
    many = line(*(run(0, "F", i, i, i + 1) for i in range(500)), count=1)
    assert numbers(few) == [str(i) for i in range(20)]
    assert numbers(many) == []


def test_rows_that_do_not_fit_are_counted_not_dropped_silently():
    spans = [run(i, "F", 0, 0.0, 1.0) for i in range(70)]
    (axes,) = figure(line(*spans, count=70)).axes
    assert len(axes.get_yticks()) == 64
    assert axes.get_ylabel() == "6 more roles are not drawn"


def test_of_more_rows_than_fit_the_slow_the_first_and_the_last_are_drawn():
    many = [
        Role(index=i, name=f"rank {i}", stage=i // 2, ranks=1, first_rank=i,
             slowdown=1.3 if i == 37 else 1.0)
        for i in range(80)
    ]  # fmt: skip
    spans = [run(i, "F", 0, 0.0, 1.0 if i < 79 else 0.5) for i in range(80)]
    (axes,) = figure(Timeline(roles=tuple(many), spans=spans, end=1.0)).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    heads = {f"rank {i}" for i in range(0, 80, 2)}
    assert len(labels) == 64
    assert heads | {"rank 37 (1.3x slower)"} <= set(labels)
    assert [role.index for role in rows_of(many, 3)] == [0, 37, 78]


def test_a_schedule_without_chunks_beside_another_is_no_chunk_in_the_legend():
    plain = line(run(0, "F", 0, 0.0, 1.0), count=1)
    chunked = line(run(0, "F", 0, 0.0, 1.0), run(0, "F", 0, 1.0, 2.0, chunk=1), count=1)
    (shown,) = figures([("a", plain), ("b", chunked)]).legends
    assert "forward, chunks 0 to 1" in [text.get_text() for text in shown.get_texts()]


# Machado, Oliveira and Fernandes 2009, table 1, severity 1.0 (on linear RGB; near enough here).
VISION = {
    "full": np.eye(3),
    "protanopia": np.array(
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]
    ),
    "deuteranopia": np.array(
        [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]
    ),
}


@pytest.mark.parametrize("vision", list(VISION))
@pytest.mark.parametrize(
    ("kinds", "chunks"),
    [("FB", 1), ("FB", 2), ("FB", 3), ("FB", 4), ("FIW", 1), ("FIW", 2), ("FIW", 3), ("FBIW", 2)],
)
def test_phases_and_chunks_stay_apart_for_colour_blind_readers(vision, kinds, chunks):
    colours = [
        np.mean([shade(COLOURS[kind], chunk, chunks, progress) for progress in (0.0, 1.0)], axis=0)
        for kind in kinds
        for chunk in range(chunks)
    ]
    colours += [np.array(ROW), np.array(to_rgb(OPTIMIZER.colour))]
    perceived = [VISION[vision] @ colour for colour in colours]
    assert min(np.linalg.norm(a - b) for a, b in combinations(perceived, 2)) > 0.2


def test_png_and_svg_are_what_their_names_say_and_the_same_each_time(tmp_path):
    for kind in ("png", "svg"):
        save(figure(TWO_STAGES, title="one & two"), tmp_path / f"a.{kind}")
        save(figure(TWO_STAGES, title="one & two"), tmp_path / f"b.{kind}")
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    svg = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert "one & two" in "".join(svg.itertext())


def test_a_failure_leaves_the_old_picture_and_no_other_file(tmp_path):
    path = tmp_path / "a.png"
    path.write_text("old")
    broken = line(run(0, "F", "zero", 0.0, 1.0), run(0, "F", 1, 1.0, 2.0), count=1)
    with pytest.raises(ValueError, match="zero"):
        save(figure(broken), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_the_users_mistake(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        save(figure(TWO_STAGES), tmp_path / "nowhere" / "a.png")


def test_nothing_to_draw_is_drawn_too():
    assert rendered(figure(Timeline(roles=(), spans=[], end=0.0))).startswith(b"\x89PNG")
