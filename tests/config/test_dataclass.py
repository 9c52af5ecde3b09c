import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace

import pytest

from sim.config import dataclass as ours


@dataclass(frozen=True)
class Standard:
    """What a user's file may inherit from."""

    tp: int


class Body:
    """A field of every sort."""

    tp: int
    pp: int = 2
    names: list[str] = field(default_factory=list, hash=False)
    note: str = field(default="", compare=False, repr=False, kw_only=True)
    size: int = field(init=False)
    ways: int = field(default=1, init=False)

    def __post_init__(self):
        object.__setattr__(self, "size", self.tp * self.pp)


SHAPES = [
    {"slots": True}, {}, {"slots": True, "kw_only": True}, {"kw_only": True}, {"eq": False}
]  # fmt: skip


OF_EVERY_CLASS = ("__dict__", "__weakref__")


def made(decorator, options):
    body = {key: value for key, value in vars(Body).items() if key not in OF_EVERY_CLASS}
    return decorator(frozen=True, **options)(type("Body", (), body))


@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_a_frozen_dataclass_is_as_the_standard_one(options):
    standard, own = made(dataclass, options), made(ours.dataclass, options)
    one, two = standard(tp=4, names=["a"], note="n"), own(tp=4, names=["a"], note="n")
    assert repr(one) == repr(two)
    assert asdict(one) == asdict(two)
    assert str(inspect.signature(standard)) == str(inspect.signature(own))
    assert [f.name for f in fields(standard)] == [f.name for f in fields(own)]
    assert standard.__match_args__ == own.__match_args__
    assert standard.__doc__ == own.__doc__
    for kind, thing in ((standard, one), (own, two)):
        assert (replace(thing, note="m") == thing) == options.get("eq", True)
        assert replace(thing, pp=3) != thing
        assert thing != asdict(thing)
        assert kind(tp=1).names is not kind(tp=1).names
        with pytest.raises(FrozenInstanceError, match="tp"):
            thing.tp = 2
        with pytest.raises(FrozenInstanceError, match="tp"):
            del thing.tp
        with pytest.raises(TypeError, match="tp"):
            kind()
    if options.get("eq", True):
        assert hash(one) == hash(two)


@ours.dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: object = None


def test_a_frozen_dataclass_with_slots_is_copied_pickled_and_printed():
    pair = Pair(1, (2, "x"))
    assert pickle.loads(pickle.dumps(pair)) == copy.deepcopy(pair) == pair
    assert not hasattr(pair, "__dict__")
    held = Pair(1, [])
    held.right.append(held)
    assert repr(held) == "Pair(left=1, right=[...])"


def test_either_decorator_inherits_from_the_other():
    @ours.dataclass(frozen=True, slots=True)
    class Own(Standard):
        pp: int = 1

    @dataclass(frozen=True)
    class Users(Own):
        dp: int = 1

    assert Users(2, 3, 4) == replace(Users(2), pp=3, dp=4)
    assert repr(Own(2)).endswith("(tp=2, pp=1)")
    with pytest.raises(FrozenInstanceError):
        Own(2).pp = 3


def test_super_without_arguments_works_beside_slots():
    @ours.dataclass(frozen=True, slots=True)
    class Longer(Pair):
        @property
        def whole(self):
            return super().__repr__()

    assert Longer(1).whole.endswith("Longer(left=1, right=None)")


def test_a_method_that_is_named_anew_still_asks_the_class_it_was_written_in():
    @ours.dataclass(frozen=True, slots=True)
    class Told:
        left: int

        def told(self):
            return super().__repr__()

    @ours.dataclass(frozen=True, slots=True)
    class Other(Told):
        again = Told.told

    assert Told(1).told().startswith("<")  # as `object` prints it
    assert Other(1).again().startswith("<")


def test_other_options_are_the_standard_decorators():
    @ours.dataclass(frozen=True, order=True, repr=False)
    class Ordered:
        size: int

    assert sorted([Ordered(2), Ordered(1)])[0].size == 1
