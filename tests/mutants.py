"""Which share of small mistakes in the simulator do the tests notice?

`python -m tests.mutants` draws 100 mutants: one changed operator, constant or branch each. The
tests are collected once. Each mutant then runs in a copy of the process, whose functions it
changes: first the tests of its file, then of its folder, then others, until a test fails that
passes without it. A mutant outside of functions (a constant of a module) is named, and counts as
alive. A mutant whose tests need far more processor time than they may counts as killed.
"""

import ast
import gc
import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType

import click
import pytest
from _pytest.runner import runtestprotocol

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
ALIVE, OUTSIDE, BROKEN = "alive", "outside of functions", "not tried"


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


def within(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions that it makes, in order."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from within(constant)


def plain(code: CodeType) -> list[object]:
    """The constants of a code object that are no code themselves."""
    return [constant for constant in code.co_consts if not isinstance(constant, CodeType)]


def apply(mutant: Mutant, root: Path) -> bool:
    """Put a mutant into the functions of this process; False where none of them holds it."""
    path = root / mutant.path
    source = path.read_bytes()
    old, new = (compile(s, str(path), "exec") for s in (source, mutant.applied(source)))
    pairs = list(zip(within(old), within(new), strict=True))
    codes = {(a.co_qualname, a.co_firstlineno): b for a, b in pairs}
    gc.unfreeze()  # conftest.py froze what was collected, and frozen objects are not listed
    for function in [f for f in gc.get_objects() if isinstance(f, FunctionType)]:
        code = function.__code__
        if code.co_filename == str(path):
            function.__code__ = codes[code.co_qualname, code.co_firstlineno]
    return any(
        a.co_code != b.co_code or plain(a) != plain(b)
        for a, b in pairs
        if a.co_flags & CO_OPTIMIZED  # a function's, not a module's or a class's
    )


@cache
def words_of(path: Path) -> str:
    return path.read_text()


def distance(item: pytest.Item, mutant: Mutant) -> tuple[int, int]:
    """How far a test is from a mutant: in a file that names its module, in its folder, elsewhere
    in the ring."""
    place, own = item.path.as_posix(), mutant.path
    module = ".".join(own.with_suffix("").parts)
    package, _, name = module.rpartition(".")
    words = words_of(item.path)
    named = module in words or f"from {package} import {name}" in words
    folders = sum(f"/{part}/" in place for part in own.parts[1:-1])
    ring = any(f"tests/{part}" in place for part in (*RING, "reference"))
    return (0 if named or place.endswith(own.as_posix()) else 1, -folders or 1 - ring)


def forked(run: Callable[[], str], seconds: float) -> str:
    """What a function returns in a copy of this process; "hangs" if it needs far more time."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds),) * 2)
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        try:
            os.write(writing, run().encode())
        except Exception as error:
            os.write(writing, f"{BROKEN}: {error!r}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said or "hangs"


@dataclass
class Mutating:
    """A plugin of pytest that runs the collected tests on mutants, one process each."""

    chosen: dict[int, Mutant]
    limit: float
    killed: int = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        broken: set[str] = set()
        for number, mutant in self.chosen.items():
            items = sorted(session.items, key=partial(distance, mutant=mutant))
            said = ""
            while not said:
                items = [item for item in items if item.nodeid not in broken]
                said = forked(partial(self.killer, mutant, items), 3 * self.limit)
                guilty = [item for item in items if item.nodeid == said]
                if guilty and forked(partial(self.killer, None, guilty), self.limit) != ALIVE:
                    print(f"{said} fails without a mutant, too", flush=True)
                    broken.add(said)
                    items = items[items.index(guilty[0]) + 1 :]  # the others have passed
                    said = ""
            self.killed += not said.startswith((ALIVE, OUTSIDE, BROKEN))
            change = f"{mutant.before} -> {mutant.after}"
            print(f"{number:3} {mutant.path}:{mutant.line} {change}  [{said}]", flush=True)
        return True

    def killer(self, mutant: Mutant | None, items: list[pytest.Item]) -> str:
        """The first test that fails, of those that there is processor time for."""
        if mutant and not apply(mutant, Path.cwd()):
            return OUTSIDE
        begin = time.process_time()
        for item, following in zip(items, [*items[1:], None], strict=True):
            if time.process_time() - begin > self.limit:
                break
            if any(
                report.failed for report in runtestprotocol(item, log=False, nextitem=following)
            ):
                return item.nodeid
        return ALIVE


@click.command()
@click.option("--count", default=100, help="How many mutants.")
@click.option("--seed", default=0)
@click.option("--limit", default=30.0, help="Processor seconds of tests for each mutant.")
@click.option("--only", multiple=True, type=int, help="Numbers of mutants to try.")
@click.argument("tests", nargs=-1)
def main(
    count: int, seed: int, limit: float, only: tuple[int, ...], tests: tuple[str, ...]
) -> None:
    """Draw mutants, run TESTS (all of them) on each until one fails, say how many are killed."""
    chosen = dict(enumerate(drawn(Path().resolve(), count, seed)))
    plugin = Mutating({i: m for i, m in chosen.items() if i in (only or chosen)}, limit)
    pytest.main(["-q", "-s", "-n0", "-pno:cacheprovider", *tests], plugins=[plugin])
    print(f"{plugin.killed} of {len(plugin.chosen)} mutants killed")


if __name__ == "__main__":
    main()
