"""Projects that nobody here wrote, recorded and played: `make captures`.

    PROJECTS=folder python -m benchmarks.projects [NAME ...]

`projects.toml` says what is run and what it has to give. Checkouts are those of the folder
PROJECTS; what is not there is cloned into out/projects. Their own requirements are to be installed
beforehand. Prints a table, and ends with 1 where a project does not give what it has to.
"""

import argparse
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import sim
from benchmarks import project_data
from sim.jobs.recorded.file import read

TABLE = Path(__file__).with_suffix(".toml")
_PATIENCE = 900  # s for one project
_HEAD = ("project", "world", "outcome", "parameters", "kernels", "collectives", "step", "memory")


@dataclass(frozen=True, kw_only=True)
class Project:
    """An entry of projects.toml."""

    repository: str
    command: list[str]
    world: int
    folder: str = ""
    revision: str = ""
    topology: str = "dgx-h100-ndr"
    parameters: int | None = None
    batch: int | None = None
    calls: Mapping[str, int] = field(default_factory=dict)
    fails: str | None = None
    python: str = "3.11"
    prepared: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def checkout(project: Project) -> Path:
    """The folder of a project; it is cloned where nobody has it."""
    name = project.repository.rpartition("/")[2] + f"-{project.revision}" * bool(project.revision)
    homes = [Path(home) for home in (os.environ.get("PROJECTS"), "out/projects") if home]
    found = next((home / name for home in homes if (home / name).is_dir()), None)
    if found is None:
        found = homes[-1] / name
        found.parent.mkdir(parents=True, exist_ok=True)
        wanted = ["--branch", project.revision] if project.revision else []
        start = ["git", "clone", "--depth", "1", *wanted]
        subprocess.run([*start, project.repository, found], check=True)
    return found.resolve()


def row(name: str, project: Project, folder: Path) -> tuple[list[str], bool]:
    """The cells of a project, and whether it gives what it has to."""
    root, record = checkout(project), folder / "record.json.gz"
    if project.prepared:
        getattr(project_data, project.prepared)(folder)
    places = {"{data}": str(folder), "{root}": str(root)}

    def placed(text: str) -> str:
        for place, path in places.items():
            text = text.replace(place, path)
        return text

    command = [placed(word) for word in project.command]
    paths = os.pathsep.join([str(root), *filter(None, sys.path)])
    start = [sys.executable, "-m", "sim", "capture", "--world", str(project.world)]
    own = {"PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"}
    own |= {name: placed(value) for name, value in project.environment.items()}
    done = subprocess.run(
        [*start, "--out", str(record), *command], cwd=root / placed(project.folder),
        timeout=_PATIENCE, capture_output=True, text=True, env={**os.environ, **own},
    )  # fmt: skip
    if not record.exists():
        line = (done.stderr.splitlines() or ["nothing said"])[-1].replace("|", "/")
        known = project.fails is not None and project.fails in done.stderr
        return [name, str(project.world), f"{line[:120]}", *[""] * 5], known
    wrong = list(_wrong(project, record))
    (first, *_) = recordings = read(record)
    kernels = Counter(e.phase for r in recordings for e in r.events if e.kind == "kernel")
    calls = Counter(e.name for e in first.events if e.kind == "collective")
    played = sim.run(sim.RecordedScenario(record=str(record), topology=project.topology))
    cells = [
        name, str(project.world), "; ".join(wrong) or "recorded", f"{first.parameters:,}",
        ", ".join(f"{count:,} {phase}" for phase, count in kernels.items()),
        ", ".join(f"{count} {kind}" for kind, count in calls.items()) or "none",
        f"{1e3 * played.step_time:.0f} ms", f"{played.memory_per_gpu['total'] / 2**30:.1f} GiB",
    ]  # fmt: skip
    return cells, not wrong


def _wrong(project: Project, record: Path) -> Iterator[str]:
    """What a recording does not give though it has to."""
    (first, *_) = recordings = read(record)
    phases = {e.phase for r in recordings for e in r.events if e.kind == "kernel"}
    if missing := {"forward", "backward", "optimizer"} - phases:
        yield f"no {', '.join(sorted(missing))} pass"
    if project.fails is not None:
        yield "is recorded, though it is said to fail"
    if project.parameters not in (None, first.parameters):
        yield f"{first.parameters:,} parameters, not {project.parameters:,}"
    played = sim.run(sim.RecordedScenario(record=str(record), topology=project.topology))
    if project.batch not in (None, played.inputs.batch):
        yield f"{played.inputs.batch:,.0f} samples an update, not {project.batch:,}"
    calls = Counter(e.name for e in first.events if e.kind == "collective")
    for kind, count in project.calls.items():
        if calls[kind] != count:
            yield f"{calls[kind]} {kind}, not {count}"


def main() -> None:
    """Record the projects named, all by default, and print the table."""
    table = {name: Project(**entry) for name, entry in tomllib.loads(TABLE.read_text()).items()}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(table))
    names = parser.parse_args().names or list(table)
    if unknown := set(names) - set(table):
        parser.error(f"no project {', '.join(sorted(unknown))}; there are {', '.join(table)}")
    print(f"| {' | '.join(_HEAD)} |", "|---" * len(_HEAD) + "|", sep="\n")
    whole = True
    for name in names:
        if sys.version_info < tuple(map(int, (asked := table[name].python).split("."))):
            print(f"| {name} | | left out: asks for Python {asked} |" + " |" * 5, flush=True)
            continue
        with TemporaryDirectory() as folder:
            try:
                cells, right = row(name, table[name], Path(folder))
            except subprocess.TimeoutExpired:
                cells, right = [name, "", f"not done in {_PATIENCE} s", *[""] * 5], False
        whole &= right
        print(f"| {' | '.join(cells)} |", flush=True)
    sys.exit(not whole)


if __name__ == "__main__":
    main()
