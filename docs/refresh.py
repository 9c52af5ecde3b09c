"""Runs everything that README.md shows and writes down what it prints now.

    python -m docs.refresh [TABLE.csv ...]

Blocks of the README in order: `toml`, `csv` and `json` blocks are files (their first line, or the
word behind `csv` or `json`, is the name), `console` blocks are commands behind `$`, `python` blocks
are code. All happen in one empty folder. With measurement tables, the validation table is filled in
as well, the errors that it shows become the packaged spreads on which all intervals rest, and the
pages of docs/validation are written anew.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"^```(?P<kind>\w+)(?P<name>[^\n]*)\n(?P<body>.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^\$ (?P<line>(?:.*\\\n)*.*)\n", re.M)
MISTAKE = re.compile(r"error: .*: .*; .*\n")
VALIDATION = re.compile(r"(?<=<!-- validation -->\n).*?(?=<!-- /validation -->)", re.S)
SPREAD = ROOT / "topologies" / "validated" / "published.toml"
PAGES = ROOT / "docs" / "validation"  # of the tables that are shipped
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
KEPT_OUT = ("table_kept_out", "rows_kept_out")
HEADS = (
    *("table", "rows", "MAPE", "median", "bias", "worst", "rank corr.", "naive MAPE"),
    *("regret", "its mean"),
    *("covered, table unseen", "width", "half unseen", "width"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A command of the README, what stands below it there, and what it prints now."""

    command: str
    stands: str
    prints: str


def walk(text: str, folder: Path) -> Iterator[Shown]:
    """Everything that a reader would do, in a folder of their own."""
    for block in BLOCK.finditer(text):
        kind, body = block["kind"], block["body"]
        if kind == "toml":
            _write(folder / body.partition("\n")[0].removeprefix("# "), body)
        elif kind in ("csv", "json"):
            _write(folder / block["name"].strip(), body)
        elif kind == "python":
            _run([sys.executable, "-c", body], folder)
        elif kind == "console":
            yield from _commands(body, folder)


def _commands(body: str, folder: Path) -> Iterator[Shown]:
    commands = list(COMMAND.finditer(body))
    for command, follower in zip(commands, [*commands[1:], None], strict=True):
        stands = body[command.end() : follower.start() if follower else len(body)]
        printed = _run(["bash", "-c", command["line"]], folder)
        yield Shown(command=command[0], stands=stands, prints=printed)


def _write(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body)


def _run(command: list[str], folder: Path) -> str:
    """Standard output and error in their order; raises where it fails with more than a mistake."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode and not MISTAKE.fullmatch(done.stdout):
        raise RuntimeError(f"{command[-1]} failed:\n{done.stdout}")
    return done.stdout


def refreshed(text: str) -> str:
    """The README with what its commands print now."""
    with tempfile.TemporaryDirectory() as folder:
        for shown in walk(text, Path(folder)):
            text = text.replace(shown.command + shown.stands, shown.command + shown.prints, 1)
    return text


def validation(tables: list[str]) -> str:
    """The errors of measurement tables, as a table of the README; spreads go to their file."""
    options = ["--json", "--coverage", "--spread", str(SPREAD)]
    printed = _run([sys.executable, "-m", "sim", "validate", *tables, *options], Path.cwd())
    answer = json.loads(printed.splitlines()[-1])
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


def main(tables: list[str]) -> None:
    text = README.read_text()
    if tables:
        filled = validation(tables)
        text = VALIDATION.sub(lambda _: filled, text)
        _run([sys.executable, "-m", "sim", "validate", "--quiet", "--page", str(PAGES)], ROOT)
        for drawn in PAGES.glob("*.png"):
            _shrink(drawn, scale=1.0, colours=32)
    README.write_text(refreshed(text))
    picture = str(ROOT / "docs" / "pipeline.png")
    _run(["sim", "run", "gpt3-175b-selective", "--json", "--picture", picture], Path.cwd())
    shared = str(ROOT / "docs" / "sharing.png")
    _run([sys.executable, "scenarios/ring_ps_gossip.py", "--picture", shared], ROOT)
    for name in (picture, shared):
        _shrink(Path(name))


def _shrink(picture: Path, *, scale: float = 2 / 3, colours: int = 160) -> None:
    """A palette and fewer pixels: pictures stay in the repository's history for good."""
    from PIL import Image

    with Image.open(picture) as image:
        small = image.convert("RGB").resize((int(image.width * scale), int(image.height * scale)))
        small.quantize(colours, method=Image.Quantize.FASTOCTREE).save(picture, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
