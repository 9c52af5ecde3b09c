"""Any torch module with a loss learns in a simulation, and the ones that are named here do."""

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from click.testing import CliRunner, Result

import sim
from sim.config.errors import InputError
from sim.config.reads import packaged_root
from sim.interface.cli.main import main
from sim.jobs.sharing.learning.module import Module
from sim.jobs.sharing.learning.tasks import task_of
from tests.jobs.sharing.pools import JITTER, METHODS, Learning, outcome
from tests.lazy import torch

pytestmark = pytest.mark.skipif(
    not (find_spec("torch") and find_spec("sklearn")), reason="needs torch and scikit-learn"
)


def named(task: str, **options):
    learning = Learning(task=task, size=4, **options)
    return task_of(learning, 4, batch=16, seed=0)


def invoked(*command: str, code: int = 0) -> Result:
    """What a command says, in one line where it refuses."""
    ran = CliRunner().invoke(main, list(command))
    assert ran.exit_code == code, ran.stderr
    assert code == 0 or ran.stderr.count("\n") == 1
    return ran


def alone(task: Module, weights, rows):
    """The gradient as torch takes it, without functions of the module."""
    torch.nn.utils.vector_to_parameters(
        torch.tensor(weights, dtype=torch.float32), task._module.parameters()
    )
    task._module.zero_grad()
    task._loss(task._module(task._inputs[rows]), task._targets[rows]).backward()
    grads = [weight.grad.flatten() for weight in task._module.parameters()]
    return torch.cat(grads).double().numpy()


@pytest.mark.parametrize("name", ["digits", "residual", "characters"])
def test_gradients_taken_together_are_torchs_own(name):
    """Different weights, ranks and steps in one call, each against autograd by itself."""
    task = named(name)
    generator = np.random.default_rng(0)
    asked = []
    for rank in range(5):
        weights = task.start + 0.1 * generator.standard_normal(task.start.size)
        asked.append((weights, rank, 3 * rank))
    together = [task.gradient(*one) for one in asked]
    for (weights, rank, step), gradient in zip(asked, together, strict=True):
        rows = task_rows(task, rank, step)
        np.testing.assert_allclose(gradient, alone(task, weights, rows), atol=2e-6)
        again = np.asarray(task.gradient(weights, rank, step))
        np.testing.assert_array_equal(again, gradient)  # whatever it is taken together with


def task_rows(task: Module, rank: int, step: int):
    from sim.jobs.sharing.learning.task import drawn_rows

    return drawn_rows(task._order, task, rank, step, 16)


@pytest.mark.parametrize("name", ["digits", "residual", "characters"])
def test_the_loss_is_of_data_that_no_batch_has(name):
    task = named(name)
    inputs, _ = task._held_out
    assert len(task._inputs) == pytest.approx(4 * len(inputs), rel=0.01)
    if name != "characters":  # of which eight in a row come again
        drawn, kept = (set(map(bytes, part.numpy())) for part in (task._inputs, inputs))
        assert drawn.isdisjoint(kept)


def test_unlike_workers_see_their_own_digits():
    task = named("digits", unlike=0.95)
    seen = [task._targets[task_rows(task, rank, 0)].double().mean() for rank in range(4)]
    assert seen == sorted(seen)
    assert seen[0] < 3.0
    assert seen[3] > 6.0


@pytest.mark.parametrize("method", sorted(METHODS))
def test_digits_are_learnt_by_every_method(method):
    options = {"mode": "async"} if method == "parameter_server" else {}
    rate = 0.3 if method == "elastic" else 0.15  # workers step with their own gradients alone
    learning = Learning(task="digits", size=4, rate=rate, scaling="linear")
    result = outcome(method, steps=100, learning=learning, straggler=JITTER, **options)
    assert result.task == "digits"
    assert result.loss < 0.9 * 2.31  # of ten classes without an idea: log 10


def test_a_warm_up_spares_the_jump_of_the_scaled_rate():
    """Goyal et al. 2017: linear scaling breaks down where the net changes fast."""
    common = {"task": "digits", "size": 4, "rate": 0.05, "scaling": "linear"}
    at_once, warmed = (
        outcome(
            "all_reduce",
            workers=32,
            steps=12,
            learning=Learning(optimizer="momentum", warmup=warmup, **common),
        ).curve_frame()["loss"]
        for warmup in (0, 30)
    )
    assert at_once.max() > 1.5 * at_once[0]
    assert warmed.max() < 1.05 * warmed[0]


def test_a_residual_net_learns_the_digits():
    learning = Learning(task="residual", size=4, rate=0.1, optimizer="momentum")
    result = outcome("all_reduce", steps=80, learning=learning)
    assert result.accuracy > 0.5
    assert result.accuracy == result.curve[-1].accuracy
    assert result.accuracy > result.curve[0].accuracy + 0.3


def test_characters_are_learnt():
    learning = Learning(task="characters", size=4, rate=0.5)
    result = outcome("local_sgd", period=5, steps=100, learning=learning)
    assert result.loss < 0.85 * result.curve[0][2]


def test_a_module_of_ones_own():
    torch.manual_seed(0)
    inputs = torch.randn(256, 3)
    targets = inputs @ torch.tensor([[1.0], [-2.0], [0.5]])
    task = Module(torch.nn.Linear(3, 1), torch.nn.functional.mse_loss, inputs, targets)
    learning = Learning(task="none", rate=0.05)
    result = outcome("parameter_server", mode="async", steps=60, task=task, learning=learning)
    assert result.loss < 0.01 * task.loss(task.start)
    assert task.accuracy(task.start) is None
    assert np.isfinite(result.loss)


MINE = """
import torch
from sim.jobs.sharing.learning.module import Module

def task(*, size, **options):
    inputs = torch.arange(12.0).reshape(4, 3)
    net = torch.nn.Linear(3, size, bias=False)
    torch.nn.init.ones_(net.weight)
    targets = torch.ones(4, size)
    return Module(net, torch.nn.functional.mse_loss, inputs, targets, name="mine", **options)
"""


def test_a_module_of_ones_own_from_a_file_is_the_one_that_python_gives(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    keys = {"sharing.steps": 3, "sharing.learning.rate": 1e-3, "sharing.learning.size": 2}
    scenario, namespace = sim.load("ps-async", keys), {}
    named = sim.run(scenario, task=file)
    exec(MINE, namespace)
    task = namespace["task"](size=2, batch=32, workers=8, unlike=1.0, seed=0)
    assert named.task == "mine"
    assert sim.run(scenario, task=task).curve == named.curve


def test_commands_learn_a_task_of_ones_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    steps = ["--set", "sharing.steps=3", "--set", "sharing.learning.rate=1e-3"]
    one = invoked("run", "ps-async", "--task", str(file), "--json", *steps)
    assert json.loads(one.stdout)["task"] == "mine"
    drawn = invoked("run", "ps-async", "--task", str(file), "--seeds", "2", "--json", *steps)
    assert json.loads(drawn.stdout)["drawn"]["loss"]["runs"][0] == json.loads(one.stdout)["loss"]
    jobs = ("ps-async", ": sharing.batch=16")
    both = invoked("compare", *jobs, "--task", str(file), "--json", *steps)
    assert json.loads(both.stdout)["cases"][0]["loss"] == json.loads(one.stdout)["loss"]
    target = ["--set", "sharing.learning.target=50", "--set", "sharing.learning.task=none"]
    workers = ("workers", "ps-async", "--counts", "1,2", *target, *steps[2:])
    assert "no task with a target" in invoked(*workers, code=2).stderr
    assert "B_crit" in invoked(*workers, "--task", str(file)).stdout


NOTHING_LEARNS = (["run"], ["run", "--samples", "2"], ["compare", ": plan.tp=4"])


@pytest.mark.parametrize("command", NOTHING_LEARNS)
def test_a_task_is_refused_where_nothing_learns(command, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    named = [command[0], "megatron-1.7b", *command[1:], "--task", str(tmp_path / "mine.py")]
    assert "nothing learns; leave the task out" in invoked(*named, code=2).stderr


def test_no_file_of_data_runs_code(tmp_path):
    """A path in a scenario or in --set is refused, and the file has not run."""
    file, ran = tmp_path / "mine.py", tmp_path / "ran"
    file.write_text(f"open({str(ran)!r}, 'w')")
    scenario = tmp_path / "shared.toml"
    text = (packaged_root() / "scenarios" / "ps-async.toml").read_text()
    scenario.write_text(text.replace('"perceptron"', repr(str(file))))
    from_set = ["run", "ps-async", "--set", f"sharing.learning.task={file}"]
    for command in (["run", str(scenario)], from_set, ["compare", str(scenario), ":a=1"]):
        assert "would run code from data; give it as --task" in invoked(*command, code=2).stderr
    assert not ran.exists()


def test_an_object_that_is_no_task_is_refused():
    with pytest.raises(InputError, match="a int is no task: without name"):
        sim.run("ps-async", task=3)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "cannot be read"),
        ("x = 1 / 0", "fails in line 1: ZeroDivisionError"),
        ("def task(**options):\n    return [][0]", "fails in line 2: IndexError"),
        (
            "tusk = 1",
            "has no function task(*, size, batch, workers, unlike, seed) that returns a task; see",
        ),
        ("def task(**options):\n    return 3", "without name"),
    ],
)
def test_a_file_that_makes_no_task_is_refused_in_one_line(text, complaint, tmp_path):
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)
    assert complaint in invoked("run", "ps-async", "--task", str(file), code=2).stderr


@pytest.mark.parametrize(
    ("kind", "size"), [("Dropout", 0.1), ("BatchNorm1d", 3)], ids=["dropout", "batch norm"]
)
def test_layers_that_draw_or_count_are_refused_unless_they_do_not(kind, size):
    layer = getattr(torch.nn, kind)(size)
    net, data = torch.nn.Sequential(layer, torch.nn.Linear(3, 1)), torch.randn(8, 3)
    with pytest.raises(InputError, match="draws numbers or keeps statistics; leave it out"):
        Module(net, torch.nn.functional.mse_loss, data, data[:, :1])
    assert Module(net.eval(), torch.nn.functional.mse_loss, data, data[:, :1]).start.size >= 4


@pytest.mark.long
def test_without_the_extra_the_task_is_refused_in_one_line():
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from sim.interface.cli.main import main\n"
        "main(['run', 'ps-async', '--set', 'sharing.learning.task=digits'])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "pip install 'clustersim[learning]'" in ran.stderr
