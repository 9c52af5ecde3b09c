"""How fast a job trains and on what: all that its cost and its goodput need of it."""

from dataclasses import dataclass

from sim.hardware.cluster.topology import Topology
from sim.model.counts import parameters
from sim.model.reading import model_of
from sim.reliability.checkpoint_size import checkpoint_bytes
from sim.results.likely import Likely, likely
from sim.results.result import Result
from sim.scenario.scenario import Scenario, SharingScenario
from sim.scenario.setup import Setup, from_scenario, load_document
from sim.scenario.sharing_setup import from_scenario as shared
from sim.simulate import run
from sim.simulate_sharing import played

_STATE = 12.0  # bytes of a parameter in a checkpoint: fp32 weights and two moments (Adam)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A step, or a mean update of workers that share them: its seconds and `tokens` (samples of a
    model without sequences). `size` is that of a checkpoint (bytes), `replicas` how many ranks
    train on data of their own, `sure` what measured runs say, if any."""

    topology: Topology
    seconds: float
    tokens: float
    size: float
    replicas: int
    sure: Likely | None = None


def of_job(setup: Setup, result: Result) -> Pace:
    """The pace of a synchronous step."""
    plan, model = setup.job.plan, setup.job.model
    return Pace(
        topology=setup.machine.topology,
        seconds=result.step_time,
        tokens=plan.global_batch * model.seq,
        size=checkpoint_bytes(setup),
        replicas=plan.data_parallel,
        sure=likely(result),
    )


def of_sharing(scenario: SharingScenario) -> Pace:
    """The mean pace of a run of shared updates; where times were measured, a token is a sample."""
    setup = shared(scenario, keep_spans=0)
    outcome, each = played(setup), 1
    held = setup.workloads[0].parameters
    if scenario.model:
        model = model_of(*load_document(scenario, "model", "models", scenario.model))
        each, held = model.seq, float(parameters(model))
    updates = max(outcome.updates, 1)
    return Pace(
        topology=setup.machine.topology,
        seconds=outcome.time / updates,
        tokens=outcome.samples / updates * each,
        size=_STATE * held,
        replicas=len(setup.workers),
    )


def of_scenario(scenario: Scenario) -> Pace:
    """The pace of either kind of scenario."""
    if isinstance(scenario, SharingScenario):
        return of_sharing(scenario)
    setup = from_scenario(scenario)
    return of_job(setup, run(setup))
