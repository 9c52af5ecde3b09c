"""Calibrate the GPU at hand, measure training steps on it, write table and picture.

`python -m benchmarks.calibration --device cuda --out topologies/profiles/NAME.toml` times the full
kernel suite, then training steps of models that are not part of the suite, and compares
each with its prediction from that profile. Nothing is begun after `--minutes`; the same command
resumes until the table (NAME-steps.csv) and its picture (NAME-steps.png) are complete. With
`--device cpu` it uses small models.
"""

import csv
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import click

from sim.analysis.calibration import kernel_profile
from sim.analysis.calibration.timing import torch_device
from sim.analysis.calibration.timing.provenance import provenance
from sim.analysis.calibration.training.comparison import JobComparison
from sim.analysis.calibration.training.measure import measure
from sim.analysis.calibration.training.real_run import Interleaving
from sim.config import catalog
from sim.config.errors import InputError
from sim.parallel.plan import Plan
from sim.scenario.scenario import Scenario

COLUMNS = (
    "model", "seq", "microbatch", "micro_steps", "recompute", "stack", "precision",
    "measured_s", "predicted_s", "error", "spread", "measured_bytes", "predicted_bytes",
    "memory_error", "outcome", "device", "driver", "torch", "date", "command",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A training job on one device."""

    model: str
    seq: int
    microbatch: int
    micro_steps: int = 1
    recompute: Literal["none", "full"] = "none"
    stack: str = "pytorch-eager"
    precision: Literal["bf16", "fp32"] = "bf16"

    def scenario(self, topology: str, profile: Path) -> Scenario:
        changes = {"model.seq": self.seq, "model.dropout": False, "model.attention": "flash"}
        return Scenario(
            name=" ".join(str(value) for value in asdict(self).values()),
            model=self.model,
            topology=topology,
            stack=self.stack,
            gpus=1,
            plan=Plan(
                microbatch=self.microbatch,
                global_batch=self.microbatch * self.micro_steps,
                recompute=self.recompute,
                precision=self.precision,
            ),
            change={**changes, "device.profile": str(profile)},
        )


def training_jobs(device: str) -> Iterator[TrainingJob]:
    """GPT-2 of four sizes and Llama of two: batch sizes, lengths, recomputation, graphs."""
    if device == "cpu":
        for model, seq, size in (
            ("gpt-small", 256, 4),
            ("gpt-small", 128, 8),
            ("bert-small", 128, 8),
        ):
            yield TrainingJob(
                model=model, seq=seq, microbatch=size, stack="pytorch-cpu", precision="fp32"
            )
        yield TrainingJob(
            model="gpt-small", seq=256, microbatch=4, recompute="full", stack="pytorch-cpu",
            precision="fp32",
        )  # fmt: skip
        return
    shapes = [
        ("gpt2-124m", 1024, (4, 16, 32)), ("gpt2-124m", 512, (32,)),
        ("gpt2-355m", 1024, (4, 16)), ("gpt2-774m", 1024, (4, 8)), ("gpt2-774m", 512, (16,)),
        ("gpt2-1.5b", 1024, (2, 8)), ("llama3.2-1b", 2048, (1, 4)), ("llama3.2-1b", 4096, (2,)),
        ("llama3.2-3b", 2048, (1, 4)), ("llama3.2-3b", 4096, (1,)),
    ]  # fmt: skip
    for model, seq, sizes in shapes:
        for size in sizes:
            eager = TrainingJob(model=model, seq=seq, microbatch=size)
            yield eager
        yield replace(eager, recompute="full")
        yield replace(eager, stack="pytorch-graph")
    yield TrainingJob(model="gpt2-124m", seq=1024, microbatch=8, micro_steps=4)
    yield TrainingJob(model="llama3.2-1b", seq=2048, microbatch=2, micro_steps=4)


@click.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@click.option("--topology", help="A topology of that device; h200-node, or cpu-2 on a CPU.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The profile: .toml.")
@click.option("--minutes", type=float, default=9.0, show_default=True, help="Start nothing after.")
def main(device: Literal["cuda", "cpu"], topology: str | None, out: Path, minutes: float) -> None:
    """Calibrate the device, measure training steps on it, write table and picture."""
    began = time.monotonic()
    topology = topology or ("h200-node" if device == "cuda" else "cpu-2")
    try:
        torch_device.require(device)
        if not out.exists():
            suite: Literal["full", "quick"] = "full" if device == "cuda" else "quick"
            left = minutes - (time.monotonic() - began) / 60
            done = kernel_profile.calibrate(device, suite, out, minutes=left, note=click.echo)
            if done is None:
                return click.echo("the same command goes on from there")
        table = out.with_name(f"{out.stem}-steps.csv")
        done = {_key(row) for row in _rows(table)}
        missing = [job for job in training_jobs(device) if _key(asdict(job)) not in done]
        while missing and time.monotonic() - began < 60 * minutes:
            _append(table, _row(missing.pop(0), device, topology, out))
    except InputError as error:
        raise click.ClickException(str(error)) from None
    if missing:
        click.echo(f"{len(missing)} runs left; the same command resumes")
        return
    click.echo(_summary(_rows(table)))
    _draw(_rows(table), table.with_suffix(".png"))


def _row(job: TrainingJob, device: str, topology: str, profile: Path) -> dict[str, Any]:
    """A job's row; if it does not fit or cannot run, the row has the reason instead of times."""
    origin = provenance(device)
    row: dict[str, Any] = {**asdict(job), **origin, "driver": origin.get("driver version", "")}
    try:
        comparison = measure(
            job.scenario(topology, profile), device=device,
            interleaving=Interleaving(rounds=2, steps=5), calibrate=False,
        )  # fmt: skip
        assert comparison is not None
        return row | _measured(comparison) | {"outcome": "measured"}
    except RuntimeError as error:  # torch raises one where memory runs out
        return row | {"outcome": str(error).splitlines()[0][:100]}
    finally:
        _free(device)


def _free(device: str) -> None:
    import gc

    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


def _measured(comparison: JobComparison) -> dict[str, Any]:
    step = comparison.quantity("step time")
    cells = {"measured_s": step.measured, "predicted_s": step.predicted, "error": step.error}
    cells["spread"] = comparison.measurement.spread
    for quantity in comparison.quantities:
        if quantity.name == "peak memory":
            cells["measured_bytes"] = quantity.measured
            cells["predicted_bytes"] = quantity.predicted
            cells["memory_error"] = quantity.error
    return cells


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[field.name]) for field in fields(TrainingJob))


def _rows(table: Path) -> list[dict[str, str]]:
    if not table.exists():
        return []
    with table.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _append(table: Path, row: dict[str, Any]) -> None:
    new = not table.exists()
    with table.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
    error = row.get("error")
    click.echo(f"{' '.join(_key(row))}: " + (row["outcome"] if error is None else f"{error:+.1%}"))


def _summary(rows: Sequence[dict[str, str]]) -> str:
    errors = [abs(float(row["error"])) for row in rows if row["error"]]
    memory = [abs(float(row["memory_error"])) for row in rows if row["memory_error"]]
    if not errors:
        return "no run could be measured"
    line = f"{len(errors)} runs: MAPE {sum(errors) / len(errors):.1%}, worst {max(errors):.1%}"
    return line + (f"; peak memory worst {max(memory):.1%}" if memory else "")


def _draw(rows: Sequence[dict[str, str]], picture: Path) -> None:
    """Measured against predicted step times, with the device and the date."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    measured = [row for row in rows if row["error"]]
    if not measured:
        return
    figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
    for model in dict.fromkeys(row["model"] for row in measured):
        of_model = [row for row in measured if row["model"] == model]
        points = [(float(row["measured_s"]), float(row["predicted_s"])) for row in of_model]
        axes.scatter(*zip(*points, strict=True), label=model, s=24)
    times = [float(row["measured_s"]) for row in measured]
    line = (min(times) * 0.8, max(times) * 1.25)
    axes.plot(line, line, color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="measured step (s)", ylabel="predicted step (s)")
    axes.set_title(
        f"{measured[0]['device']}, torch {measured[0]['torch']}, {measured[0]['date'][:10]}"
    )
    axes.legend(fontsize="small")
    figure.savefig(picture, dpi=150)
    plt.close(figure)
    click.echo(f"wrote {catalog.place(picture)}")


if __name__ == "__main__":
    main()
