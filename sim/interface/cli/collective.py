"""`sim collective` predicts the output of nccl-tests on a cluster, by algorithm and protocol."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from sim.config.errors import InputError
from sim.interface.cli import options
from sim.interface.cli.files import Form, answers, output, wrote


@click.command(
    epilog=options.examples(
        "sim collective all_reduce '256 MiB' dgx-h100-ndr --gpus 64 --slow node3.nic0=2",
        "sim collective all_gather dgx-h100-ndr --gpus 64 --sizes 1KiB..8GiB --picture curve.png",
        "sim collective all_reduce '1 MiB' dgx-a100-hdr --gpus 8 --algorithm ring --trace r.json",
    )
)
@click.argument("kind")
@click.argument("rest", nargs=-1, metavar="[SIZE] TOPOLOGY")
@click.option("--topology", metavar="NAME", help="The cluster, in place of TOPOLOGY.")
@click.option("--gpus", type=options.COUNT, help="GPUs of the topology in use.")
@click.option(
    "--algorithm", metavar="A,B", default="", help="Use these algorithms, not the library's choice."
)
@click.option("--sizes", metavar="1KiB..8GiB", help="A size, or a range in which sizes double.")
@click.option(
    "--slow", multiple=True, metavar="LINK=FACTOR", help="Divide a link's bandwidth: node3.nic0=2."
)
@click.option(
    "--traffic",
    multiple=True,
    metavar="LINK=RATE",
    help='Traffic of other jobs on a link: pod0="1 Tb/s".',
)
@click.option("--late", multiple=True, metavar="RANK=TIME", help='A rank starts late: 3="20 us".')
@click.option(
    "--placement", metavar="random|A,B,...", default="", help="GPU of each rank, or random[:SEED]."
)
@click.option("--messages", is_flag=True, help="Play each algorithm message by message too.")
@options.SETTINGS
@answers("Draw bandwidth against size, and the load of the network")
@output("--trace", (".json", ".gz"), "Trace every message of one algorithm")
@options.LIMIT
def collective(
    rest: tuple[str, ...],
    topology: str | None,
    algorithm: str,
    sizes: str | None,
    slow: tuple[str, ...],
    traffic: tuple[str, ...],
    late: tuple[str, ...],
    placement: str,
    trace: Path | None,
    form: Form,
    **question: Any,
) -> None:
    """Time a collective KIND on TOPOLOGY as nccl-tests would.

    KIND is all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, scatter,
    sendrecv, or point_to_point between two ranks. The size is SIZE bytes, or all of --sizes. The
    answer has times by algorithm and protocol, the library's own choice, and the busiest links.
    --set takes the keys of scenarios that concern a cluster: topology, network, node, device,
    straggler.
    """
    from sim.analysis.collectives.times import collective as timed

    *size, topology = (*rest, topology) if topology is not None else rest or ("",)
    times = timed(
        sizes=_sizes(size, sizes),
        topology=topology,
        algorithm=[name.strip() for name in algorithm.split(",") if name.strip()],
        slow={link: options.factor_of("--slow", text) for link, text in _pairs("--slow", slow)},
        traffic=dict(_pairs("--traffic", traffic)),
        late={_rank(rank): text for rank, text in _pairs("--late", late)},
        placement=_placement(placement),
        **question,
    )
    if trace is not None:
        from sim.interface.formats.perfetto import write

        write(times.trace(), trace)
        wrote(trace)
    form.show(times)


def _sizes(size: list[str], span: str | None) -> str:
    """Return SIZE or the span of `--sizes`. Raises `InputError` unless exactly one is given."""
    if len(size) + (span is not None) != 1:
        fault = "wants KIND SIZE TOPOLOGY, or KIND TOPOLOGY --sizes"
        raise InputError("sim collective", fault, 'e.g. sim collective all_reduce "1 GiB" NAME')
    return size[0] if size else str(span)


_PAIRS = {"--slow": "node3.nic0=2", "--traffic": 'node3.nic0="100 Gb/s"', "--late": '3="20 us"'}


def _pairs(option: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name.strip():
            fault = f"{text!r} has no '='"
            raise InputError(option, fault, f"write it like {_PAIRS[option]}")
        yield name.strip(), value.strip()


def _rank(text: str) -> int:
    if not text.isdecimal():
        raise InputError("--late", f"{text!r} is no rank", f"write it like {_PAIRS['--late']}")
    return int(text)


def _placement(text: str) -> str | list[int]:
    """Return the GPU of each rank as a list, or a text that says how to choose it (random:SEED)."""
    places = [place.strip() for place in text.split(",") if place.strip()]
    return list(map(int, places)) if places and all(map(str.isdecimal, places)) else text
