"""Prices say whose they are and of when; every command reckons by the same one."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import sim
from sim.analysis.reliability import failures
from sim.config import catalog
from sim.config.errors import InputError
from sim.hardware.cluster import topology
from sim.interface.cli.main import main

JOB = "gpt2-one-gpu"


def _priced() -> list[str]:
    """Clusters whose own file has a price."""
    files = {name: catalog.find("topologies", name) for name in catalog.names("topologies")}
    return [name for name, file in files.items() if "hour" in catalog.read(file).get("price", {})]


@pytest.mark.parametrize("name", _priced())
def test_a_price_of_ours_has_a_source_and_a_date(name: str) -> None:
    own = catalog.read(catalog.find("topologies", name))["price"]
    assert own["source"]
    assert own["date"]
    assert own["source"] in str(topology.load(name).price)


def test_a_price_that_is_given_is_nobody_elses() -> None:
    given = topology.load("dgx-h100-ndr", {"price.hour": "2 USD/h"}).price
    assert str(given) == "2 USD/h per GPU (as given)"
    assert given is not None
    assert given.electricity == topology.load("dgx-h100-ndr").price.electricity  # type: ignore[union-attr]


def test_a_file_does_not_take_the_source_of_a_price_that_it_replaces(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('like = "dgx-h100-ndr"\n[price]\nhour = "2 USD/h"\n')
    assert str(topology.load(str(own)).price) == "2 USD/h per GPU (as given)"
    own.write_text('like = "dgx-h100-ndr"\n[price]\npue = 1.5\n')
    assert "AWS" in str(topology.load(str(own)).price), "the rent is still the file's"


def test_a_file_with_another_device_does_not_take_the_price_of_the_file_that_it_is_like(
    tmp_path: Path,
) -> None:
    own, same = tmp_path / "own.toml", tmp_path / "same.toml"
    own.write_text('like = "dgx-a100-hdr"\ndevice = "h100-80gb-sxm"\n')
    assert topology.load(str(own)).price is None
    assert (
        str(topology.load(str(own), {"price.hour": "2 USD/h"}).price)
        == "2 USD/h per GPU (as given)"
    )
    same.write_text('like = "dgx-a100-hdr"\ndevice = "a100-80gb-sxm"\n')
    assert topology.load(str(same)).price == topology.load("dgx-a100-hdr").price
    own.write_text('like = "dgx-a100-hdr"\ndevice = "h100-80gb-sxm"\nprice.hour = "3 USD/h"\n')
    assert str(topology.load(str(own)).price) == "3 USD/h per GPU (as given)"
    own.write_text('like = "dgx-a100-hdr"\ndevice = "h100-80gb-sxm"\nprice.switch = 3000\n')
    with pytest.raises(InputError, match="is missing: dgx-a100-hdr has the rent of A100"):
        topology.load(str(own))


def test_parts_have_a_price_only_at_the_speed_for_which_it_was_given(tmp_path: Path) -> None:
    """A switch of 800 Gb/s or of 128 ports does not cost what a switch of 400 Gb/s costs."""
    parts = "[price]\nhour = '2 USD/h'\nswitch = 3.0\ncable = 2.0\ntransceiver = 1.0\n"
    (own := tmp_path / "own.toml").write_text(f'like = "dgx-h100-ndr"\n{parts}')
    (fast := tmp_path / "fast.toml").write_text(
        f'like = "{own}"\n[network]\nbandwidth = "800 Gb/s"\n'
    )

    def prices(path: Path, **changes: object) -> list[float | None]:
        price = topology.load(str(path), {f"network.{k}": v for k, v in changes.items()}).price
        assert price is not None
        return [price.switch, price.cable, price.transceiver]

    assert prices(own) == prices(own, bandwidth="400 Gb/s", nics=4) == [3.0, 2.0, 1.0]
    assert prices(own, bandwidth="800 Gb/s") == prices(fast) == [None, None, None]
    assert prices(own, radix=128) == [None, 2.0, 1.0]
    given = topology.load(str(fast), {"price.switch": 6.0}).price
    assert given is not None
    assert (given.switch, given.cable) == (6.0, None)


def test_all_commands_reckon_dollars_of_a_million_tokens_alike() -> None:
    """gpus x price / 3600 / (tokens / s) x 1e6."""
    priced = {"topology.price.hour": "2 USD/h"}
    result = sim.run(sim.load(JOB, priced))
    each = 2.0 / 3600.0 / result.tokens_per_second * 1e6
    cost = sim.cost(JOB, tokens=1e9, price="2 USD/h")
    swept = sim.sweep(JOB, {"plan.microbatch": [1]}, jobs=1, price="2 USD/h")
    goodput = sim.goodput(JOB, days=1.0, price="2 USD/h")
    both = sim.compare(JOB, ": plan.microbatch=2", price="2 USD/h").to_frame()
    assert result.dollars_per_million_tokens == pytest.approx(each)
    assert cost.dollars_per_million_tokens == pytest.approx(each)
    assert both["dollars_per_million_tokens"].iloc[0] == pytest.approx(each)
    one = sim.run(sim.load(JOB, priced | {"plan.microbatch": 1}))
    assert swept.frame["dollars_per_million_tokens"][0] == one.dollars_per_million_tokens
    effective = goodput.cost.dollars_per_million_tokens
    assert effective == pytest.approx(each / goodput.effective)


@pytest.mark.parametrize(
    "words",
    [
        ["run", JOB, "--set", "plan.microbatch=480"],
        ["cost", JOB, "--tokens", "1e9", "--set", "plan.microbatch=480"],
        ["goodput", JOB, "--days", "1", "--set", "plan.microbatch=480"],
        ["plan", "llama3-8b", "dgx-h100-ndr", "--gpus", "1", "--global-batch", "8", "--jobs", "1"],
    ],
)
def test_the_exit_code_is_3_where_a_job_does_not_fit(words: list[str]) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 3, result.output
    assert "fit" in result.output


def test_one_function_serves_python_and_the_command() -> None:
    shown = CliRunner().invoke(main, ["cost", JOB, "--tokens", "1e9", "--json"])
    assert json.loads(shown.stdout) == json.loads(json.dumps(sim.cost(JOB, tokens=1e9).to_dict()))
    for words, call in (
        (["cost", JOB, "--goodput", "2"], lambda: sim.cost(JOB, goodput=2.0)),
        (["cost", JOB], lambda: sim.cost(JOB)),
        (["goodput", JOB, "--failures", "llama4"], lambda: sim.goodput(JOB, failures="llama4")),
        (["sweep", JOB], lambda: sim.sweep(JOB)),
        (["sweep", JOB, "--vary", "plan.x=1"], lambda: sim.sweep(JOB, ["plan.x=1"])),
    ):
        with pytest.raises(sim.InputError) as error:
            call()
        assert CliRunner().invoke(main, words).stderr == f"error: {error.value}\n"


def test_storage_and_maintenance_are_those_of_the_jobs_size() -> None:
    table = failures.load("llama3")
    own = table.of_job(512, None, 1.0, ())
    assert own.recovery.storage == pytest.approx(table.recovery.storage * 512 / 16384)
    assert table.of_job(10**6, None, 1.0, ()).recovery.storage == table.recovery.storage
    assert table.of_job(512, None, 1.0, ("recovery.storage",)) == table
    planned = {fault.name: fault.rate for fault in table.faults(512)}["Planned"]
    whole = {fault.name: fault.rate for fault in table.faults(16384)}["Planned"]
    assert planned == pytest.approx(whole * 512 / 16384)


def test_goodput_says_what_it_assumes() -> None:
    said = "\n".join(sim.goodput(JOB, days=1.0).assumed)
    assert "Llama 3 405B" in said
    assert "in proportion to 1 GPU" in said
    assert "the share of 1 GPU in 2.00 TB/s" in said
    set_ = sim.goodput(JOB, days=1.0, settings={"recovery.storage": "1 GB/s"}).assumed
    assert "storage: 1.00 GB/s, as set" in set_
