"""Runs everything that README.md and the pages of docs show and writes down what it prints now.

    python -m docs.refresh [TABLE.csv ...]

Blocks of a page in order: `toml`, `csv` and `json` blocks are files (their first line, or the
word behind `csv` or `json`, is the name), `console` blocks are commands behind `$`, `python` blocks
are code, run where the library is installed whose name stands behind `python`, or a file where a
name with .py does. All of a page happen in one empty folder.
With measurement tables, the table of docs/accuracy.md and the README's words
about it are filled in as well, the errors that they show become the packaged spreads on which all
intervals rest, and the pages of docs/validation are written anew.
"""

import contextlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from click.testing import CliRunner

from docs import reference
from sim.config import progress
from sim.interface.cli.main import main as sim

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
ACCURACY = ROOT / "docs" / "accuracy.md"
PAGES = (
    *("questions", "inputs", "techniques", "sharing", "jobs", "storage", "reinforcement"),
    *("measuring", "traces"),
)
SHOWN = (README, *(ROOT / "docs" / f"{name}.md" for name in PAGES))
BLOCK = re.compile(r"^```(?P<kind>\w+)(?P<name>[^\n]*)\n(?P<body>.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^\$ (?P<line>(?:.*\\\n)*.*)\n", re.M)
MISTAKE = re.compile(r"error: .*: .*; .*\n")
FILLED = r"(?<=<!-- {0} -->\n).*?(?=<!-- /{0} -->)"
SPREAD = ROOT / "topologies" / "validated" / "published.toml"
ROWS = ROOT / "docs" / "validation"  # of the tables that are shipped
COLUMNS = {
    "table": "",
    "rows": "d",
    "mape": ".1%",
    "median": ".1%",
    "bias": "+.1%",
    "worst": "+.1%",
    "spearman": ".3f",
    "naive_mape": ".1%",
    "regret_median": ".1%",
    "regret_mean": ".1%",
    "table_covered": ".0%",
    "table_width": ".2f",
    "rows_covered": ".0%",
    "rows_width": ".2f",
}
SENTENCE = """\
The evidence is {rows:,} published steps in {tables} tables. The mean absolute error is
{median:.1%} in the median table and {mean:.1%} in the mean of tables; the bias is {bias:+.1%}
(predicted / measured - 1). Predictions order the steps of a table with a rank correlation of
{rank:.2f}. In the median table, the layout predicted to be fastest takes {regret:.1%} longer
than the layout measured to be fastest. If a whole table is kept out of the fit, intervals of
90 % contain {tables_out:.0%} of its steps. If half of a table's rows are used in the fit, the
intervals contain {rows_out:.0%} of the other half.
"""
KEPT_OUT = ("table_kept_out", "rows_kept_out")
HEADS = (
    *("table", "rows", "MAPE", "median", "bias", "worst", "rank corr.", "naive MAPE"),
    *("regret", "its mean"),
    *("covered, table unseen", "width", "half unseen", "width"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A command of a page, what stands below it there, and what it prints now."""

    command: str
    stands: str
    prints: str


def walk(text: str, folder: Path) -> Iterator[Shown]:
    """Everything that a reader would do, in a folder of their own."""
    for block in BLOCK.finditer(text):
        kind, body = block["kind"], block["body"]
        if kind == "toml":
            _write(folder / body.partition("\n")[0].removeprefix("# "), body)
        elif kind in ("csv", "json") or block["name"].endswith(".py"):
            _write(folder / block["name"].strip(), body)
        elif kind == "python" and _installed(block["name"].strip()):
            _run([sys.executable, "-c", body], folder)
        elif kind == "console":
            yield from _commands(body, folder)


def _commands(body: str, folder: Path) -> Iterator[Shown]:
    commands = list(COMMAND.finditer(body))
    for command, follower in zip(commands, [*commands[1:], None], strict=True):
        stands = body[command.end() : follower.start() if follower else len(body)]
        printed = _printed(command["line"], folder)
        yield Shown(command=command[0], stands=stands, prints=printed)


def _printed(line: str, folder: Path) -> str:
    """What a line of the shell prints. A command `sim` runs in this process, a pipe behind it reads
    what that has printed."""
    line = line.replace("\\\n", " ")  # as the shell does
    try:
        words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
    except ValueError:
        words = []
    behind = words.index("|") if "|" in words else len(words)
    asked = words[:behind]
    if asked[:1] != ["sim"] or set(";&<>()*") & set("".join(words)) or "sim" in words[behind:]:
        return _run(["bash", "-c", line], folder)
    progress.silence()
    with contextlib.chdir(folder):
        done = CliRunner().invoke(sim, shlex.split(line.partition("|")[0])[1:])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code not in (0, 3) and not MISTAKE.fullmatch(done.output):
        raise RuntimeError(f"{line} failed:\n{done.output}")
    if behind == len(words):
        return done.output
    return done.stderr + _run(["bash", "-c", line.partition("|")[2]], folder, given=done.stdout)


def _installed(extra: str) -> bool:
    """Whether the library is there that a block of code names behind `python`."""
    return not extra or importlib.util.find_spec(extra) is not None


def _write(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body)


def _run(command: list[str], folder: Path, given: str = "") -> str:
    """Standard output and error in their order of a command that reads what is `given`; raises
    where it fails with more than a mistake."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode and not MISTAKE.fullmatch(done.stdout):
        raise RuntimeError(f"{command[-1]} failed:\n{done.stdout}")
    return done.stdout


def refreshed(text: str) -> str:
    """A page with what its commands print now."""
    with tempfile.TemporaryDirectory() as folder:
        for shown in walk(text, Path(folder)):
            text = text.replace(shown.command + shown.stands, shown.command + shown.prints, 1)
    return text


def validate(tables: list[str]) -> dict[str, Any]:
    """What `sim validate` says of measurement tables; spreads go to their file."""
    options = ["--json", "--coverage", "--spread", str(SPREAD)]
    printed = _run([sys.executable, "-m", "sim", "validate", *tables, *options], Path.cwd())
    answer: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return answer


def sentence(answer: dict[str, Any]) -> str:
    """The errors of all tables in a few words, for the README."""
    tables = [t for t in answer["tables"] if t.get("mape") and "undisturbed" not in t["table"]]
    off = [table["mape"] for table in tables]
    ranked = [table["spearman"] for table in tables if table["spearman"] is not None]
    regret = [table["regret_median"] for table in tables if table.get("regret_median") is not None]
    covered = {key: answer["coverage"][key]["rows"]["covered"] for key in KEPT_OUT}
    return SENTENCE.format(
        rows=sum(table["rows"] for table in tables),
        tables=len(tables),
        median=median(off),
        mean=mean(off),
        bias=mean(table["bias"] for table in tables),
        rank=mean(ranked),
        regret=median(regret),
        tables_out=covered["table_kept_out"],
        rows_out=covered["rows_kept_out"],
    )


def validation(answer: dict[str, Any]) -> str:
    """The errors of measurement tables, as a table of docs/accuracy.md."""
    coverage = answer["coverage"]
    covered = {table["table"]: _held(table) for table in coverage["tables"]}
    merged = [
        {**table, **covered.get(table["table"], {}), "rows": table["rows"]}
        for table in answer["tables"]
    ]
    rows = [[_cell(table.get(key), form) for key, form in COLUMNS.items()] for table in merged]
    for key, name in (("rows", "all rows"), ("tables", "mean of tables")):
        means = _held({kept_out: coverage[kept_out][key] for kept_out in KEPT_OUT})
        figures = [_cell(means[column], COLUMNS[column]) for column in means]
        rows.append([name, *[""] * (len(HEADS) - 1 - len(figures)), *figures])
    lines = [[*HEADS], ["---", *["---:"] * (len(HEADS) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _held(table: dict[str, dict[str, float]]) -> dict[str, float]:
    """Coverage and width by what was kept out, as columns."""
    return {
        f"{kept_out.partition('_')[0]}_{figure}": table[kept_out][figure]
        for kept_out in KEPT_OUT
        for figure in ("covered", "width")
    }


def _cell(value: object, form: str) -> str:
    return "" if value is None else format(value, form)


def _fill(page: Path, mark: str, filled: str) -> None:
    page.write_text(re.sub(FILLED.format(mark), lambda _: filled, page.read_text(), flags=re.S))


def main(tables: list[str]) -> None:
    if tables:
        answer = validate(tables)
        _fill(ACCURACY, "validation", validation(answer))
        _fill(README, "accuracy", sentence(answer))
        _run([sys.executable, "-m", "sim", "validate", "--quiet", "--page", str(ROWS)], ROOT)
        for drawn in ROWS.glob("*.png"):
            _shrink(drawn, scale=1.0, colours=32)
    reference.PAGE.write_text(reference.page())
    for page in SHOWN:
        page.write_text(refreshed(page.read_text()))
    picture = str(ROOT / "docs" / "pipeline.png")
    _run(["sim", "run", "gpt3-175b-selective", "--json", "--picture", picture], Path.cwd())
    shared = str(ROOT / "docs" / "sharing.png")
    _run([sys.executable, "-m", "notebooks.studies.nine_ways", "--picture", shared], ROOT)
    for name in (picture, shared):
        _shrink(Path(name))


def _shrink(picture: Path, *, scale: float = 2 / 3, colours: int = 160) -> None:
    """A palette and fewer pixels: pictures stay in the repository's history for good."""
    from PIL import Image

    with Image.open(picture) as image:
        small = image.convert("RGB").resize((int(image.width * scale), int(image.height * scale)))
        small.quantize(colours, method=Image.Quantize.FASTOCTREE).save(picture, optimize=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--walk"]:  # PAGE FOLDER: what it shows and prints, as JSON
        page, folder = map(Path, sys.argv[2:])
        print(json.dumps([asdict(shown) for shown in walk(page.read_text(), folder)]))
    else:
        main(sys.argv[1:])
