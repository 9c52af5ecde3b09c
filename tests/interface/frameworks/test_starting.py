"""What is written for a framework starts as the note beside it says, and is read back."""

import re
import subprocess
from pathlib import Path

import pytest

from sim.hardware.cluster import topology
from sim.interface.frameworks.jobs import FRAMEWORKS, emitted, imported, start
from sim.model.reading import load
from sim.parallel.plan import Plan

SCRIPTS = [name for name, own in FRAMEWORKS.items() if own.script]
HOPPER, BLACKWELL = "dgx-h100-ndr", "dgx-b200"


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_line_starts_what_was_written_on_every_node(name: str) -> None:
    cluster, plan = topology.load(HOPPER), Plan(global_batch=16, dp=16)
    said = start(name, plan, cluster.with_gpus(16))
    own = FRAMEWORKS[name]
    assert "NODE0: name of the first node" in said
    assert " FILE" in said
    assert bool(re.search(r"(lr[ =]RATE|SCRIPT.py)", said)) != bool(own.lacks)
    assert "NODE0" not in start(name, plan, cluster.with_gpus(4)) or name == "accelerate"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_as_told_and_is_the_job_that_it_was_written_of(
    name: str, tmp_path: Path
) -> None:
    """torchrun's place is taken by a program that prints what it is given."""
    cluster = topology.load(HOPPER).with_gpus(16)
    plan = Plan(global_batch=16, tp=2, dp=8, zero=1, sequence_parallel=True)
    text, _ = emitted(name, load("mixtral-8x7b"), plan, "mixtral-8x7b", cluster)
    script, program = tmp_path / "pretrain.sh", tmp_path / "torchrun"
    script.write_text(text)
    program.write_text('#!/bin/bash\nprintf "%s\\n" "$CUDA_DEVICE_MAX_CONNECTIONS" "$@"\n')
    program.chmod(0o755)
    paths = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    run = ["bash", str(script), "--lr", "1e-4"]
    done = subprocess.run(run, env=paths | {"FIRST": "node0"}, capture_output=True, text=True)
    connections, *words = done.stdout.splitlines()
    assert (connections, words[:4]) == ("1", ["--nnodes", "2", "--nproc-per-node", "8"])
    assert "node0:29500" in words
    assert words[-2:] == ["--lr", "1e-4"]
    assert not [word for word in words if "\\" in word]
    without = subprocess.run(run, env=paths, capture_output=True, text=True)
    assert "FIRST: the name of the first node" in without.stderr
    back = imported(name, text)
    assert (back.gpus, back.plan["tp"], back.unknown) == (16, 2, ())


@pytest.mark.parametrize(
    ("cluster", "plan", "needed"),
    [
        (HOPPER, Plan(global_batch=16, tp=2, dp=8), True),
        (HOPPER, Plan(global_batch=16, cp=2, dp=8), True),
        (HOPPER, Plan(global_batch=16, dp=16), False),
        (HOPPER, Plan(global_batch=16, tp=2, dp=8, zero=3), False),  # FSDP refuses it
        (BLACKWELL, Plan(global_batch=16, tp=2, dp=8), False),
    ],
)
def test_megatron_is_given_the_connections_that_it_asserts(
    cluster: str, plan: Plan, needed: bool
) -> None:
    """megatron/training/arguments.py, validate_args; so is the format of FSDP's checkpoints."""
    text, _ = emitted("megatron", load("llama3-8b"), plan, "", topology.load(cluster).with_gpus(16))
    assert ("export CUDA_DEVICE_MAX_CONNECTIONS=1\n" in text) == needed
    assert ("--ckpt-format fsdp_dtensor" in text) == (plan.zero > 1)
