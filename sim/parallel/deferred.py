"""Weight gradients of the output layer at the end of a step instead of in every backward pass.

Megatron-Core's `defer_embedding_wgrad_compute` (pipeline_parallel/utils and schedules.py,
`finish_embedding_wgrad_compute`): the last stage leaves the weight gradient of the output layer out
of its backward passes and keeps the operands. After its last backward pass it runs these products
for all microbatches, while other stages still drain. Gradients of the head are then summed over
replicas. (`wgrad_deferral_limit` bounds how many microbatches wait; here all do.)
"""

from collections.abc import Iterable

from sim.config.errors import InputError
from sim.model.block import Block
from sim.parallel import data
from sim.parallel.job import HEAD, Job
from sim.program.memory import MemoryUse
from sim.program.operations import Compute, Operation, Work

_NAME = "deferred weights"


def finished(job: Job, blocks: Iterable[Block]) -> list[Operation]:
    """Return the deferred products after the passes of a stage, if it holds the head."""
    head = next((block for block in blocks if block.kind == HEAD), None)
    if head is None:
        return []
    times = job.plan.microbatches
    work = Work(name=_NAME, items=(job.work(HEAD, "W"),) * times)
    use = MemoryUse({"activations": -times * head.held})
    done: list[Operation] = [Compute(name=_NAME, work=work, memory=use)]
    if job.overlaps_gradients and data.replicated(job, head.parameters):
        name, stream = "reduce deferred", data.STREAM
        done += data.reduced(job, head.parameters, name, after=(_NAME,), stream=stream)
    return done


def check_deferred(job: Job, where: str) -> None:
    """Raise `InputError` if Megatron-Core refuses the plan, or the schedule splits passes."""
    plan, option = job.plan, "defer_embedding_wgrad_compute"
    schedule = plan.passes()
    faults = (
        (plan.pp == 1, "without pipeline stages", "set pp > 1"),
        (plan.zero > 1, f"with zero = {plan.zero}", "set zero = 1"),
        (
            not job.stack.fusion.adds_in_gemm,
            f"but {job.stack.name} does not add gradients up in products",
            "take another stack, such as megatron-core",
        ),
        (
            schedule.splits_backward or schedule.steps > 1,
            f"with schedule {plan.pipeline!r}, which places weight gradients itself",
            "set schedule = '1f1b'",
        ),
        (plan.lora is not None, "with adapters, as the head is then frozen", "leave lora out"),
    )
    for fault, reason, remedy in faults:
        if fault:
            raise InputError(where, f"{option} {reason}", f"{remedy} or leave it out")
