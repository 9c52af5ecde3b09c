"""What a user can get wrong in a [sharing] table: one line, exit code 2."""

from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.jobs.sharing.methods.gossip import Gossip
from sim.jobs.sharing.peers import mixed
from sim.jobs.sharing.run import run
from sim.jobs.sharing.setup import assemble
from tests.jobs.sharing.pools import hosts, trained, work

HEAD = 'model = "resnet50"\ntopology = "dgx-1-v100"\n[sharing]\nworkers = 8\nsteps = 2\n'

SERVER = 'method = "parameter_server"\n'
MISTAKES = {
    "no time at all": (
        'method = "all_reduce"\nuntil = "0 s"',
        "until: '0 s' must be a finite positive",
    ),
    "a bound below 0": (SERVER + 'mode = "ssp"\nbound = -1', "bound = -1: input should be"),
    "a bound without its mode": (
        SERVER + "bound = 2",
        'bound would have no effect with mode = "bsp"; set mode = "ssp"',
    ),
    "a cache that no bound clears": (
        SERVER + "cached = true",
        'cached would have no effect with mode = "bsp"',
    ),
    "a momentum of a rule that has none": (
        SERVER + "[sharing.learning]\nbeta = 0.5",
        'beta would have no effect on this rule; set optimizer = "momentum", or leave beta out',
    ),
    "a ratio of rounded numbers": (
        SERVER + '[sharing.compression]\nkind = "fp16"\nratio = 0.5',
        'ratio would have no effect on "fp16"',
    ),
    "a rank of the largest elements": (
        SERVER + '[sharing.compression]\nkind = "topk"\nrank = 2',
        'rank would have no effect on "topk"',
    ),
    "an interval of slow steps": (
        SERVER + '[[sharing.straggler]]\nkind = "lognormal"\nsigma = 0.2\ninterval = "2 s"',
        "interval would have no effect on steps",
    ),
    "Nesterov's form of no momentum": (
        'method = "local_sgd"\nnesterov = true',
        "nesterov would have no effect without outer_momentum; set outer_momentum, or leave",
    ),
    "replicas without servers": (
        'method = "gossip"\n[sharing.recovery]\nreplicas = 1',
        "recovery.replicas concerns servers, but this method has none; leave it out",
    ),
    "more backup workers than workers": (
        SERVER + 'mode = "backup"\nbackup = 9',
        "backup = 9 of 8 workers",
    ),
    "as many": (SERVER + 'mode = "backup"\nbackup = 8', "leaves no worker to wait for"),
    "a graph in parts": (
        'method = "gossip"\ngraph = [[0, 1], [2, 3], [4, 5], [6, 7]]',
        "sharing.graph: the graph is not connected: no path leads from worker 0 to worker 2",
    ),
    "a graph that is not known": ('method = "gossip"\ngraph = "rign"', "no graph named 'rign'"),
    "a rank larger than the matrix": (
        'method = "all_reduce"\n[sharing.compression]\nkind = "powersgd"\nrank = 6000',
        "rank = 6000 is too large",
    ),
    "a trace that is not there": (
        'method = "all_reduce"\n[[sharing.straggler]]\nkind = "trace"\nfile = "none.csv"',
        "no such file",
    ),
    "a trace with holes": (
        'method = "all_reduce"\n[[sharing.straggler]]\nkind = "trace"\nfile = "holes.csv"',
        "line 3",
    ),
    "a worker that is not there": (
        'method = "all_reduce"\n[[sharing.fault]]\nrank = 8\nat = "1 s"',
        "there is no worker of rank 8",
    ),
    "a key of another method": (
        'method = "all_reduce"\nbound = 1',
        "asked.toml, sharing: unknown key 'bound' for method = \"all_reduce\" (it belongs to "
        "parameter_server); known: method",
    ),
    "the default of another method's key": (
        'method = "gossip"\nshards = 1',
        "unknown key 'shards' for method = \"gossip\" (it belongs to async_local_sgd and elastic "
        "and federated and parameter_server)",
    ),
    "a misspelt key": (
        'method = "gossip"\nalgoritm = "sgp"',
        "unknown key 'algoritm' for method = \"gossip\"; did you mean 'algorithm'?",
    ),
    "an unknown key": (
        SERVER + "boundd = 1",
        "unknown key 'boundd' for method = \"parameter_server\"; did you mean 'bound'?",
    ),
    "a worker of no GPU": (
        SERVER + "worker = 0",
        "worker = 0: input should be greater than or equal to 1; set worker at least 1, or write "
        "'gpu' or 'node'",
    ),
    "a worker of no kind": (
        SERVER + 'worker = "nods"',
        "input should be 'gpu' or 'node'; did you mean 'node'? or write a whole number",
    ),
    "an unknown method": (
        'method = "goss"',
        "asked.toml, sharing: method = \"goss\" is unknown; did you mean 'gossip'?",
    ),
    "no method": ("batch = 32", "asked.toml, sharing: method is missing; known: all_reduce"),
    "more colocated shards than workers": (
        SERVER + 'servers = "colocated"\nshards = 9',
        "shards = 9 exceeds the 8 workers whose hosts serve",
    ),
    "a share above 1": ('method = "federated"\nfraction = 1.5', "set fraction at most 1"),
    "a worker in two groups": (
        'method = "all_reduce"\n[[sharing.group]]\nranks = [1, 2]\nslowdown = 2.0\n'
        "[[sharing.group]]\nranks = [2]\nslowdown = 3.0",
        "group: rank 2 is named twice; name each rank once",
    ),
    "a straggler named twice": (
        'method = "all_reduce"\n[[sharing.straggler]]\nkind = "constant"\nfactor = 2.0\n'
        "ranks = [1, 1]",
        "straggler: rank 1 is named twice",
    ),
    "a failure of what is away": (
        'method = "all_reduce"\n[[sharing.fault]]\nrank = 3\nat = "10 s"\nafter = "5 s"\n'
        '[[sharing.fault]]\nrank = 3\nat = "12 s"',
        "fault: rank 3 fails at 12.0 s, when it is away from 10.0 s on",
    ),
    "a failure of what never came back": (
        'method = "all_reduce"\n[[sharing.fault]]\nrank = 3\nat = "1 s"\n'
        '[[sharing.fault]]\nrank = 3\nat = "12 s"\nafter = "5 s"',
        "fault: rank 3 fails at 12.0 s, when it is away from 1.00 s on",
    ),
    "data more unlike than can be": (
        SERVER + '[sharing.learning]\ntask = "perceptron"\nunlike = 1e9',
        "unlike = 1e+09 exceeds the limit of this task, 1",
    ),
    "optima that rounding hides": (
        SERVER + '[sharing.learning]\ntask = "quadratic"\nunlike = 1e9',
        "unlike = 1e+09 exceeds the limit of this task, 1e+06",
    ),
    "clients that go offline and never come": (
        'method = "federated"\noffline = "1 d"',
        "online and offline take turns: give both, or neither",
    ),
    "a precision that the device lacks": (
        'method = "all_reduce"\nprecision = "fp4"',
        "V100 32GB SXM2 has no fp4; it has fp32, fp16",
    ),
    "a link that is not there": (
        'method = "all_reduce"\n[[sharing.change]]\nlink = "node9.nic0"\nat = "1 s"\nfactor = 2.0',
        "node9.nic0",
    ),
    "a slow link that is not there": (
        'method = "all_reduce"\n[[sharing.straggler]]\nkind = "constant"\nfactor = 2.0\n'
        'links = ["node9.nic0"]',
        "node9.nic0",
    ),
    "a slow GPU that is not there": (
        'method = "all_reduce"\n[[straggler]]\nrank = 999\nfactor = 4.0',
        "asked, straggler 1: there is no rank 999; use 0 to 7",
    ),
    "a slow node that is not there": (
        'method = "all_reduce"\n[[straggler]]\nnode = 1\nfactor = 4.0',
        "asked, straggler 1: there is no node 1; use 0 to 0",
    ),
    "a slow node without workers": (
        'method = "all_reduce"\n[[sharing.straggler]]\nkind = "pareto"\nalpha = 3.0\nnodes = [1]',
        "straggler: there are no workers on node 1; use 0 to 0",
    ),
    "a slow stage": (
        'method = "all_reduce"\n[[straggler]]\nstage = 0\nfactor = 4.0',
        "workers that share updates have no stages",
    ),
    "a law of ranks and links": (
        'method = "all_reduce"\n[[sharing.straggler]]\nkind = "pareto"\nalpha = 3.0\n'
        'links = ["node0.nic0"]\nranks = [1]',
        "cannot slow both links and ranks or nodes",
    ),
    "a law without its parameter": (
        'method = "all_reduce"\n[[sharing.straggler]]\nkind = "pareto"',
        "sharing.straggler.0: alpha is missing",
    ),
    "a law with the parameter of another": (
        'method = "all_reduce"\n[[sharing.straggler]]\nkind = "pareto"\nalpha = 3.0\nfactor = 2.0',
        "unknown key 'factor' for kind = \"pareto\" (it belongs to constant and on-off and pauses)",
    ),
    "a slow GPU that is not there, asynchronously": (
        SERVER + 'mode = "async"\n[[straggler]]\nrank = 999\nfactor = 4.0',
        "asked, straggler 1: there is no rank 999; use 0 to 7",
    ),
    "a slow worker that is not there": (
        SERVER + '[[sharing.straggler]]\nkind = "constant"\nfactor = 4.0\nranks = [999]',
        "straggler: there is no worker of rank 999; use 0 to 7",
    ),
    "a slow worker by the table of synchronous jobs": (
        SERVER + "[[sharing.straggler]]\nrank = 999\nfactor = 4.0",
        "sharing.straggler.0: kind is missing",
    ),
    "jitter of kernels": (
        SERVER + "[jitter]\nseed = 3",
        "jitter has no effect beside [sharing], on workers that share updates; write "
        "[[sharing.straggler]]",
    ),
    "a graph that nobody asks": (
        'method = "gossip"\nalgorithm = "sgp"\ngraph = "star"',
        'graph would have no effect with algorithm = "sgp"; choose another algorithm, or leave',
    ),
    "overlap of random pairs": (
        'method = "gossip"\nalgorithm = "random_pairs"\noverlap = true',
        "overlap would have no effect",
    ),
    "a consensus step without compression": (
        'method = "gossip"\nconsensus = 0.5',
        "consensus would have no effect without [sharing.compression]",
    ),
    "buckets that nobody overlaps": (
        'method = "all_reduce"\nbucket = "1 MB"',
        "bucket would have no effect without overlap; set overlap = true",
    ),
    "noise of a perceptron": (
        'method = "all_reduce"\n[sharing.learning]\ntask = "perceptron"\nnoise = 3.0',
        'noise would have no effect on this task; set task = "quadratic"',
    ),
    "a NIC of servers that have none": (
        SERVER + 'servers = "colocated"\nserver_bandwidth = "1 GB/s"',
        "server_bandwidth is set, but the servers share the workers' NICs",
    ),
    "parts of a push-sum": (
        'method = "gossip"\nalgorithm = "sgp"\n[sharing.compression]\nkind = "topk"',
        "push-sum needs whole sums",
    ),
    "a rendezvous with nobody": (
        'method = "gossip"\nalgorithm = "ad_psgd"\nrendezvous = true',
        "leave rendezvous out",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, said = MISTAKES[mistake]
    monkeypatch.chdir(tmp_path)
    Path("holes.csv").write_text("step_time\n0.1\n,\n0.2\n")
    Path("asked.toml").write_text(HEAD + table + "\n")
    result = CliRunner().invoke(main, ["run", "asked.toml"])
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_settings_reach_into_the_table() -> None:
    result = CliRunner().invoke(main, ["run", "ps-async", "--set", "sharing.bound=-3"])
    assert result.exit_code == 2
    assert "bound = -3" in result.stderr


def test_no_model_and_no_times_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "asked.toml"
    path.write_text('topology = "dgx-1-v100"\n[sharing]\nmethod = "all_reduce"\nworkers = 8\n')
    result = CliRunner().invoke(main, ["run", str(path)])
    assert result.exit_code == 2
    assert 'set model = "resnet50"' in result.stderr


@pytest.mark.parametrize("choice", [["--unfold"], ["--engine", "replay"]])
def test_choices_of_a_synchronous_step_are_refused(choice: list[str]) -> None:
    asked = CliRunner().invoke(main, ["run", "ps-bsp", *choice])
    assert asked.exit_code == 2
    assert f"leave {' '.join(choice)} out" in asked.output


def test_fewer_gpus_than_the_workers_compute_on_are_refused() -> None:
    """The cluster would otherwise grow without a word."""
    asked = CliRunner().invoke(main, ["run", "ps-bsp", "--gpus", "3"])
    assert asked.exit_code == 2
    assert "gpus = 3, but the workers compute on 8 GPUs" in asked.output


def _steps_alone(pool: Any, worker: Any) -> Any:
    for number in count():
        yield from worker.local_steps(number, 1)


def _updates_alone(pool: Any, worker: Any) -> Any:
    for _ in count():
        yield pool.cluster.sleep(0.1)
        pool.record.update(0, worker.workload.batch, pool.average)


def _gradients_alone(pool: Any, worker: Any) -> Any:
    for step in count():
        gradient = yield from worker.compute(step)
        worker.apply(gradient)  # without `yield from` it never runs
        pool.record.update(0, worker.workload.batch, pool.average)


def _calls_alone(pool: Any, worker: Any) -> Any:
    yield worker.compute(0)


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        (_steps_alone, "no update was recorded in .* call pool.record.update"),
        (_updates_alone, "no worker has computed a step"),
        (_gradients_alone, "Worker.apply was called, but it has not run; write `yield from`"),
        (_calls_alone, "a worker yields Worker.compute, which is no event; write `yield from`"),
    ],
)
def test_a_method_that_forgets_its_updates_or_its_steps_is_told_so(loop: Any, said: str) -> None:
    class Forgetful(Gossip):
        def start(self, pool: Any) -> None:
            pool.train(partial(loop, pool))

    with pytest.raises(InputError, match=said):
        run(assemble(Forgetful(workers=2, steps=1), hosts(), work()))


def test_a_round_much_longer_than_the_run_is_no_run_without_updates() -> None:
    assert trained("local_sgd", period=3000, steps=2).record.updates == 1


def test_weights_of_a_mean_add_up_to_1() -> None:
    with pytest.raises(InputError, match=r"add up to 1\.14286"):
        mixed(dict.fromkeys(range(8), 1 / 7), 0, np.zeros(1), {})
