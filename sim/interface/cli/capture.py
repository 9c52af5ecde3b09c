"""`sim capture`: a training script recorded without a GPU."""

from pathlib import Path

import click

from sim.interface.cli import options
from sim.interface.cli.files import output, wrote


@click.command(
    epilog=options.examples(
        "sim capture train.py --world 16 --out record.json.gz -- --batch 4",
        "sim run record.json.gz --topology dgx-h100-ndr --gpus 64",
    )
)
@click.argument("script", type=options.INPUT_FILE)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--world", type=options.COUNT, required=True, help="Ranks of the whole job.")
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--stages", is_flag=True, help="Record the ranks that it sends to and receives from, too."
)
@click.option(
    "--routing",
    default="balanced",
    show_default=True,
    help="Of tokens to experts: balanced, zipf=EXPONENT, dirichlet=ALPHA or a CSV file of counts.",
)
@output("--out", (".json", ".gz"), "Write the recording")
def capture(
    script: Path,
    arguments: tuple[str, ...],
    world: int,
    rank: int,
    stages: bool,
    routing: str,
    out: Path | None,
) -> None:
    """Record a training SCRIPT on a GPU that is not there.

    In a world of so many ranks, the step between the ends of its first two optimizer steps; its own
    ARGUMENTS stand behind `--`.

    The script is executed on this machine, as `python SCRIPT` would be. The recording is data:
    `sim run RECORDING --topology NAME` plays it, without torch.
    """
    from sim.config.errors import InputError
    from sim.jobs.capturing.capture import capture_script
    from sim.jobs.recorded.file import write

    if not script.is_file():
        raise InputError(str(script), "is no file", "name the script that trains the model")
    if out is None:
        raise InputError("sim capture", "no --out", "name a file such as record.json.gz")
    click.echo(f"running {script} on a fake GPU, rank {rank} of {world}", err=True)
    recordings = capture_script(
        script, arguments, world=world, rank=rank, stages=stages, routing=routing
    )
    write(recordings, out)
    wrote(out)
    for note in dict.fromkeys(note for recording in recordings for note in recording.notes):
        click.echo(f"note: {note}", err=True)
    for recording in recordings:
        click.echo(
            f"rank {recording.rank}: {len(recording.events):,} events, "
            f"{len(recording.operators):,} different operators, "
            f"{len(recording.groups)} process groups"
        )
