"""Pipelines that do not drain between steps: what their stages cannot do."""

from sim.config.errors import InputError
from sim.parallel.job import Job


def check_versions(job: Job, where: str) -> None:
    """Raise `InputError` if the stages of a pipeline that does not drain between steps cannot
    update their weights alone. ZeRO-1 is allowed, as its shards of states stay within a stage."""
    plan = job.plan
    looked_up = any("mtp_input" in chunk.kinds for chunks in job.chunks for chunk in chunks)
    untied = not (looked_up or job.model.decoder_seq)
    untie = "set change.model.tied_embeddings = false, or " if untied else ""
    for found, fault, remedy in (
        (plan.zero > 1, f"shards of gradients (zero = {plan.zero})", "set zero = 1, or "),
        (bool(plan.offload), "offload", "leave it out, or "),
        (plan.overlap_experts, "passes in pairs (overlap_experts)", "leave it out, or "),
        (len(job.embedding_holders) > 1, "a word embedding that stages share", untie),
    ):
        if found:
            fault = f"schedule = {plan.schedule!r} updates each stage alone, which excludes {fault}"
            raise InputError(where, fault, f"{remedy}take a schedule that drains")
