"""What does not fit into memory ends with a code of its own, whichever command says so."""

import json

import pytest
from click.testing import CliRunner

from sim.interface.cli.files import DOES_NOT_FIT
from sim.interface.cli.main import main

JOB = "gpt2-one-gpu"
SMALL = ("--set", "device.memory=6 GiB")
ASKED = {
    "run": (JOB,),
    "run of samples": (JOB, "--samples", "3"),
    "explain": (JOB,),
    "compare": (JOB, ": plan.microbatch=8"),
    "sweep": (JOB, "--vary", "plan.microbatch=4,8", "--no-store", "--jobs", "1"),
    "goodput": (JOB, "--days", "1"),
    "cost": (JOB, "--tokens", "1e9"),
    "workers": (
        "all-reduce-ddp", "--counts", "1,2", "--critical-batch", "64", "--least-samples", "1e6",
        "--set", "model=gpt3-175b", "--set", "sharing.steps=2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_a_job_that_does_not_fit_has_a_code_of_its_own(name: str) -> None:
    small = () if name == "workers" else SMALL
    refused = CliRunner().invoke(main, [name.split()[0], *ASKED[name], *small])
    assert refused.exit_code == DOES_NOT_FIT == 3, refused.output
    assert refused.stdout  # the answer is there, too
    if name not in ("workers", "run of samples"):
        assert CliRunner().invoke(main, [name, *ASKED[name]]).exit_code == 0


def test_a_search_that_finds_nothing_is_a_line_and_the_code() -> None:
    words = ["plan", "llama3-8b", "dgx-h100-ndr", "--gpus", "8", "--global-batch", "64"]
    only = [f"--only={own}" for own in ("zero=0", "tp=1", "pp=1", "cp=1", "recompute=none")]
    refused = CliRunner().invoke(main, [*words, *only, "--jobs", "1"])
    assert refused.exit_code == DOES_NOT_FIT
    assert "none of 4 layouts fits in memory" in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith("error: ")


def test_json_is_an_object_where_nothing_fits_too() -> None:
    words = ["plan", "llama3-70b", "dgx-h100-ndr", "--gpus", "8", "--global-batch", "8", "--json"]
    result = CliRunner().invoke(main, [*words, "--only", "zero=0"])
    assert result.exit_code == 3
    answer = json.loads(result.stdout)
    assert (answer["fits"], "fits in memory" in answer["reason"]) == (False, True)
