"""How many local steps pay when workers sit in different regions?

    python scenarios/local_sgd_across_regions.py [--regions 4] [--latency "50 ms"]
                                                 [--picture local_sgd_across_regions.png]

GPT-2 124M, one node of 8 A100s a region, DiLoCo's outer Nesterov; links between regions from
100 Mbit/s to 10 Gbit/s, H from 1 (data parallelism) to 500 local steps.
"""

import argparse
from pathlib import Path

import sim
from sim.config.files import atomic_write

LINKS = ("100 Mb/s", "1 Gb/s", "10 Gb/s")
PERIODS = (1, 10, 50, 100, 500)


def main() -> None:
    asked = arguments()
    print(f"{asked.regions} regions, {asked.latency} apart: share of the time that computes")
    print(f"{'link':<12}" + "".join(f"{f'H = {period}':>10}" for period in PERIODS))
    lines = {}
    for link in LINKS:
        lines[link] = [computing(asked, link, period) for period in PERIODS]
        print(f"{link:<12}" + "".join(f"{busy:>10.1%}" for busy in lines[link]))
    draw(lines, asked.picture)
    print(f"wrote {asked.picture}")


def computing(asked: argparse.Namespace, link: str, period: int) -> float:
    settings = {
        "sharing.workers": asked.regions,
        "sharing.period": period,
        "sharing.steps": max(2 * period, 10),
        "sharing.regions": {"nodes": 1, "bandwidth": link, "latency": asked.latency},
        "sharing.learning": {"task": "none"},
    }
    shares = sim.run("diloco", settings).shares
    return shares["compute"] + shares["optimizer"]


def draw(lines: dict[str, list[float]], path: Path) -> None:
    from matplotlib.figure import Figure

    fig = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = fig.add_subplot()
    for link, shares in lines.items():
        axes.semilogx(PERIODS, [100 * share for share in shares], marker="o", label=link)
    axes.set(xlabel="local steps H", ylabel="time that computes (%)", ylim=(0, 100))
    axes.spines[["right", "top"]].set_visible(False)
    axes.legend(frameon=False, title="link of a region")
    with atomic_write(path) as part:
        fig.savefig(part, dpi=120)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Verbatim)
    parser.add_argument("--regions", type=int, default=4)
    parser.add_argument("--latency", default="50 ms")
    parser.add_argument("--picture", type=Path, default=Path("local_sgd_across_regions.png"))
    return parser.parse_args()


_Verbatim = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()
