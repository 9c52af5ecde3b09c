"""Tables whose dataclass depends on one of their keys: chosen, refused, and its keys inline."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from sim.config.errors import InputError
from sim.config.schema import Tagged, validate
from sim.config.units import Gt


@dataclass(frozen=True, kw_only=True)
class Shape:
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Circle(Shape):
    kind: Literal["circle"] = "circle"
    radius: Annotated[float, Gt(0)]


@dataclass(frozen=True, kw_only=True)
class Square(Shape):
    kind: Literal["square"] = "square"
    side: float


AnyShape = Annotated[Shape, Tagged("kind", lambda: (Circle, Square))]
InlineShape = Annotated[
    Shape, Tagged("kind", lambda: (Circle, Square), inline=True, default="circle")
]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    frame: AnyShape | None = None
    shapes: tuple[AnyShape, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Placed:
    x: float
    shape: InlineShape


def drawn(**table: Any) -> Drawing:
    return validate(table, Drawing, "drawing.toml")


def test_a_key_chooses_the_dataclass() -> None:
    circle, square = {"kind": "circle", "radius": 1.0}, {"kind": "square", "side": 2.0, "name": "b"}
    made = drawn(frame=square, shapes=[circle, square])
    assert made.frame == Square(side=2.0, name="b")
    assert made.shapes == (Circle(radius=1.0), Square(side=2.0, name="b"))


def test_what_is_a_dataclass_already_passes() -> None:
    assert drawn(frame=Circle(radius=1.0)).frame == Circle(radius=1.0)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ({"radius": 1.0}, "drawing.toml, frame: kind is missing; known: circle, square"),
        (
            {"kind": "cirle", "radius": 1.0},
            "drawing.toml, frame: kind = \"cirle\" is unknown; did you mean 'circle'?",
        ),
        (
            {"kind": "square", "side": 1.0, "radius": 1.0},
            "drawing.toml, frame: unknown key 'radius' for kind = \"square\" "
            "(it belongs to circle); known: name, kind, side",
        ),
        (
            {"kind": "circle", "radus": 1.0},
            "drawing.toml, frame: unknown key 'radus' for kind = \"circle\"; "
            "did you mean 'radius'?",
        ),
        ({"kind": "circle"}, "drawing.toml, frame: radius is missing; add radius = ..."),
        (
            {"kind": "circle", "radius": 0.0},
            "drawing.toml, frame: radius = 0.0: input should be greater than 0; "
            "set radius above 0.0",
        ),
        (3, "drawing.toml: frame = 3 is not a table; write a table with kind = ..."),
    ],
)
def test_what_chooses_nothing_or_belongs_to_another_is_one_line(frame: Any, said: str) -> None:
    with pytest.raises(InputError) as error:
        drawn(frame=frame)
    assert str(error.value) == said


def placed(**table: Any) -> Placed:
    return validate(table, Placed, "placed.toml")


def test_inline_keys_stand_beside_those_of_the_table() -> None:
    assert placed(x=1.0, kind="square", side=2.0) == Placed(x=1.0, shape=Square(side=2.0))
    assert placed(x=1.0, radius=2.0) == Placed(x=1.0, shape=Circle(radius=2.0))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            {"x": 1.0, "side": 2.0},
            "placed.toml: unknown key 'side' for kind = \"circle\" (it belongs to square); "
            "known: x, name",
        ),
        ({"x": 1.0, "kind": "square"}, "placed.toml: side is missing"),
        ({"kind": "square", "side": 1.0}, "placed.toml: x is missing"),
        ({"x": 1.0, "shape": Circle(radius=1.0), "radius": 1.0}, "unknown key 'shape'"),
    ],
)
def test_inline_mistakes_are_one_line(table: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        placed(**table)
    assert said in str(error.value)
