"""Mistakes of the user: one line, wherever they are raised."""

import pickle

import pytest
import simpy

from sim.config.errors import InputError

MISTAKE = ("topology", "a node without a fabric", "set [node]")


def test_a_mistake_is_one_line_wherever_a_process_makes_it() -> None:
    # SimPy makes the exception of a failed process anew, from its arguments.
    env = simpy.Environment()

    def inner() -> simpy.events.ProcessGenerator:
        yield env.timeout(1)
        raise InputError(*MISTAKE)

    def outer() -> simpy.events.ProcessGenerator:
        yield env.process(inner())

    env.process(outer())
    with pytest.raises(InputError, match=r"^topology: a node without a fabric; set .node.$"):
        env.run()


def test_a_mistake_comes_whole_from_another_process() -> None:
    copy = pickle.loads(pickle.dumps(InputError(*MISTAKE)))
    assert (copy.where, copy.what, copy.remedy) == MISTAKE
    assert str(copy) == str(InputError(*MISTAKE))
    assert str(InputError("a", "b")) == "a: b"
