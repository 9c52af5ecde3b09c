"""One step from its files to its result with nothing known before, beside the same on the clock.

In process, in CPU seconds: between two runs all that `sim` remembers of files, jobs and machines is
forgotten. The two engines take turns, so that whatever else the machine does slows both.
"""

import gc
import time
from collections.abc import Callable, Sequence
from functools import _lru_cache_wrapper
from statistics import median
from typing import Any

import sim
from benchmarks.figures import Figure
from sim.engine.columns import program
from sim.engine.play import Engine, play
from sim.kind import load
from sim.parallel.step import training_step
from sim.scenario.setup import from_scenario
from sim.simulate import garbage_left

NAME = "gpt3-175b-megatron"
ENGINES: tuple[Engine, ...] = ("auto", "clock")
OWN_CODE = ("sim.config.schema", "sim.config.plugins")  # known as long as an import is


def forget(*, but: Sequence[str] = OWN_CODE) -> None:
    """Empty the caches of all modules of `sim` but these."""
    for thing in gc.get_objects():
        if isinstance(thing, _lru_cache_wrapper):
            home = str(getattr(thing, "__module__", ""))
            if home.partition(".")[0] == "sim" and home not in but:
                thing.cache_clear()
    program._graphs.clear()


def cpu_seconds(act: Callable[[], object]) -> float:
    """The processor's time in a call."""
    gc.collect()
    began = time.process_time()
    act()
    return time.process_time() - began


def in_turns(
    run: Callable[[Engine], object], before: Callable[[], object] = forget, repeat: int = 11
) -> dict[str, float]:
    """Median CPU milliseconds of a run by engine; `before` is called before each."""
    spent: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for _ in range(repeat + 1):  # the first one imports
        for engine in ENGINES:
            before()
            spent[engine].append(cpu_seconds(lambda engine=engine: run(engine)))
    return {engine: 1e3 * median(seconds[1:]) for engine, seconds in spent.items()}


def whole_run(engine: Engine) -> object:
    """From the files of the scenario to the result."""
    return sim.run(NAME, engine=engine)


def engine_alone() -> Callable[[Engine], object]:
    """Folding and playing a program that is written already."""
    setup = from_scenario(load(NAME))
    program = training_step(setup.job)

    def run(engine: Engine) -> object:
        with garbage_left():
            return play(program, setup.machine, engine=engine)

    return run


def measure() -> dict[str, Any]:
    """CPU milliseconds by engine: of whole runs, knowing more and more, and of the engine alone."""
    return {
        "name": NAME,
        "engine": sim.run(NAME).engine,
        "nothing_known": in_turns(whole_run, lambda: forget(but=())),
        "cold": in_turns(whole_run),
        "again": in_turns(whole_run, lambda: None),
        "engine_alone": in_turns(engine_alone()),
    }


def rows(measured: dict[str, Any]) -> list[Figure]:
    """The figures of `measure` for the table."""
    what = {
        "cold": "GPT-3 175B, 64 GPUs, one cold run in process, CPU",
        "nothing_known": "  the same, its own classes and folders read anew too",
        "again": "  the same, a second time",
        "engine_alone": "  folding and playing alone",
    }
    return [_figure(line, measured[key]) for key, line in what.items()]


def ratios(measured: dict[str, Any]) -> dict[str, float]:
    """A run without a clock over the same on it."""
    own = measured["cold"]
    return {"cold run without a clock / on it": own["auto"] / own["clock"]}


def _figure(what: str, by_engine: dict[str, float]) -> Figure:
    fast, clock = by_engine["auto"], by_engine["clock"]
    return Figure(
        what=what,
        value=f"{fast:.1f} ms",
        plain=f"on the clock, {clock / fast:.1f} times as long",
        beside=f"{clock:.0f} ms",
    )


if __name__ == "__main__":
    from benchmarks.figures import aligned

    print("\n".join(aligned(rows(measure()))))
