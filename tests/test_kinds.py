"""Kinds of scenarios, answers and models are asked by their contracts, never which they are."""

import ast
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

import sim
from sim import kind, questions
from sim.config.errors import InputError

ROOT = Path(sim.__file__).parent
CONTRACTS = {"BaseScenario", "Answer", "JobAnswer", "Model"}  # and what is derived of them


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}


def classes() -> dict[str, tuple[Path, set[str]]]:
    """Every class with the file that defines it and the names of its bases."""
    return {
        node.name: (path, {base.id for base in node.bases if isinstance(base, ast.Name)})
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def derived() -> dict[str, Path]:
    """The classes that keep to one of the contracts, and where each is defined."""
    known = classes()
    found = set(CONTRACTS)
    while more := {name for name, (_, bases) in known.items() if bases & found} - found:
        found |= more
    return {name: known[name][0] for name in found - CONTRACTS}


def told_apart() -> Iterator[tuple[Path, str]]:
    """The classes that `isinstance`, or a pattern of `match`, tells from others, with the file."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            asked: list[ast.AST] = []
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                asked = node.args[1:]
            elif isinstance(node, ast.MatchClass):
                asked = [node.cls]
            for name in (n for part in asked for n in ast.walk(part)):
                if isinstance(name, ast.Name):
                    yield path, name.id


@pytest.mark.long
def test_nobody_asks_of_which_kind_a_scenario_an_answer_or_a_model_is() -> None:
    homes = derived()
    assert {"Scenario", "SharingScenario", "Result", "Outcome"} <= homes.keys()
    strangers = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, name in told_apart()
        if name in homes and path.parent != homes[name].parent
    ]
    assert strangers == []


@pytest.mark.parametrize(
    ("scenario", "home"),
    [("gpt2-one-gpu", "sim.simulate"), ("ps-async", "sim.jobs.sharing.kind")],
)
def test_a_document_is_of_the_kind_whose_tables_it_has(scenario: str, home: str) -> None:
    job = sim.load(scenario)
    assert (job.kind, kind.set_up(job, brief=True).kind) == (home, home)


def test_what_a_kind_lacks_is_refused_in_a_line() -> None:
    workers = kind.set_up(sim.load("ps-async", {"sharing.steps": 2}), brief=True)
    for ask in (questions.speeds, questions.kernels, questions.planned):
        with pytest.raises(InputError, match="has no step of the whole job; use `sim run`"):
            ask(workers)
    assert questions.by_line(workers) is None


def test_only_what_draws_numbers_has_seeds() -> None:
    assert questions.seeds(sim.load("gpt2-one-gpu")) is None
    drawn = questions.seeds(sim.load("ps-async", {"sharing.seed": 5}))
    assert drawn is not None
    assert [own.layout.seed for own in islice(drawn, 3)] == [5, 6, 7]
