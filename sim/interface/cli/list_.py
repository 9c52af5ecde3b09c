"""`sim list` prints the names of all scenarios, models, clusters and other files."""

import click

from sim.config.errors import InputError

_FOLDERS = {
    "scenarios": "scenarios",
    "models": "models",
    "topologies": "topologies",
    "devices": "topologies/devices",
    "stacks": "topologies/stacks",
    "engines": "topologies/engines",
    "recipes": "topologies/recipes",
    "frameworks": "topologies/frameworks",
    "failures": "topologies/failures",
}


@click.command("list")
@click.argument("what", required=False, metavar="[FOLDER]")
def list_(what: str | None) -> None:
    """List the known scenarios, models, clusters, devices and so on."""
    from sim.config import catalog
    from sim.questions import question

    if what is not None and what not in _FOLDERS:
        raise InputError("sim list", f"no folder named {what!r}", f"known: {', '.join(_FOLDERS)}")
    for title, folder in _FOLDERS.items():
        if what in (None, title):
            groups: dict[str, list[str]] = {}
            for name in catalog.names(folder):
                groups.setdefault(question(name) if title == "scenarios" else "", []).append(name)
            for asked, names in sorted(groups.items()):
                click.echo(f"{title} ({asked}):" if asked else f"{title}:")
                click.echo("".join(f"  {name}\n" for name in names), nl=False)
