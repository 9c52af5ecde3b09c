"""How much does one slow GPU cost a 3-D job, and does it matter where it is?

    python scenarios/slow_gpu.py [SCENARIO] [--factor 1.5] [--picture slow_gpu.png]

Slows one GPU of the first, the middle and the last pipeline stage in turn. All ranks of its
tensor-parallel group wait for it, then the stages before and after, then every other replica at
the gradients.
"""

import argparse
from pathlib import Path

import sim
from sim.interface.plots import picture, pipeline


def main() -> None:
    asked = arguments()
    healthy = sim.run(asked.scenario)
    print(f"{asked.scenario}: {healthy.step_time:.2f} s on {healthy.ranks} GPUs")
    print(f"with one GPU slower by {asked.factor} in")
    for stage, rank in places(healthy).items():
        slowed = with_slow_gpu(asked.scenario, rank, asked.factor)
        lost = slowed.step_time / healthy.step_time - 1.0
        print(f"  stage {stage:2}: {slowed.step_time:6.2f} s  {lost:+6.1%}  {slowed.roles} roles")
    title = f"a slow GPU in stage {stage}"
    picture.save(pipeline.figure(slowed.timeline, title=title), asked.picture)
    print(f"wrote {asked.picture}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Verbatim)
    parser.add_argument("scenario", nargs="?", default="megatron-39b")
    parser.add_argument("--factor", type=float, default=1.5)
    parser.add_argument("--picture", type=Path, default=Path("slow_gpu.png"))
    return parser.parse_args()


def places(result: sim.Result) -> dict[int, int]:
    """The lowest rank of the first, the middle and the last pipeline stage."""
    last, roles = len(result.stages) - 1, result.timeline.roles
    return {
        stage: min(role.first_rank for role in roles if role.stage == stage)
        for stage in sorted({0, last // 2, last})
    }


def with_slow_gpu(scenario: str, rank: int, factor: float) -> sim.Result:
    return sim.run(sim.load(scenario, {"straggler": [{"rank": rank, "factor": factor}]}))


_Verbatim = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()
