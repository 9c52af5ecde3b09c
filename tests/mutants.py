"""Which share of small mistakes in the simulator do the tests notice?

`python -m tests.mutants --count 100` changes one operator, constant or branch of a copy of the tree
at a time and runs the tests of its folder, then all, until a test fails. The unchanged copy has to
pass first. `--root` names another tree, whose own tests then run. A mutant whose tests take too
long counts as killed.
"""

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
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
    before: str
    after: str
    source: str  # the whole file, changed


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
    """Nodes below a node that run: no annotation, no part of a formatted string."""
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns") or isinstance(node, ast.JoinedStr):
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
        text = f"({ast.unparse(new)})"
        whole = (source[:begin] + text.encode() + source[end:]).decode()
        yield Mutant(path, node.lineno, source[begin:end].decode(), text, whole)


def drawn(root: Path, count: int, seed: int) -> list[Mutant]:
    """Mutants drawn with equal chances among all of the ring."""
    found = [root / "sim" / name for name in RING]
    files = [f for p in found for f in (sorted(p.rglob("*.py")) if p.is_dir() else [p])]
    sites = [(f.relative_to(root), i) for f in files for i, _ in enumerate(mutants(root, f))]
    chosen = random.Random(seed).sample(sites, count)
    return [list(mutants(root, path))[index] for path, index in chosen]


def near(path: Path, tree: Path) -> tuple[str, ...]:
    """The tests of the folder that a file of `sim/` lies in, its doctests with them."""
    part = path.parts[1].removesuffix(".py")
    tests = [f"tests/{part}", f"tests/test_{part}.py", f"sim/{path.parts[1]}"]
    return tuple(name for name in tests if (tree / name).exists())


def passes(tree: Path, tests: tuple[str, ...], limit: float) -> bool:
    """Whether tests pass in time; all of them where none is named."""
    command = [sys.executable, "-m", "pytest", "-xq", "-n2", "-pno:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


@click.command()
@click.option("--count", default=100, help="How many mutants.")
@click.option("--seed", default=0)
@click.option("--limit", default=1200.0, help="Seconds that a run of the tests may take.")
@click.option("--folder-only", is_flag=True, help="Run no tests but those of the folder.")
@click.option("--root", default=".", type=click.Path(exists=True, path_type=Path))
def main(count: int, seed: int, limit: float, folder_only: bool, root: Path) -> None:
    """Draw mutants, run the tests on each, say how many are killed."""
    killed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        skipped = shutil.ignore_patterns(".git", ".venv", "out", "__pycache__", ".*_cache")
        shutil.copytree(root, tree, ignore=skipped)
        chosen = drawn(root.resolve(), count, seed)
        runs = {m: [near(m.path, tree), *([] if folder_only else [()])] for m in chosen}
        for tests in sorted({tests for each in runs.values() for tests in each}):
            if not passes(tree, tests, limit):
                raise click.ClickException(f"{tests or 'all tests'} fail without a mutant")
        for mutant in chosen:
            place = tree / mutant.path
            kept = place.read_bytes()
            place.write_text(mutant.source)
            alive = all(passes(tree, tests, limit) for tests in runs[mutant])
            place.write_bytes(kept)
            killed += not alive
            change = f"{mutant.before} -> {mutant.after}"
            word = "alive" if alive else "killed"
            print(f"{word:6} {mutant.path}:{mutant.line} {change}", flush=True)
    print(f"{killed} of {count} mutants killed")


if __name__ == "__main__":
    main()
