"""How fast a job trains and on what: all that its cost and its goodput need of it."""

from dataclasses import dataclass
from math import inf, prod

from sim.config.errors import InputError
from sim.hardware.cluster.topology import Topology
from sim.model.counts import parameters
from sim.recording.axes import DATA_AXIS, REPLICAS_AXIS
from sim.reliability.checkpoint_size import checkpoint_bytes
from sim.results.answer import Inputs
from sim.results.likely import Likely, likely
from sim.results.result import Result
from sim.scenario.loading import load_model
from sim.scenario.scenario import RecordedScenario, Scenario, SharingScenario
from sim.scenario.setup import Setup, from_scenario
from sim.scenario.sharing_setup import from_scenario as shared
from sim.sharing.server_placement import reserved_gpus
from sim.simulate import run
from sim.simulate_recording import simulate_recording
from sim.simulate_sharing import played

_STATE = 12.0  # bytes of a parameter in a checkpoint: fp32 weights and two moments (Adam)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A step, or a mean update of workers that share them: its seconds and `tokens` (samples of a
    model without sequences). `size` is that of a checkpoint (bytes), `replicas` how many ranks
    train on data of their own, `sure` what measured runs say, if any. Where `fits` is
    false the job would not run.

    Of `alone` workers each may fail by itself: what stops one are faults of `gpus_of_one`, its own
    and its servers', and it has to do `at_risk` seconds again, half a round of its own in the mean.
    """

    topology: Topology
    seconds: float
    tokens: float
    size: float
    replicas: int
    inputs: Inputs
    fits: bool
    sure: Likely | None = None
    alone: int = 1
    gpus_of_one: int = 0
    at_risk: float = inf


def of_job(setup: Setup, result: Result) -> Pace:
    """The pace of a synchronous step."""
    plan, model = setup.job.plan, setup.job.model
    return Pace(
        topology=setup.machine.topology,
        seconds=result.step_time,
        tokens=plan.global_batch * model.tokens,
        size=checkpoint_bytes(setup),
        replicas=plan.data_parallel,
        inputs=result.inputs,
        fits=result.fits,
        sure=likely(result),
    )


def of_sharing(scenario: SharingScenario) -> Pace:
    """The mean pace of a run of shared updates; where times were measured, a token is a sample."""
    setup = shared(scenario, keep_spans=0)
    outcome, each = played(setup), 1
    held = setup.workloads[0].parameters
    if scenario.model:
        model = load_model(scenario)
        each, held = model.tokens, float(parameters(model))
    updates, workers = max(outcome.updates, 1), len(setup.workers)
    topology, alone = setup.machine.topology, setup.plan.fails_alone
    own = setup.plan.gpus_of_worker(topology.gpus_per_node)
    return Pace(
        topology=topology,
        seconds=outcome.time / updates,
        tokens=outcome.samples / updates * each,
        size=_STATE * held,
        replicas=workers,
        inputs=outcome.inputs,
        fits=outcome.fits,
        alone=workers if alone else 1,
        gpus_of_one=own + reserved_gpus(setup.plan, topology.gpus_per_node),
        at_risk=outcome.time * workers / updates / 2.0 if alone else inf,
    )


def of_recording(scenario: RecordedScenario) -> Pace:
    """The pace of a recorded step. Raises `InputError` for a script that has no tokens to count."""
    result = simulate_recording(scenario)
    if result.setup is None or not result.tokens_per_second:
        what = "the script recorded shows no tokens by which its cost could be told"
        raise InputError(scenario.name, what, "ask of a model that is described")
    return Pace(
        topology=result.setup.machine.topology,
        seconds=result.step_time,
        tokens=result.tokens_per_second * result.step_time,
        size=_STATE * result.parameters,
        replicas=prod(result.inputs.plan.get(axis, 1) for axis in (DATA_AXIS, REPLICAS_AXIS)),
        inputs=result.inputs,
        fits=result.fits,
        sure=likely(result),
    )


def of_scenario(scenario: Scenario) -> Pace:
    """The pace of any kind of scenario."""
    if isinstance(scenario, SharingScenario):
        return of_sharing(scenario)
    if isinstance(scenario, RecordedScenario):
        return of_recording(scenario)
    setup = from_scenario(scenario)
    return of_job(setup, run(setup))
