"""Whether a plan fits a model, a stack and a cluster: checks before anything is simulated."""

from dataclasses import replace

from sim.config.errors import InputError
from sim.hardware import stack as stacks
from sim.hardware.cluster.topology import Topology
from sim.model import optimizers
from sim.model.block import check_adapters, check_graphs, check_rule
from sim.model.kinds import experts_of
from sim.model.model import Model
from sim.parallel.job import Job
from sim.parallel.mesh import dividing
from sim.parallel.plan import WHOLE, Plan
from sim.parallel.resolved import check_used


def check_sizes(
    model: Model, stack: stacks.Stack, topology: Topology, plan: Plan, where: str
) -> None:
    """Refuse a plan that does not fit the model, the stack or the cluster. Raises `InputError`."""
    _check_links(plan, topology, where)
    _check_network(model, plan, topology, where)
    _check_experts(model, plan, where)
    if plan.pp > 1 and plan.zero > stack.pipeline_zero:
        fault = f"zero = {plan.zero} with pp = {plan.pp}, which {stack.name} refuses"
        remedy = "pp = 1" if plan.offload.parameters else f"zero = {stack.pipeline_zero}"
        raise InputError(where, fault, f"set {remedy}")
    if plan.pp > model.layers:
        raise InputError(
            where, f"pp = {plan.pp} stages for {model.layers} layers", f"set pp <= {model.layers}"
        )


def check_job(job: Job, topology: Topology, where: str) -> None:
    """Refuse a job for faults that show only with its layers on stages. Raises `InputError`."""
    plan, kinds = job.plan, job.model.kinds
    check_used(plan, where)
    if plan.recompute_method is not None or plan.recompute_layers is not None:
        from sim.parallel.recompute_method import check_method

        check_method(plan, (part.kinds for chunk in job.chunks for part in chunk), where)
    if plan.versions(0):
        from sim.parallel.undrained import check_versions

        check_versions(job, where)
    check_rule(job.rule, kinds, job.execution, where=where)
    check_adapters(kinds, job.execution, where=where)
    _check_graphs(job, where)
    if plan.defer_embedding_wgrad_compute:
        from sim.parallel.deferred import check_deferred

        check_deferred(job, where)
    _check_host_memory(job, topology, where)


def _check_graphs(job: Job, where: str) -> None:
    """Refuse CUDA graphs if there is nothing to launch, or nothing to put into them."""
    if job.plan.cuda_graph and job.device.generation in ("cpu", "tpu"):
        raise InputError(where, f"cuda_graph, but {job.device.name} has none", "leave it out")
    # The graph of moe_preprocess continues the graph of moe_router, and may hold no kernels.
    scopes = [scope for scope in job.plan.cuda_graph if scope not in (WHOLE, "moe_preprocess")]
    check_graphs(scopes, job.model.kinds, job.execution, where=where)


def _check_experts(model: Model, plan: Plan, where: str) -> None:
    """Refuse settings for experts in a model without experts."""
    if model.tables:
        model.check_tables(plan.ep, plan.data_parallel, where)
        plan = replace(plan, ep=1)
    if found := experts_of(model):
        _check_shared(any(experts.shared_width for experts in found), plan, where)
        return
    usual = {
        "ep": 1, "etp": 1, "dispatcher": None, "overlap_experts": None, "overlap_shared": None
    }  # fmt: skip
    for key, value in usual.items():
        if getattr(plan, key) != value:
            fault = f"{key} is set but the model has no experts"
            raise InputError(where, fault, f"leave {key} out")


def _check_shared(shared: bool, plan: Plan, where: str) -> None:
    """Refuse to overlap tokens with shared experts if there are none, or if passes overlap too."""
    if not plan.overlap_shared:
        return
    if not shared:
        fault = "overlap_shared is set but the model has no shared experts"
        raise InputError(where, fault, "leave overlap_shared out")
    if any(plan.passes().pairs):
        fault = (
            f"overlap_shared, but passes of other microbatches run beside tokens ({plan.pipeline})"
        )
        raise InputError(where, fault, "set overlap_experts = false, or leave overlap_shared out")


def _check_network(model: Model, plan: Plan, topology: Topology, where: str) -> None:
    """Refuse settings that only transformers, or only convolutional networks, can use."""
    if plan.stash is not None and not model.feature_maps:
        fault = (
            "stash is how convolutional networks keep feature maps, but this model has no such maps"
        )
        raise InputError(where, fault, "leave it out, or set recompute")
    if model.divided:
        return
    divided = dividing("weights", "sequence")
    if (parts := plan.degree(divided)) > 1:
        names = "*".join(plan.split(divided))
        fault = f"{names} = {parts}, but only a transformer's layers can be divided"
        raise InputError(where, fault, "raise dp or pp instead")
    optimizer = optimizers.of(plan.optimizer, where=where)
    if plan.activations is not None or plan.lora is not None or optimizer.orthogonalised:
        key = "activations" if plan.activations else "lora" if plan.lora else "optimizer"
        fault = f"{key} works only with the layers of a transformer"
        raise InputError(where, fault, f"leave {key} out")
    topology.device.peak_rate(plan.precision, where)  # refuses a precision that the device lacks
    model.check(plan.precision, topology.device.name)


def _check_links(plan: Plan, topology: Topology, where: str) -> None:
    """Refuse offload if the cluster does not describe its hosts, or hosts lack drives."""
    if not plan.offload:
        return
    host = topology.host
    if host is None:
        fault = f"offload, but {topology.name} does not say how its devices reach their hosts"
        raise InputError(where, fault, "add a [host] table to the topology, or leave it out")
    if plan.offload.nvme and not (host.read and host.write):
        fault = f"offload to drives, but the hosts of {topology.name} have none"
        raise InputError(where, fault, "set host.read and host.write, or nvme = false")


def _check_host_memory(job: Job, topology: Topology, where: str) -> None:
    if not job.plan.offload:
        return
    from sim.parallel.offload import host_memory

    held = host_memory(job, topology)
    if topology.host is not None and held > topology.host.memory:
        from sim.config.readable import human_bytes

        room = human_bytes(topology.host.memory)
        fault = f"offload needs {human_bytes(held)}, but a host has {room}"
        raise InputError(
            where, fault, "offload smaller shares, shard over more nodes, or set nvme = true"
        )
