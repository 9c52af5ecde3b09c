"""The server refuses what does not come from its page, and answers what `sim run` answers."""

import asyncio
import json
import os
import select
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from click.testing import CliRunner

import sim
from sim import kind, questions
from sim.config import limit, reads
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.interface.cli.serve import has_screen
from sim.interface.serve.controls import groups
from sim.interface.serve.explore import Explorer
from sim.interface.serve.questions import Questions, changes
from sim.interface.serve.server import Server
from sim.interface.serve.states import Bases, State, base_of, base_of_job, model_of
from sim.interface.serve.workers import COMMAND, Workers
from sim.parallel.plan import Plan
from sim.scenario.setting_texts import setting

QWEN = (
    '{"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,'
    ' "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,'
    ' "vocab_size": 152064, "max_position_embeddings": 4096, "tie_word_embeddings": false}'
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(Server(base_of("gpt3-175b-megatron", {}))) as made:
        yield made


@contextmanager
def running(made: Server) -> Iterator[Server]:
    """A server in a thread with a loop of its own, as a notebook has it."""
    explorer = Explorer(made, 800)
    yield made
    explorer.close()


def asked(
    server: Server, path: str, body: Any = None, token: str | None = None, **headers: str
) -> tuple[int, Any]:
    """The status and the JSON, or the text, of a reply."""
    connection = HTTPConnection("127.0.0.1", server.port)
    at = f"/{server.token if token is None else token}/{path}"
    sent = {"Content-Type": "application/json", **headers}
    text = body if isinstance(body, str | None) else json.dumps(body)
    connection.request("GET" if body is None else "POST", at, text, sent)
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, json.loads(text) if text[:1] == "{" else text


def figure(answer: Any, key: str) -> Any:
    return next(one for one in answer["figures"] if one["key"] == key)


def test_a_request_that_is_not_of_the_page_is_refused(server: Server) -> None:
    state = {"settings": {}}
    assert asked(server, "answer", state)[0] == 200
    assert asked(server, "answer", state, token="x")[0] == 403
    assert asked(server, "", token="")[0] in (403, 404)
    assert asked(server, "answer", state, Host="evil.example")[0] == 403
    assert asked(server, "answer", state, Host=f"evil.example:{server.port}")[0] == 403
    assert asked(server, "answer", state, Origin="http://evil.example")[0] == 403
    own = f"http://127.0.0.1:{server.port}"
    assert asked(server, "answer", state, Origin=own)[0] == 200
    assert asked(server, "answer", state, **{"Content-Type": "text/plain"})[0] == 415
    assert asked(server, "answer", "no json")[0] == 400
    assert asked(server, "answer", "[]")[0] == 400


def test_a_request_of_another_shape_is_refused_in_a_line(server: Server) -> None:
    connection = HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", "x")
    assert connection.getresponse().status == 403
    connection.close()
    for states in (None, [1], {"a": 1}):
        status, answer = asked(server, "compare", {"states": states})
        assert (status, "no table of states" in answer["fault"]) == (200, True)


@pytest.mark.parametrize(
    "path", ["../pyproject.toml", "%2e%2e/%2e%2e/etc/passwd", "serve.py", "etc/passwd", "a.js"]
)
def test_no_file_but_the_page_s_own_is_sent(server: Server, path: str) -> None:
    assert asked(server, path)[0] in (403, 404)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "/etc/passwd.toml"},
        {"plan.schedule": "/etc/passwd.csv"},
        {"topology": "../secret.toml"},
        {"device.profile": "/etc/hostname.toml"},
        {"topology.backend": "secret.toml"},
    ],
)
def test_no_file_of_the_machine_is_read(
    server: Server, settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    for place in (tmp_path, tmp_path / "here"):
        (place / "secret.toml").write_text('password = "hunter2"\n')
    monkeypatch.chdir(tmp_path / "here")
    status, answer = asked(server, "answer", {"settings": settings})
    assert status == 200
    assert "may not be read here" in answer["fault"]
    assert "hunter2" not in json.dumps(answer)


def test_a_scenario_that_is_exported_runs_to_the_same_digits(
    server: Server, tmp_path: Path
) -> None:
    state = {"settings": {"plan.microbatch": "2", "network.bandwidth": "100 Gb/s",
                          "straggler": "[{rank = 3, factor = 1.2}]"}}  # fmt: skip
    answer = asked(server, "answer", state)[1]
    written = asked(server, "export/toml", state)[1]["text"]
    path = tmp_path / "mine.toml"
    path.write_text(written)
    result = CliRunner().invoke(main, ["run", str(path), "--json"])
    assert result.exit_code in (0, 3), result.output
    numbers = json.loads(result.stdout)
    assert numbers["step_time"] == figure(answer, "step_time")["value"]
    python = asked(server, "export/py", state)[1]["text"].replace("print(result)", "")
    names: dict[str, Any] = {}
    exec(python, names)
    assert names["result"].step_time == numbers["step_time"]


def test_arguments_of_a_framework_say_which_software_the_page_has_shown(server: Server) -> None:
    flat = {"plan.schedule": "1f1b", "plan.interleave": "1", "plan.precision": "bf16"}
    state = {"settings": {"plan.sequence_parallel": "true", **flat}}
    first = asked(server, "export/torchtitan", state)[1]["notes"][0]
    assert first.startswith("predicted with Megatron-LM 2022; torchtitan runs it as")
    assert " a step here, " in first
    assert not any("predicted" in n for n in asked(server, "export/megatron", state)[1]["notes"])


@pytest.mark.parametrize(
    ("form", "read"),
    [
        ("deepspeed", json.loads),
        ("accelerate", yaml.safe_load),
        ("torchtitan", tomllib.loads),
        ("toml", tomllib.loads),
    ],
)
def test_a_file_of_the_page_is_one_that_its_framework_can_read(
    server: Server, form: str, read: Callable[[str], Any]
) -> None:
    flat = {"plan.schedule": "1f1b", "plan.interleave": "1", "plan.precision": "bf16"}
    alone = {"plan.tp": "1", "plan.pp": "1", "plan.sequence_parallel": "false", "plan.zero": "3"}
    file = asked(server, f"export/{form}", {"settings": {**flat, **alone}})[1]
    assert "fault" not in file
    assert read(file["text"])


@pytest.mark.long
def test_rates_of_failures_are_asked_of_the_page(server: Server) -> None:
    few, many = (
        asked(server, "failures", {"settings": {}, "own": {"interruptions": rate}})[1]
        for rate in ("0", "20")
    )
    assert "(0 interruptions" in few["html"]
    assert "20 interruptions per device and year as set" in many["html"]
    faulty = {"settings": {}, "own": {"recovery.restart": "6"}}
    assert "has no unit" in asked(server, "failures", faulty)[1]["fault"]


def test_a_model_that_is_pasted_is_the_model_of_its_file(tmp_path: Path) -> None:
    config = tmp_path / "Qwen" / "config.json"
    config.parent.mkdir()
    config.write_text(QWEN)
    named = {"topology": "dgx-h100-ndr", "gpus": 16}
    base = base_of_job({"model": str(config), **named}, {})
    pasted = State(base, (("model", model_of(QWEN)),))
    assert pasted.scenario().model.layers == 28  # type: ignore[union-attr]
    questions = Questions()
    assert (
        questions.played(State(base)).get("step_time")
        == questions.played(pasted).get("step_time")
    )  # fmt: skip
    assert limit.allowed() == limit.USUAL, "the page's patience holds for its question alone"
    with reads.only(Bases(base).places):
        assert "fault" not in questions.answer(State(base))
        fault = questions.answer(State(base, (("model", str(tmp_path / "other.toml")),)))["fault"]
    assert "may not be read here" in fault


@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("gpt3-175b-megatron", 12),
        pytest.param("gpt3-175b-megatron", 3, marks=pytest.mark.long),
        pytest.param("ps-ssp", 3, marks=pytest.mark.long),
    ],
)
def test_every_value_that_the_page_offers_is_taken_or_answered_by_one_line(
    name: str, each: int
) -> None:
    bases, questions = Bases(base_of(name, {})), Questions()
    groups = questions.answer(bases.state({}))["groups"]
    controls = [one for group in groups for one in group["controls"]]
    assert len({one["key"] for one in controls}) == len(controls) > 10
    for control in controls:
        assert control["label"]
        for value in {control["value"], *islice(control["choices"], 0, None, each)} - {""}:
            if control["form"] == "slow":
                continue
            with reads.only(bases.places):
                fault = accepted(bases.state({"settings": {control["key"]: value}}))
            assert "\n" not in fault, control["key"]


def accepted(state: State) -> str:
    """The line of an error, empty for a state that can be set up."""
    try:
        kind.set_up(state.scenario(), brief=True)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ["gpt3-175b-megatron", "ps-ssp"])
def test_labels_of_controls_are_words(name: str) -> None:
    shown = groups(Bases(base_of(name, {})).state({}).scenario())
    labels = [control.label for group in shown for control in group.controls]
    assert not [label for label in labels if set("._") & set(label)]


def test_the_value_that_a_control_shows_changes_nothing() -> None:
    bases = Bases(base_of("gpt3-175b-megatron", {}))
    first = questions.planned(kind.set_up(bases.state({}).scenario()))
    for group in groups(bases.state({}).scenario()):
        for control in group.controls:
            if control.value and control.form != "slow":
                given = bases.state({"settings": {control.key: control.value}})
                same = questions.planned(kind.set_up(given.scenario())).job
                assert same.plan == first.job.plan, control.key
                assert same.device.memory == pytest.approx(first.job.device.memory, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"plan.schedule": "interleavd"}, "schedule = interleaved"),
        ({"plan.schedule": "gpip"}, ""),  # GPipe has no chunks, and the plan has
        ({"plan.microbach": "2"}, "plan.microbatch = 2"),
        ({"plan.tp": "3"}, "tensor (tp): 4"),
        ({"plan.zero": "9"}, ""),
        ({"topology": "dgx-h100"}, "topology = dgx-h100-ndr"),
        ({"topology.price.hour": "2.40"}, "price per GPU: 2.40 USD/h"),
        ({"topology.price.hour": "2.4 EUR/h"}, ""),
        ({"network.latency": "1"}, "latency: 1 us"),
        ({"gpus": "60"}, "GPUs: 64"),
        ({"gpus": "9999"}, ""),
        ({"plan.recompute": "none"}, "recompute = full"),
    ],
)
def test_a_click_mends_an_impossible_job(settings: dict[str, str], label: str) -> None:
    bases, questions = Bases(base_of("gpt3-175b-megatron", {})), Questions()
    answer = questions.answer(bases.state({"settings": settings}), [*settings][-1])
    assert answer.get("fault") or answer["misfit"]
    labels = [one["label"] for one in answer["proposals"]]
    assert label in labels if label else True, labels
    assert labels
    for proposal in answer["proposals"]:
        mended = {**settings, **proposal["settings"]}
        changed = {key: value for key, value in mended.items() if value is not None}
        assert not accepted(bases.state({"settings": changed})), proposal


@pytest.mark.parametrize(
    "settings",
    [
        {"topology.price.hour": "2.40"},
        {"device.memory": "80"},
        {"plan.tp": "many"},
        {"network.bandwidth": "fast", "plan.pp": "4", "network.latency": "1"},
        {"straggler": '[{rank = 0, factor = "slow"}]'},
        {"model": "/etc/passwd.toml"},
    ],
)
def test_a_value_that_is_refused_stays_in_its_control(settings: dict[str, str]) -> None:
    bases, questions = Bases(base_of("gpt3-175b-megatron", {})), Questions()
    usual, given = (
        {own["key"]: own for group in questions.answer(bases.state(state))["groups"]
         for own in group["controls"]} for state in ({}, {"settings": settings})
    )  # fmt: skip
    assert [*given] == [*usual]
    assert {key for key, own in given.items() if own["refused"]} == {*settings} - {"plan.pp"}
    for key in settings:
        shown = given[key]["value"]
        assert shown == settings[key] or json.loads(shown) == setting(f"{key}={settings[key]}")[1]


def test_a_key_that_is_like_no_other_is_not_mended_by_any_key() -> None:
    bases, questions = Bases(base_of("gpt3-175b-megatron", {})), Questions()
    answer = questions.answer(bases.state({"settings": {"plan.foo": "3"}}), "plan.foo")
    assert "unknown key 'foo'" in answer["fault"]
    assert not answer["proposals"]


def test_no_browser_opens_without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not has_screen()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert has_screen()


def test_states_side_by_side_are_compared_with_the_first(server: Server) -> None:
    states = {"as it is": {"settings": {}}, "twice": {"settings": {"plan.microbatch": "2"}}}
    answer = asked(server, "compare", {"states": states})[1]
    assert "twice" in answer["html"]
    assert "as it is" in answer["html"]


STUB = """
import json, sys
for line in sys.stdin:
    told = json.loads(line)
    if "settings" in (asked := told[1] if isinstance(told, list) else {}):
        open(asked["settings"]["held"]).read()  # until the test lets go
    print(json.dumps({"told": told}), flush=True)
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Server, HTTPConnection, int]]:
    """A server whose slow question has begun, its connection, and a pipe: the question is answered
    when the pipe is closed."""
    made = Server(base_of("gpt2-one-gpu", {}))
    made.grace = 0.0
    made.workers = Workers(made.base, (sys.executable, "-S", "-c", STUB), patience=0.01)
    os.mkfifo(pipe := tmp_path / "pipe")
    with running(made):
        connection = HTTPConnection("127.0.0.1", made.port)
        body = json.dumps({"settings": {"held": str(pipe)}})
        connection.request(
            "POST", f"/{made.token}/answer", body, {"Content-Type": "application/json"}
        )
        opened = os.open(pipe, os.O_WRONLY)  # waits until the question reads it
        yield made, connection, opened
        with suppress(OSError):
            os.close(opened)
        connection.close()


Held = tuple[Server, HTTPConnection, int]


def test_a_quick_answer_does_not_wait_for_a_slow_one(held: Held) -> None:
    server, slow, pipe = held
    assert asked(server, "charts", {})[1] == {"told": ["charts", {}]}
    os.close(pipe)
    assert b"held" in slow.getresponse().read()


def test_a_question_whose_page_is_closed_ends_with_its_process(held: Held) -> None:
    server, slow, pipe = held
    slow.close()
    left = select.poll()
    left.register(pipe, 0)
    assert left.poll(60_000) == [(pipe, select.POLLERR)]  # no process reads the pipe any more
    assert asked(server, "charts", {})[1] == {"told": ["charts", {}]}


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    page = sim.explore("gpt2-one-gpu", {"plan.microbatch": 2})
    assert f'<iframe src="{page.address}"' in page._repr_html_()
    with urlopen(page.address) as reply:
        assert reply.status == 200
        assert "frame-ancestors http://127.0.0.1:*" in reply.headers["Content-Security-Policy"]
    page.close()


def test_a_process_whose_page_has_closed_ends_in_silence() -> None:
    ran = subprocess.run(COMMAND, input="", capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_page_that_closes_at_once_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, start = [], asyncio.create_subprocess_exec

    async def recorded(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        begun.append(await start(*command, **options))
        return begun[-1]

    monkeypatch.setattr("asyncio.create_subprocess_exec", recorded)
    made = Server(base_of("gpt2-one-gpu", {}))
    made.workers = Workers(made.base, (sys.executable, "-S", "-c", STUB))
    Explorer(made, 800).close()
    assert [process.stdout.at_eof() for process in begun] == [True]


def test_a_page_closes_though_its_process_did_not_start() -> None:
    made = Server(base_of("gpt2-one-gpu", {}))
    made.workers = Workers(made.base, ("/no/such/python",))
    Explorer(made, 800).close()


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ({"tp": 8, "pp": 8}, {"tp": 4, "pp": 8, "zero": 1}),
        ({"tp": 8, "interleave": 2, "pp": 2}, {"tp": 8}),
        ({"layers": [17, 15], "pp": 2, "dp": 4}, {"pp": 2, "dp": 4, "recompute": ("norm",)}),
    ],
)
def test_the_settings_of_a_better_layout_make_it(
    own: dict[str, Any], other: dict[str, Any]
) -> None:
    before, after = (Plan(global_batch=64, **keys) for keys in (own, other))
    settings = dict(setting(f"{key}={text}") for key, text in changes(before, after).items())
    job = {"model": "llama3-8b", "topology": "dgx-h100-ndr", "plan": {"global_batch": 64, **own}}
    assert kind.described(job, settings).plan == after  # type: ignore[attr-defined]
