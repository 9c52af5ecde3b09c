"""Configs of NeMo RL and verl become loops that can be played."""

from pathlib import Path

import pytest

from sim import kind
from sim.config.errors import InputError
from sim.interface.frameworks.jobs import Imported, emitted, imported
from sim.interface.frameworks.loop_writing import _checkpoint, written
from sim.jobs.reinforcement.measured import verl_processes
from sim.model.reading import load
from sim.parallel.plan import Plan

NEMO = """
defaults: grpo_math_1B.yaml
grpo:
  num_prompts_per_step: 64
  num_generations_per_prompt: 32
  async_grpo: {enabled: true, max_trajectory_age_steps: 2, in_flight_weight_updates: true}
loss_fn: {force_on_policy_ratio: true}
policy:
  model_name: meta-llama/Llama-3.1-8B-Instruct
  train_global_batch_size: 2048
  train_micro_batch_size: 1
  max_total_sequence_length: 4096
  megatron_cfg:
    enabled: true
    tensor_model_parallel_size: 2
    sequence_parallel: true
    activation_checkpointing: true
    mystery: 3
  generation:
    colocated: {enabled: false, resources: {num_nodes: 1}}
    vllm_cfg: {max_model_len: "${policy.max_total_sequence_length}", tensor_parallel_size: 2}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""
VERL = """
tp=2
python -m verl.trainer.main_ppo \\
    data.train_batch_size=256 data.max_prompt_length=$((1024 * 2)) data.max_response_length=8192 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.actor.ppo_mini_batch_size=64 \\
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.rollout.n=8 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=${tp} \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\
    trainer.nnodes=2 trainer.n_gpus_per_node=8
"""


def played(job: Imported) -> dict[str, object]:
    tables = {"plan": job.plan, **job.further, "stack": job.stack, "gpus": job.gpus}
    document = {"name": "x", "model": job.model["like"], "topology": "dgx-h100-ndr", **tables}
    return kind.set_up(kind.described(document)).columns


def test_nemo_rl_says_the_loop_its_layouts_and_its_gpus() -> None:
    job = imported("nemo-rl", NEMO)
    loop = job.further["reinforcement"]
    assert (loop["prompts"], loop["answers"], loop["row"]) == (64, 32, 4096)
    assert (loop["staleness"], loop["swap"], loop["recompute"]) == (2.0, "continue", False)
    assert (loop["old"], loop["reference"]) == (False, True)
    assert job.plan["tp"] == 2
    assert job.plan["recompute"] == "full"
    assert played(job) == {"gpus": 16, "gpus.training": 8, "gpus.servers": 8}
    assert job.unknown == ("policy.megatron_cfg.mystery",)
    assert any("mean length of answers" in note for note in job.notes)


def test_verl_says_the_same_in_overrides_of_a_script() -> None:
    job = imported("verl", VERL)
    loop = job.further["reinforcement"]
    assert (loop["prompts"], loop["answers"], loop["deal"]) == (256, 8, "answers")
    assert loop["answer"]["cap"] == 8192
    assert loop["servers"] == {"tuning": {"memory": 0.6}, "layout": {"tp": 2}, "shared": True}
    assert (job.plan["global_batch"], job.plan["zero"]) == (64 * 8, 3)
    assert job.stack == "torchtitan-eager"
    assert played(job) == {"gpus": 16, "gpus.training": 16, "gpus.servers": 16}


def test_a_loop_is_read_and_not_written() -> None:
    with pytest.raises(InputError, match="no framework that is known"):
        emitted("verl", load("llama3-8b"), Plan(global_batch=8, dp=1))


def test_the_command_writes_a_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from sim.interface.cli.main import main

    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(NEMO)
    asked = ["import", "nemo-rl", "job.yaml", "--topology", "dgx-h100-ndr"]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    assert kind.load("scenarios/job.toml").kind == "sim.jobs.reinforcement.kind"


@pytest.mark.parametrize("form", ["nemo-rl", "verl"])
@pytest.mark.parametrize("servers", [{"gpus": 8, "layout": {"tp": 2}}, {"shared": True}])
def test_what_is_written_of_a_loop_is_read_as_it_was(form: str, servers: dict[str, object]) -> None:
    loop = {"prompts": 8, "answers": 4, "staleness": 1.0, "swap": "continue", "reference": True,
            "prompt": {"law": "constant", "value": 64, "cap": 64},
            "answer": {"law": "constant", "value": 64, "cap": 448}, "servers": servers}  # fmt: skip
    plan = {"global_batch": 16, "microbatch": 1, "tp": 2, "zero": 1, "recompute": "full",
            "sequence_parallel": True}  # fmt: skip
    document = {"name": "x", "model": "llama3-8b", "topology": "dgx-h100-ndr", "gpus": 16,
                "plan": plan, "reinforcement": loop}  # fmt: skip
    padded, apart = 64 + 448, 4 if "gpus" in servers else 0
    made = verl_processes(padded, apart) if form == "verl" else {"deal": "rows"}
    setup = kind.set_up(kind.described(document | {"reinforcement": made | loop}))
    text, unsaid = written(form, setup, 8)
    job = imported(form, text)
    read = job.further["reinforcement"]
    assert played(job) == setup.columns
    assert plan.items() <= job.plan.items()
    assert (read["prompts"], read["answers"], read["reference"]) == (8, 4, True)
    assert (job.unknown, len(unsaid)) == ((), 2)
    if form == "nemo-rl" or "gpus" in servers:
        assert (read["staleness"], read["swap"]) == (1.0, "continue")


@pytest.mark.parametrize("form", ["nemo-rl", "verl"])
def test_gpus_of_a_reward_model_are_not_the_trainers(form: str) -> None:
    loop = {"prompts": 8, "answers": 4, "servers": {"gpus": 8, "layout": {"tp": 2}},
            "prompt": {"law": "constant", "value": 64, "cap": 64},
            "answer": {"law": "constant", "value": 64, "cap": 448},
            "reward": {"model": "llama3.2-1b", "gpus": 8}}  # fmt: skip
    document = {"name": "x", "model": "llama3-8b", "topology": "dgx-h100-ndr", "gpus": 32,
                "plan": {"global_batch": 16, "tp": 2}, "reinforcement": loop}  # fmt: skip
    text, unsaid = written(form, kind.set_up(kind.described(document)), 8)
    assert played(imported(form, text)) == {"gpus": 24, "gpus.training": 16, "gpus.servers": 8}
    assert "its reward model on 8 GPUs of its own" in unsaid


@pytest.mark.parametrize("form", ["nemo-rl", "verl"])
def test_what_a_form_does_not_say_is_named_and_what_it_says_is_read(form: str) -> None:
    servers = {"gpus": 8, "layout": {"tp": 2}, "tuning": {"sequences": 512, "budget": 4096}}
    loop = {"prompts": 8, "answers": 4, "servers": servers,
            "prompt": {"law": "constant", "value": 64, "cap": 64},
            "weights": {"way": "sharded"}, "parked": ["weights"],
            "answer": {"law": "constant", "value": 64, "cap": 448}}  # fmt: skip
    plan = {"global_batch": 16, "microbatch": 2, "tp": 2, "cp": 2, "precision": "fp8",
            "recompute": "selective", "zero": 1}  # fmt: skip
    document = {"name": "x", "model": "llama3-8b", "topology": "dgx-h100-ndr", "gpus": 16,
                "plan": plan, "reinforcement": loop}  # fmt: skip
    text, unsaid = written(form, kind.set_up(kind.described(document)), 8)
    named = {
        "plan.precision = fp8",
        "servers.tuning.budget = 4096",
        "recomputation of some modules",
        "weights.way = sharded",
        "parked = ('weights',)",
    }
    assert named <= set(unsaid)
    job = imported(form, text)
    assert job.unknown == ()
    assert job.further["reinforcement"]["servers"]["tuning"]["sequences"] == 512
    row = job.further["reinforcement"]["row"]  # of so many tokens in all: two rows of 512
    assert row * job.plan["microbatch"] == 2 * 512


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("config.json", "."),
        ("a/b/config.json", "a/b"),
        ("my-config.json", "my-config.json"),
        ("https://a/config.json", "https://a"),
    ],
)
def test_a_checkpoint_is_the_folder_of_its_config(model: str, told: str) -> None:
    assert _checkpoint({"model": model}) == told


def test_a_job_without_a_loop_is_not_written_as_one() -> None:
    with pytest.raises(InputError, match="this scenario is none"):
        written("verl", kind.set_up(kind.load("gpt2-one-gpu")), 8)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nemo-rl", NEMO.replace(
            "    vllm_cfg:", "    vllm_kwargs: {speculative_config: {method: mtp}}\n    vllm_cfg:"
        )),
        ("verl", VERL.rstrip() + " actor_rollout_ref.model.mtp.enable=True"),
    ],
)  # fmt: skip
def test_speculative_decoding_is_refused_in_a_line(name: str, text: str) -> None:
    with pytest.raises(InputError, match="speculative decoding is not simulated"):
        imported(name, text)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("verl", VERL.replace("tp=2", "tp=0")),
        ("verl", VERL.rstrip() + " actor_rollout_ref.actor.ulysses_sequence_parallel_size=0"),
        ("nemo-rl", NEMO.replace("{max_model_len", "{expert_parallel_size: 0, max_model_len")),
    ],
)
def test_sizes_of_no_ranks_are_refused(form: str, text: str) -> None:
    with pytest.raises(InputError, match="0 ranks; give 1 or more"):
        imported(form, text)
