"""Which share of small mistakes in the simulator do the tests notice?

`python -m tests.mutants --count 100` draws mutants: one changed operator, constant or branch each.
A first run of all tests on a copy of the tree notes which tests reach which of these places, and
how long they take. Each mutant is then tried on the tests that reach it, the shortest first, until
a test fails. A place that runs at import is tried on the tests of its folder first, then on others.
`--root` names another tree, whose own tests then run. A mutant whose tests need far more processor
time than before counts as killed.
"""

import ast
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import pytest

RING = (
    *("config", "program", "variability", "model", "hardware", "collectives", "parallel"),
    *("engine", "scenario", "uncertainty", "results", "simulate.py"),
)
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
}
NEVER_RUN = ("TYPE_CHECKING", "__name__")


@dataclass(frozen=True)
class Mutant:
    """An expression of a file and the expression that replaces it."""

    path: Path  # relative to the root of the tree
    line: int
    begin: int  # bytes of the file
    end: int
    before: str
    after: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.begin] + self.after.encode() + source[self.end :]


def changed(node: ast.AST) -> ast.expr | None:
    """The expression with another operator, constant or branch; None where it has none of them."""
    new = deepcopy(node)
    match new:
        case ast.BinOp() | ast.BoolOp() if type(new.op) in SWAPS:
            new.op = SWAPS[type(new.op)]()  # type: ignore[assignment]
        case ast.Compare() if type(new.ops[0]) in SWAPS:
            new.ops[0] = SWAPS[type(new.ops[0])]()  # type: ignore[call-overload]
        case ast.Constant(value=bool()):
            new.value = not new.value
        case ast.Constant(value=int() | float()):
            new.value += 1
        case ast.IfExp():
            new.body, new.orelse = new.orelse, new.body
        case _:
            return None
    return new


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes below a node that run: no annotation, pattern or part of a formatted string."""
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns") or isinstance(node, ast.JoinedStr | ast.pattern):
            continue
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST):
                yield child
                yield from expressions(child)


def mutants(root: Path, path: Path) -> Iterator[Mutant]:
    """Every mutant of a file, one for each expression that can change and each `if`."""
    source = (root / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in expressions(ast.parse(source)):
        new = changed(node)
        if isinstance(node, ast.If | ast.While):
            node = node.test
            new = ast.UnaryOp(ast.Not(), node)
        if new is None or any(word in ast.unparse(node) for word in NEVER_RUN):
            continue
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before, after = source[begin:end].decode(), f"({ast.unparse(new)})"
        yield Mutant(path, node.lineno, begin, end, before, after)


def drawn(root: Path, count: int, seed: int) -> list[Mutant]:
    """Mutants drawn with equal chances among all of the ring."""
    found = [root / "sim" / name for name in RING]
    files = [f for p in found for f in (sorted(p.rglob("*.py")) if p.is_dir() else [p])]
    sites = [(f.relative_to(root), i) for f in files for i, _ in enumerate(mutants(root, f))]
    chosen = random.Random(seed).sample(sites, count)
    return [list(mutants(root, path))[index] for path, index in chosen]


def probed(source: bytes, sites: dict[int, Mutant]) -> bytes:
    """A file that calls `reached(number)` where each of its mutants lies.

    >>> place = Mutant(Path("f.py"), 1, 4, 9, "a + b", "(a - b)")
    >>> probed(b"x = a + b", {3: place})
    b'x = (reached(3) or (a + b))'
    """
    begins = [(m.begin, 1, m.begin - m.end, f"(reached({i}) or (") for i, m in sites.items()]
    inserts = sorted([*begins, *((m.end, 0, 0, "))") for m in sites.values())])
    pieces, last = [], 0
    for place, _, _, text in inserts:
        pieces += [source[last:place], text.encode()]
        last = place
    return b"".join([*pieces, source[last:]])


PROBE = """
import builtins, os
pairs = set()
def reached(number):
    pair = (number, os.environ.get("PYTEST_CURRENT_TEST"))
    if pair not in pairs and not pairs.add(pair):
        with open(f"{os.environ['MUTANTS_LOG']}/{os.getpid()}", "a") as log:
            log.write(f"{number} {pair[1]}\\n")
builtins.reached = reached
"""


def reaching(tree: Path, chosen: list[Mutant]) -> tuple[dict[str, float], list[set[str]]]:
    """Seconds of each test, and for each mutant the tests that reach it."""
    kept = {m.path: (tree / m.path).read_bytes() for m in chosen}
    for path, source in kept.items():
        sites = {i: m for i, m in enumerate(chosen) if m.path == path}
        (tree / path).write_bytes(probed(source, sites))
    log, site = tree / "out" / "reached", tree / "sitecustomize.py"
    log.mkdir(parents=True)
    site.write_text(PROBE)
    done = run_tests(tree, "-n2", "--durations=0", "--durations-min=0", MUTANTS_LOG=str(log))
    site.unlink()
    for path, source in kept.items():
        (tree / path).write_bytes(source)
    times: dict[str, float] = {}
    for seconds, test in re.findall(r"^ *([\d.]+)s (?:call|setup) +(.*)$", done.stdout, re.M):
        times[test] = times.get(test, 0.0) + float(seconds)
    failed = set(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M))
    if failed:
        print(f"{len(failed)} tests fail without a mutant and are left out: {sorted(failed)}")
    found: list[set[str]] = [set() for _ in chosen]
    for line in (line for file in log.iterdir() for line in file.read_text().splitlines()):
        number, test, *_ = re.split(r" (?=\S+::|None)| \((?:call|setup|teardown)\)", line)
        if test in times and test not in failed:
            found[int(number)].add(test)
    return times, found


def at_import(path: Path, tree: Path, times: dict[str, float]) -> set[str]:
    """The tests of the files that name a module, those of its folder and its doctests."""
    part = path.parts[1].removesuffix(".py")
    module = ".".join(path.with_suffix("").parts)
    files = {test.partition("::")[0] for test in times}
    near = (f"tests/{part}", f"sim/{path.parts[1]}")
    wanted = {f for f in files if f.startswith(near) or module in (tree / f).read_text()}
    return {test for test in times if test.partition("::")[0] in wanted}


def run_tests(
    tree: Path, *arguments: str, seconds: float | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """pytest on a tree, within seconds of processor time."""
    command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *arguments]
    budget = None if seconds is None else int(seconds)
    return subprocess.run(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), **environment},
        preexec_fn=budget and partial(resource.setrlimit, resource.RLIMIT_CPU, (budget, budget)),
        capture_output=True,
        text=True,
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As a plugin: keep the tests that `MUTANTS_CHOSEN` lists, in its order."""
    if chosen := os.environ.get("MUTANTS_CHOSEN"):
        order = {test: i for i, test in enumerate(json.loads(Path(chosen).read_text()))}
        items[:] = sorted(
            (item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid]
        )


def killer(tree: Path, tests: list[str], seconds: float) -> str | None:
    """The first of some tests that fails; None if all of them pass."""
    chosen = tree / "out" / "chosen.json"
    chosen.write_text(json.dumps(tests))
    files = sorted({test.partition("::")[0] for test in tests})
    done = run_tests(
        *(tree, "-x", "-n0", "-ptests.mutants", *files), seconds=seconds, MUTANTS_CHOSEN=str(chosen)
    )
    if done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (.*)", done.stdout, re.M)
    return failed[1] if failed else "ended by its time"


def bounded(tests: set[str], times: dict[str, float], limit: float) -> tuple[list[str], float]:
    """The shortest tests that take at most so many seconds together, and their seconds."""
    kept: list[str] = []
    total = 0.0
    for test in sorted(tests, key=times.__getitem__):
        if total + times[test] <= limit or not kept:
            kept.append(test)
            total += times[test]
    return kept, total


@click.command()
@click.option("--count", default=100, help="How many mutants.")
@click.option("--seed", default=0)
@click.option("--limit", default=200.0, help="Seconds of tests that each mutant is tried on.")
@click.option("--reached", type=click.Path(path_type=Path), help="Where the first run is kept.")
@click.option("--only", multiple=True, type=int, help="Numbers of mutants to try.")
@click.option("--root", default=".", type=click.Path(exists=True, path_type=Path))
def main(
    count: int, seed: int, limit: float, reached: Path | None, only: tuple[int, ...], root: Path
) -> None:
    """Draw mutants, run the tests that reach each, say how many are killed."""
    killed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        skipped = shutil.ignore_patterns(".git", ".venv", "out", "__pycache__", ".*_cache")
        shutil.copytree(root, tree, ignore=skipped)
        (tree / "out").mkdir()
        chosen = drawn(tree, count, seed)
        if reached and reached.exists():
            times, stored = json.loads(reached.read_text())
            found = [set(tests) for tests in stored]
        else:
            times, found = reaching(tree, chosen)
            if reached:
                reached.write_text(json.dumps([times, [sorted(tests) for tests in found]]))
        for number, (mutant, tests) in enumerate(zip(chosen, found, strict=True)):
            if only and number not in only:
                continue
            near = at_import(mutant.path, tree, times)
            parts = (tests & near, tests - near) if tests else (near,)
            place = tree / mutant.path
            source = place.read_bytes()
            place.write_bytes(mutant.applied(source))
            by, tried = None, 0
            for kept, seconds in (bounded(part, times, limit) for part in parts if part):
                by = by or killer(tree, kept, 60 + 5 * seconds)
                tried += len(kept)
            place.write_bytes(source)
            killed += by is not None
            change = f"{mutant.before} -> {mutant.after}"
            word = "alive" if by is None else "killed"
            shown = f"{tried} of {len(tests or near)} tests" if by is None else by
            where = f"{mutant.path}:{mutant.line}"
            print(f"{number:3} {word:6} {where} {change}  [{shown}]", flush=True)
    print(f"{killed} of {len(only) or count} mutants killed")


if __name__ == "__main__":
    main()
