"""Measured tables of loops become scenarios, and what a row does not say is named."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from sim import kind
from sim.analysis.validation.figures import FigureValidation, _runs, owner, validate_figures
from sim.config.errors import InputError
from sim.jobs.reinforcement.loop import PHASES
from sim.jobs.reinforcement.measured import rows
from sim.results.answer import Inputs

NEMO = (
    "release,section,commit,date,Algorithm,Model,On/Off_policy,T-Max_Sequence_Length,"
    'G-Average_Seq_len,#-GPUs,G-GBS,T-GBS,"Generation_[TP,PP]","Training_[TP,CP,EP,PP,VPP]",'
    "Tokens_/_sec_/_GPU,Total_Step_time(s)\n"
    ',H100 BF16 Benchmarks,x,today,GRPO,LLAMA3.1_8B,{policy},4096,1000,{gpus},256,256,"[1,1]",'
    '"[1,1,1,1,n/a]",100.0,{seconds}\n'
)


def table(folder: Path, **values: object) -> Path:
    path = folder / "steps.csv"
    path.write_text(NEMO.format(**values))
    return path


def test_a_row_is_played_and_its_assumptions_are_named(tmp_path: Path) -> None:
    path = table(tmp_path, policy="On policy", gpus=8, seconds=40.0)
    answer = validate_figures(path)
    (run,) = answer.runs
    assert run.predicted
    assert run.error == pytest.approx(run.predicted / 40.0 - 1.0)
    assert any("spread of lengths" in text for text in run.assumed)
    assert "1 measured jobs" in str(answer)


def test_rows_off_policy_generate_on_half_of_the_gpus(tmp_path: Path) -> None:
    path = table(tmp_path, policy="1-step Off", gpus=16, seconds=40.0)
    (row,) = rows("steps", list(csv.DictReader(path.open())))
    setup = kind.set_up(kind.described(dict(row.document)))
    assert setup.columns == {"gpus": 16, "gpus.training": 8, "gpus.servers": 8}


def test_a_table_of_steps_alone_has_no_owner(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("id,cluster\n1,x\n")
    assert owner(path) is None
    with pytest.raises(InputError, match="that no kind of jobs reads"):
        validate_figures(path)


def test_an_unknown_model_is_a_row_without_prediction(tmp_path: Path) -> None:
    path = table(tmp_path, policy="On policy", gpus=8, seconds=40.0)
    head, known = path.read_text().splitlines()
    unknown = known.replace("LLAMA3.1_8B", "Other")
    path.write_text(f"{head}\n{known}\n{unknown}\n")
    played, run = validate_figures(path).runs
    assert played.predicted
    assert run.predicted is None
    assert "no model Other" in run.reason
    path.write_text(f"{head}\n{unknown}\n")
    with pytest.raises(InputError, match=r"none of its 1 rows was simulated; .* no model Other"):
        validate_figures(path)


VERL = (
    "model,gpu,engine,mode,gpus_rollout,gpus_train,max_response,rollout_n,ppo_mini_batch,staleness,"
    "require_batches,sync_every,partial_rollout,step_s,gen_s,old_log_prob_s,ref_s,update_actor_s\n"
    "Qwen2.5-Math-7B,H20,vllm+FSDP2,{mode},32,32,2048,4,32,{rest},90,30,{old},,40\n"
)


def test_figures_of_verl_contain_what_its_timers_contain(tmp_path: Path) -> None:
    path = tmp_path / "verl.csv"
    path.write_text(VERL.format(mode="colocate sync", rest=",,,", old=10))
    turns = next(rows("verl", list(csv.DictReader(path.open()))))
    assert turns.parts["generation"] == ("generation", "weights to servers", "sleep and wake")
    path.write_text(VERL.format(mode="async", rest="0.5,,4,True", old=""))
    beside = next(rows("verl", list(csv.DictReader(path.open()))))
    assert "weights to servers" not in beside.parts["step"]
    assert beside.document["reinforcement"]["chunk"] == 512 // 4
    played = dict.fromkeys(map(str, PHASES), 10.0)
    document = {key: value for key, value in beside.document.items() if key != "name"}
    runs = tuple(_runs("verl", beside, (), {str(document): played}))
    assert {run.figure: run.predicted for run in runs} == {
        "step": 50.0, "generation": 20.0, "update": 10.0
    }  # fmt: skip
    apart = replace(runs[-1], id="without a step", figure="update")
    for own, count in ((runs, 1), ((*runs, apart), 2)):
        errors = {e["figure"]: e for e in FigureValidation(inputs=Inputs(), runs=own).errors}
        assert errors["verl, update"]["runs"] == count
        assert errors["verl, update"]["of_step"] == pytest.approx(30.0 / 90.0)
