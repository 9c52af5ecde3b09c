"""The command `sim`: what it prints where, and the files that it leaves."""

import csv
import gzip
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim import kind
from sim.config import catalog
from sim.interface.cli.files import DOES_NOT_FIT
from sim.interface.cli.main import main
from sim.results.answer import Answer

KEYS = {
    "step_time", "samples_per_second", "tokens_per_second", "tokens_per_second_per_gpu", "mfu",
    "hfu", "model_tflops_per_gpu", "breakdown", "bubble_fraction", "memory_per_gpu", "fits",
    "ranks", "roles", "operations", "events", "engine", "wall_seconds", "warnings", "step_time_low",
    "step_time_expected", "step_time_high", "interval",
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sim(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments, prog_name="sim")
    assert result.exit_code == 0, result.stderr or result.exception
    return result


def answer(*arguments: str) -> dict:  # type: ignore[type-arg]
    """The last line of a `--json` run."""
    printed = json.loads(sim("run", *arguments, "--json").stdout.splitlines()[-1])
    assert isinstance(printed, dict)
    return printed


def rows_of(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(name).read_text().splitlines()))


@pytest.mark.parametrize(
    "command", [[Path(sys.executable).with_name("sim")], [sys.executable, "-m", "sim"]]
)
def test_the_command_is_installed_and_a_module(command: list[Path | str]) -> None:
    shown = subprocess.run([*command, "--help"], check=True, capture_output=True, text=True).stdout
    assert shown.startswith("Usage: sim ")
    assert all(command in shown for command in ("run", "validate", "show", "list"))


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert version("clustersim") in sim("--version").stdout


def test_a_json_answer_has_the_promised_keys() -> None:
    result = answer("gpt3-175b-megatron")
    assert set(result) >= KEYS
    assert sum(result["breakdown"].values()) == pytest.approx(result["step_time"], rel=1e-9)
    assert result["tokens_per_second"] == pytest.approx(64 * 2048 / result["step_time"])
    parts = [size for part, size in result["memory_per_gpu"].items() if part != "total"]
    assert sum(parts) == pytest.approx(result["memory_per_gpu"]["total"])


def test_the_text_names_the_step_the_causes_and_the_memory() -> None:
    shown = sim("run", "gpt3-175b-megatron")
    for word in ("step time", "MFU", "tensor communication", "bubble", "Memory", "stage"):
        assert word in shown.stdout
    assert shown.stderr == ""


def test_the_answer_names_the_engine_and_both_give_the_same_step() -> None:
    replayed, clocked = (answer("gpt3-175b-megatron", f"--engine={e}") for e in ("auto", "clock"))
    assert (replayed["engine"], clocked["engine"]) == ("replay", "clock")
    assert replayed["step_time"] == pytest.approx(clocked["step_time"], rel=1e-9)


def test_the_same_question_has_the_same_answer() -> None:
    first, second = answer("megatron-1.7b"), answer("megatron-1.7b")
    del first["wall_seconds"], second["wall_seconds"]
    assert first == second


def test_unfolded_ranks_give_the_same_answer() -> None:
    question = ("gpt3-175b-megatron", "--set", "plan.global_batch=16")
    folded, unfolded = answer(*question), answer(*question, "--unfold")
    assert (folded["roles"], unfolded["roles"]) == (8, 64)
    assert unfolded["step_time"] == pytest.approx(folded["step_time"], rel=1e-9)


def test_a_setting_changes_the_answer() -> None:
    slow = answer("gpt3-175b-megatron", "--set", "network.bandwidth=20 Gb/s")
    assert slow["step_time"] > answer("gpt3-175b-megatron")["step_time"]


def test_one_slow_gpu_holds_up_the_whole_job() -> None:
    question = ("gpt3-175b-megatron", "--set", "plan.global_batch=16")
    slow = answer(*question, "--set", "straggler=[{rank=11, factor=1.5}]")
    assert slow["step_time"] > 1.1 * answer(*question)["step_time"]
    assert slow["roles"] > 8


def test_a_run_leaves_the_files_that_it_is_asked_for(folder: Path) -> None:
    shown = sim(
        "run", "gpt2-one-gpu", "--trace=a.json", "--picture=b.png", "--report=c.html",
        "--timeline=d.csv",
    )  # fmt: skip
    assert shown.stderr == "wrote a.json\nwrote d.csv\nwrote b.png\nwrote c.html\n"
    assert json.loads(Path("a.json").read_text())["traceEvents"]
    assert Path("b.png").read_bytes().startswith(b"\x89PNG")
    assert Path("c.html").read_text().startswith("<!doctype html>")
    assert rows_of("d.csv")
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize(
    ("option", "name", "start"),
    [
        ("--picture", "a.svg", "<?xml"),
        ("--report", "a.txt", "gpt2"),
        ("--report", "a.md", "# gpt2"),
        ("--report", "a.tex", "% needs"),
        ("--report", "a.json", '{"schema": 1'),
    ],
)
def test_the_ending_chooses_the_form(option: str, name: str, start: str) -> None:
    sim("run", "gpt2-one-gpu", option, name)
    assert Path(name).read_text().startswith(start)


def test_a_trace_may_be_compressed() -> None:
    sim("run", "gpt2-one-gpu", "--trace=a.json.gz")
    assert json.loads(gzip.decompress(Path("a.json.gz").read_bytes()))["traceEvents"]


def test_json_keeps_standard_output_to_itself() -> None:
    shown = sim("run", "gpt2-one-gpu", "--json", "--trace=a.json")
    assert len(shown.stdout.splitlines()) == 1
    assert shown.stderr == "wrote a.json\n"


def test_list_shows_what_there_is() -> None:
    shown = sim("list").stdout
    for folder in ("scenarios", "models", "topologies", "topologies/devices", "topologies/stacks"):
        assert all(f"  {name}\n" in shown for name in catalog.names(folder))
    scenarios = sim("list", "scenarios").stdout
    assert "gpt3-175b\n" not in scenarios
    jobs, _, others = scenarios.partition("scenarios (")
    assert "  gpt3-175b-megatron\n" in jobs
    workers = others.partition("How do workers that do not wait for one another train?):\n")[2]
    assert "  ps-async\n" in workers.partition("scenarios (")[0]


@pytest.mark.parametrize("asked", [(), ("--picture=a.png",)])
def test_a_view_that_fails_loses_no_answer(
    asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(Answer, "__str__", fail)
    monkeypatch.setattr(Answer, "plot", fail)
    shown = CliRunner().invoke(main, ("run", "gpt2-one-gpu", *asked))
    assert isinstance(shown.exception, ZeroDivisionError)
    assert json.loads(shown.stdout)["step_time"] > 0


def test_a_scenario_is_shown_as_the_file_that_plays_it(folder: Path) -> None:
    written = sim("show", "ps-async").stdout
    assert tomllib.loads(written) == kind.document("ps-async")


def test_show_describes_and_draws(folder: Path) -> None:
    shown = sim("show", "dgx-a100-hdr", "--gpus=16")
    assert "A100" in shown.stdout
    assert not Path("dgx-a100-hdr.png").exists()  # nothing is written unasked
    sim("show", "dgx-a100-hdr", "--gpus=16", "--picture=a.png")
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    sim("show", "dgx-a100-hdr", "--gpus=16", "--picture=b.svg")
    assert Path("b.svg").read_text().startswith("<?xml")


CONFIG = {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "vocab_size": 152064,
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "max_position_embeddings": 131072, "tie_word_embeddings": False,
}  # fmt: skip


def test_a_config_of_hugging_face_runs_and_is_shown(folder: Path) -> None:
    (folder / "Qwen2.5-7B").mkdir()
    path = folder / "Qwen2.5-7B" / "config.json"
    path.write_text(json.dumps(CONFIG))
    shown = sim("show", str(path)).stdout
    assert shown.startswith("Qwen2.5-7B: 28 layers")
    assert "7.62 billion" in shown  # its model card prints 7.61 billion
    job = ("--model", str(path), "--topology", "dgx-h100-ndr", "--gpus", "32")
    job = (*job, "--set", "plan.zero=1", "--set", "plan.recompute=full")
    printed = answer(*job, "--set", "plan.global_batch=128", "--set", "model.seq=8192")
    assert printed["parameters"] == 7_615_616_512
    assert printed["inputs"]["notes"] == []  # somebody has said how long sequences are
    tokens = printed["tokens_per_second"] / printed["samples_per_second"]
    assert tokens == pytest.approx(8192)
    few = ("--gpus", "8", "--global-batch", "16", "--only", "tp=4", "--only", "microbatch=1",
           "--only", "zero=1", "--only", "recompute=none")  # fmt: skip
    plan = ("plan", str(path), "dgx-h100-ndr", *few)
    taken = "4,096 are assumed unless model.seq or --seq differs"
    job = (*job, "--set", "plan.global_batch=32")
    init = ("init", "mine", *job[:6], "--global-batch", "32")
    for asked, line in ((("show", str(path)), -1), (("run", *job), 1), (plan, 0)):
        assert taken in sim(*asked).stdout.splitlines()[line]
    assert taken in sim(*init).stderr
    assert sim(*init, "--seq", "8192", "--force").stderr == "wrote scenarios/mine.toml\n"
    assert answer("mine")["inputs"]["tokens"] == 8192
    assert taken in sim(*plan, "--emit", "megatron").stderr
    assert taken not in sim(*plan, "--seq", "8192").stdout


def test_a_model_and_a_topology_given_replace_those_of_a_scenario() -> None:
    own = answer("megatron-39b", "--model", "megatron-18b", "--set", "plan.pp=1")
    assert own["parameters"] == pytest.approx(18.4e9, rel=0.01)


def test_a_job_that_does_not_fit_is_answered_with_a_code_of_its_own() -> None:
    job = ("run", "megatron-39b", "--set", "device.memory=40 GiB", "--set", "plan.microbatch=8")
    done = CliRunner().invoke(main, job, prog_name="sim")
    assert done.exit_code == DOES_NOT_FIT == 3
    assert "does not fit" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("device", ["H100 80GB SXM", "H100-80GB-SXM", "h100_80gb_sxm"])
def test_a_device_may_be_named_as_it_is_printed(device: str) -> None:
    named = answer("megatron-18b", "--set", "device=h100-80gb-sxm", "--set", f"device={device}")
    assert named["inputs"]["device"] == "H100 80GB SXM"


def test_another_device_is_not_rented_at_the_price_of_the_first() -> None:
    own, other = "megatron-18b", ("--set", "device=h100-80gb-sxm")
    assert answer(own)["dollars_per_million_tokens"]
    assert answer(own, *other)["dollars_per_million_tokens"] is None
    asked = answer(own, *other, "--price", "2 USD/h")
    assert asked["inputs"]["price"] == "2 USD/h per GPU (as given)"


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("tp=4", "did you mean 'plan.tp'?"),
        ("seq=4096", "did you mean 'model.seq'?"),
        ("layers=4", "did you mean 'plan.layers' or 'model.layers'?"),
        ("oversubscription=2", "did you mean 'network.oversubscription'?"),
        ("memory=40 GiB", "did you mean 'device.memory' or 'host.memory'?"),
        ("device=h100", "did you mean 'h100-80gb-sxm' or 'h100-96gb-sxm'?"),
        ("device=H200", "did you mean 'h200-sxm'?"),
        ("device.name=H200", "measured runs and profiles are found by this name"),
        ("topology.name=mine", "measured runs and profiles are found by this name"),
    ],
)
def test_what_people_write_first_is_answered_with_what_they_mean(setting: str, told: str) -> None:
    refused = CliRunner().invoke(main, ["run", "megatron-39b", "--set", setting])
    assert refused.exit_code == 2
    assert told in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_device_may_be_named_alone() -> None:
    short = answer("megatron-18b", "--set", "device=h100-80gb-sxm")
    long = answer("megatron-18b", "--set", "topology.device=h100-80gb-sxm")
    own = answer("megatron-18b")
    assert short["step_time"] == long["step_time"] < own["step_time"]


def test_show_draws_a_collective_algorithm() -> None:
    shown = sim("show", "ring", "--gpus=4", "--picture=ring.png")
    assert "all_reduce       6 rounds   1.5 B" in shown.stdout
    assert Path("ring.png").read_bytes().startswith(b"\x89PNG")


def test_a_trace_for_each_role_is_a_file_in_a_folder(folder: Path) -> None:
    sim("run", "gpt3-175b-megatron", "--rank-traces=traces")
    names = sorted(path.name for path in (folder / "traces").iterdir())
    assert names == sorted(f"rank-{8 * stage}.json" for stage in range(8))


TABLE = """\
id,cluster,family,layers,hidden,heads,kv_heads,ffn,vocab,seq,gated_mlp,tied_embeddings,gpus,tp,pp,\
dp,zero,microbatch,global_batch,interleave,schedule,recompute,sequence_parallel,precision,\
attention,software,step_time_s
big,dgx-a100-hdr,gpt,24,2304,24,24,9216,51200,2048,false,true,32,1,1,32,0,16,512,1,none,full,\
false,fp16,standard,megatron-lm-2021,3.53
half,dgx-a100-hdr,gpt,24,2304,24,24,9216,51200,2048,false,true,16,1,1,16,0,16,256,1,none,full,\
false,fp16,standard,megatron-lm-2021,3.50
odd,dgx-a100-hdr,gpt,24,2304,24,24,9216,51200,2048,false,true,12,1,1,12,0,16,192,1,none,full,\
false,fp16,standard,megatron-lm-2021,3.50
"""


def test_validate_prints_rows_tables_and_what_it_left_out() -> None:
    Path("mine.csv").write_text(TABLE)
    shown = sim("validate", "mine.csv").stdout
    assert "2/3" in shown
    assert "12 GPUs do not fill nodes of 8" in shown
    assert "big" in shown
    assert "big" not in sim("validate", "mine.csv", "--quiet").stdout


def test_validate_answers_in_json_and_leaves_files() -> None:
    Path("mine.csv").write_text(TABLE)
    shown = sim("validate", "mine.csv", "--json", "--plot=a.png", "--rows=b.csv")
    table = json.loads(shown.stdout.splitlines()[-1])["tables"][0]
    assert (table["table"], table["rows"], table["simulated"]) == ("mine", 3, 2)
    assert 0.0 <= table["median"] <= table["mape"] < 0.5
    assert {"bias", "worst", "spearman", "naive_mape"} <= set(table)
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert len(rows_of("b.csv")) == 3
    first = rows_of("b.csv")[0]
    assert float(first["step_low"]) < float(first["predicted"]) < float(first["step_high"])


def test_validate_says_how_many_rows_intervals_cover_and_leaves_their_ground() -> None:
    Path("mine.csv").write_text(TABLE)
    Path("topologies/validated").mkdir(parents=True)
    shown = sim("validate", "mine.csv", "--coverage", "--spread=topologies/validated/mine.toml")
    assert "90 % intervals" in shown.stdout
    assert "x 9" not in shown.stdout
    ground = Path("topologies/validated/mine.toml").read_text()
    assert 'stack = "Megatron-LM 2021"' in ground
    assert "rows = 2" in ground


def test_a_run_prints_what_is_expected_of_a_measured_step_above_the_simulated_one() -> None:
    expected, simulated = sim("run", "gpt3-175b-megatron").stdout.splitlines()[1:3]
    assert re.fullmatch(r"  step time +[\d.]+ s +\([\d.]+ to [\d.]+ s, 90 %\)", expected)
    why = r"\d+ measured runs? of .* were [\d.]+ % (slower|faster) than simulated"
    assert re.fullmatch(rf"  simulated +[\d.]+ s +{why}", simulated)


def test_a_training_command_becomes_files_that_run(folder: Path) -> None:
    from sim.interface.frameworks.jobs import emitted
    from sim.model.reading import load
    from sim.parallel.plan import Plan

    plan = Plan(global_batch=64, tp=2, sequence_parallel=True)
    text, _ = emitted("megatron", load("llama3-8b"), plan)
    done = sim("import", "megatron", f"{text} --magic", "--topology", "dgx-h100-ndr", "--gpus",
               "16", "--name", "mine")  # fmt: skip
    assert done.stdout == "sim run mine\n"
    assert "magic is not known" in done.stderr
    assert (folder / "models" / "mine.toml").exists()
    own = answer("mine", "--set", "plan.zero=1")
    assert (own["ranks"], own["parameters"]) == (16, 8_030_261_248)


def test_a_search_prints_its_best_for_a_framework() -> None:
    search = ("plan", "llama3-8b", "dgx-h100-ndr", "--gpus", "8", "--global-batch", "16",
              "--only", "zero=1", "--only", "schedule=1f1b", "--only", "pp=1",
              "--only", "tp=4")  # fmt: skip
    done = sim(*search, "--emit", "megatron")
    assert "--num-layers 32" in done.stdout
    assert re.search(
        r"^note: tp 4, pp 1, .*: [\d.]+ s a step, [\d.]+% MFU, .* GiB", done.stderr, re.M
    )
    assert sim(*search, "--emit", "toml").stdout.startswith("[plan]\nglobal_batch = 16\n")


def test_changes_of_a_recipe_become_files_that_run(folder: Path) -> None:
    changes = "--recipe llama3_8b train.global_batch_size=32 model.seq_length=4096 model.magic=3"
    into = ("--topology", "dgx-h100-ndr", "--gpus", "8", "--name", "mine")
    done = sim("import", "megatron-bridge", f"{changes} ddp.use_distributed_optimizer=true", *into)
    assert "values of recipe llama3_8b, except its model, are not read" in done.stderr
    assert "model.magic is not known" in done.stderr
    assert (folder / "models" / "mine.toml").read_text() == 'like = "llama3-8b"\nseq = 4096\n'
    assert answer("mine")["parameters"] == 8_030_261_248


def test_a_model_that_is_only_named_is_given_as_its_config(folder: Path) -> None:
    job = ("nemo", "--factory qwen2_7b data.global_batch_size=32 data.seq_length=2048")
    into = ("--topology", "dgx-h100-ndr", "--gpus", "8", "--name", "mine")
    refused = CliRunner().invoke(main, ["import", *job, *into], prog_name="sim")
    assert refused.exit_code == 2
    assert "calls its model 'qwen2_7b', which is not known here" in refused.stderr
    assert "or the config.json of the model" in refused.stderr
    config = {"model_type": "qwen2", "hidden_size": 512, "intermediate_size": 1024,
              "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1024,
              "max_position_embeddings": 8192, "tie_word_embeddings": False}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    sim("import", *job, *into, "--model", "config.json")
    own = answer("mine")
    assert own["tokens_per_second"] == pytest.approx(32 * 2048 / own["step_time"])


def test_a_reader_that_leaves_early_is_no_mistake() -> None:
    asked = [Path(sys.executable).with_name("sim"), "list"]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as listing:
        assert listing.stdout
        assert listing.stderr
        listing.stdout.close()  # before it has written a line
        assert (listing.stderr.read(), listing.wait()) == (b"", 0)


@pytest.mark.parametrize(
    "command", ["goodput", "cost --tokens 1B", "sweep --vary gpus=1 --no-store"]
)
def test_every_question_takes_another_cluster(command: str) -> None:
    name, *more = command.split()
    asked = (name, "gpt2-one-gpu", *more, "--json")
    there = json.loads(sim(*asked, "--topology", "h200-node").stdout)
    assert "h200-node" in json.dumps(there["inputs"])


def test_a_stored_answer_is_changed_as_its_job_was() -> None:
    result = sim("run", "gpt2-one-gpu", "--set", "plan.microbatch=6", "--json").stdout
    Path("before.json").write_text(result)
    both = sim("compare", "before.json", ": plan.recompute=full", "--json").stdout
    own = answer("gpt2-one-gpu", "--set", "plan.microbatch=6", "--set", "plan.recompute=full")
    assert json.loads(both)["cases"][1]["step_time"] == own["step_time"]
    moved = sim("run", "gpt2-one-gpu", "--topology", "h200-node", "--json").stdout
    Path("moved.json").write_text(moved)
    refused = CliRunner().invoke(main, ["compare", "moved.json", ": plan.microbatch=2"])
    assert "was run with another cluster" in refused.stderr


def test_what_has_no_tokens_is_told_by_samples() -> None:
    shown = sim("run", "dlrm").stdout
    assert "samples/s" in shown
    assert "65,536 samples an update" in shown
    assert not re.search("tokens|attention", shown)
    assert "keys and values" not in sim("show", "dlrm").stdout
