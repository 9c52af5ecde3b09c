"""Kernels and collectives of tables, held against a device's file and a topology."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from sim.analysis.validation.parts import validate_collectives, validate_kernels
from sim.collectives.schedule import GroupShape
from sim.config.errors import InputError
from sim.hardware import device as devices
from sim.hardware.kernels.time import kernel_time
from sim.interface.cli.main import main
from sim.kind import cluster_scenario
from sim.model.kernels import Gemm
from sim.scenario.setup import load_topology, machine

A100 = devices.load("a100-80gb-sxm").in_bursts()


def seconds(m: int) -> float:
    return kernel_time(Gemm(name="forward", m=m, n=8192, k=8192, precision="bf16"), A100)


@pytest.fixture
def products(tmp_path: Path) -> Path:
    """Products that take a tenth longer than predicted, and a launch, as a packed table."""
    rows = ["framework,gemm_dtype,m,n,k,latency_ms"]
    rows += [f"a,bfloat16,{m},8192,8192,{1.1e3 * seconds(m)}" for m in (64, 4096, 8192)]
    rows += ["a,bfloat16,8,64,64,0.005", "b,fp8_block,64,64,64,1.0"]
    path = tmp_path / "gemm.csv.gz"
    path.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))
    return path


def test_products_a_tenth_slower_than_predicted_are_told_so(products: Path) -> None:
    found = validate_kernels(products, device="a100-80gb-sxm", only={"framework": "a"})
    assert [(row["group"], row["runs"]) for row in found.errors] == [
        ("products bf16, m above 1024", 2), ("products bf16, m to 64", 1)
    ]  # fmt: skip
    for row in found.errors:
        assert row["bias"] == pytest.approx(1 / 1.1 - 1)
        assert row["median"] == pytest.approx(1 - 1 / 1.1)
    assert found.short == 1


def test_kernels_that_ran_for_minutes_ran_at_the_clock_that_is_held(products: Path) -> None:
    large, _ = validate_kernels(products, device="a100-80gb-sxm", only={"framework": "a"}).errors
    held, _ = validate_kernels(
        products, device="a100-80gb-sxm", only={"framework": "a"}, held=True
    ).errors
    clock = devices.load("a100-80gb-sxm").held_clock("bf16")
    assert (1 + held["bias"]) / (1 + large["bias"]) == pytest.approx(1 / clock, rel=0.02)


def test_rows_of_tensorrt_llm_in_eight_bits_hold_a_quantisation(tmp_path: Path) -> None:
    h100 = devices.load("h100-80gb-sxm").in_bursts()
    product = Gemm(name="forward", m=4096, n=8192, k=8192, precision="fp8")
    # Fitted as five floors of 2 us, and bytes at 0.87 of 3,352 GB/s.
    both = kernel_time(product, h100) + 10e-6 + 6.5 * 4096 * 8192 / (0.87 * 3352e9)
    table = tmp_path / "gemm.csv"
    head = "framework,gemm_dtype,m,n,k,latency_ms"
    table.write_text(f"{head}\ntrtllm,fp8,4096,8192,8192,{1e3 * both}\n")
    (row,) = validate_kernels(table, device="h100-80gb-sxm").errors
    assert row["bias"] == pytest.approx(0.0, abs=1e-9)


def test_experts_are_two_products_of_those_that_tokens_hit(tmp_path: Path) -> None:
    h100 = devices.load("h100-80gb-sxm").in_bursts()
    head = ("moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
            "distribution,latency_ms")  # fmt: skip
    table = tmp_path / "moe.csv"
    # 8,192 tokens choose 2 of 8 experts, 4 of them here, half of each: 2,048 rows an expert.
    rows, hidden, width = 4 * 2048, 4096, 7168
    first = Gemm(name="in", m=2048, n=2 * width, k=hidden, batch=4)
    second = Gemm(name="out", m=2048, n=hidden, k=width, batch=4)
    moved = 6.0 * (rows + 8192) * hidden + 9.0 * rows * width
    sorting = 9 * 2e-6 + moved / (0.87 * 3352e9)
    time = kernel_time(first, h100) + kernel_time(second, h100) + sorting
    row = f"bfloat16,8192,4096,14336,2,8,2,2,{{}},{1e3 * time}"
    table.write_text(f"{head}\n{row.format('balanced')}\n")
    (found,) = validate_kernels(table, device="h100-80gb-sxm").errors
    assert (found["group"], found["bias"]) == ("experts bf16", pytest.approx(0.0, abs=1e-9))
    table.write_text(f"{head}\n{row.format('power_law_1.2')}\n")
    with pytest.raises(InputError, match="line 2: does not say how many tokens each expert has"):
        validate_kernels(table, device="h100-80gb-sxm")


def test_a_precision_that_nobody_has_is_refused_with_its_line(products: Path) -> None:
    with pytest.raises(InputError, match=r"line 6: no precision 'fp8_block'; choose rows"):
        validate_kernels(products, device="a100-80gb-sxm")


def test_attention_is_causal_where_heads_of_keys_are_stated(tmp_path: Path) -> None:
    table = tmp_path / "attention.csv"
    head = "batch_size,isl,num_heads,num_key_value_heads,head_dim,attn_dtype,window_size,latency_ms"
    table.write_text(
        f"{head}\n1,8192,32,8,128,bfloat16,0,2.0\n1,8192,32,32,128,bfloat16,1024,2.0\n"
    )
    groups = [row["group"] for row in validate_kernels(table, device="h100-80gb-sxm").errors]
    assert groups == [
        "attention bf16, causal, heads of 128", "attention bf16, window, heads of 128"
    ]  # fmt: skip


def test_collectives_as_quick_as_predicted_have_no_error(tmp_path: Path) -> None:
    scenario = cluster_scenario("dgx-a100-hdr")
    on = machine(load_topology(scenario), None, (), "")
    call = on.call("all_to_all", 2.0**26, GroupShape(ranks=4))
    time = call.duration(on.backend.call_cost(call))
    table = tmp_path / "nccl.csv"
    head = "system,op_name,nccl_dtype,num_gpus,message_size,latency"
    table.write_text(f"{head}\na,alltoall,half,4,{2**25},{1e3 * time}\n")
    (row,) = validate_collectives(table, topology="dgx-a100-hdr").errors
    assert row["group"] == "all_to_all, 4 GPUs, above 1 MiB"
    assert row["bias"] == pytest.approx(0.0, abs=1e-9)
    table.write_text(f"{head}\na,alltoall,half,16,{2**25},1.0\n")
    with pytest.raises(InputError, match="16 ranks on 1 nodes; nodes of dgx-a100-hdr hold 8"):
        validate_collectives(table, topology="dgx-a100-hdr")


def test_the_command_prints_a_row_for_each_class(products: Path) -> None:
    asked = ["validate", "--kernels", str(products), "--as", "a100-80gb-sxm", "--only"]
    shown = CliRunner().invoke(main, [*asked, "framework=a"])
    assert shown.exit_code == 0
    assert "products bf16, m to 64" in shown.output
    assert "-9.1%" in shown.output
    written = json.loads(CliRunner().invoke(main, [*asked, "framework=a", "--json"]).output)
    assert [row["runs"] for row in written["errors"]] == [2, 1]
    refused = CliRunner().invoke(main, ["validate", "--collectives", str(products)])
    assert (refused.exit_code, refused.output.count("\n")) == (2, 1)


def test_a_row_with_a_step_reads_a_cache(tmp_path: Path) -> None:
    path = tmp_path / "decode.csv"
    names = "batch_size,isl,num_heads,num_key_value_heads,head_dim,kv_cache_dtype,step,latency_ms"
    moved = 64 * 4096 * 8 * 2 * 128 * 2
    rows = [f"64,4000,32,8,128,{kind},96,{1e3 * moved / 3e12}" for kind in ("bfloat16", "fp8")]
    path.write_text("\n".join([names, *rows]) + "\n")
    found = validate_kernels(path, device="h100-80gb-sxm")
    assert [row["group"] for row in found.errors] == [
        "decoding, cache in bf16",
        "decoding, cache in fp8",
    ]
    wide, narrow = found.runs
    assert wide.part.startswith("64 x 4096 tokens in the cache")
    assert wide.error == pytest.approx(0.0, abs=0.1)
    assert 0.5 < narrow.predicted / wide.predicted < 1.0


def test_every_kernel_is_written_with_its_prediction(products: Path, tmp_path: Path) -> None:
    asked = ["validate", "--kernels", str(products), "--as", "a100-80gb-sxm", "--only"]
    written = tmp_path / "rows.csv"
    CliRunner().invoke(main, [*asked, "framework=a", "--rows", str(written)])
    found = pd.read_csv(written)
    assert list(found["error"]) == pytest.approx([1 / 1.1 - 1] * 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kernels", "--as", "a100-80gb-sxm", "--coverage"], "--coverage: says nothing of parts"),
        (["--ablation", "--rows", "r.csv"], "--rows: says nothing of --ablation"),
        (["--as", "a100-80gb-sxm"], "--as: says nothing of steps; it is of --kernels"),
    ],
)
def test_an_option_of_another_question_is_refused(
    products: Path, options: list[str], message: str
) -> None:
    shown = CliRunner().invoke(main, ["validate", str(products), *options])
    assert shown.exit_code == 2
    assert message in shown.output
