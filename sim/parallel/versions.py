"""What several versions of weights (`Plan.versions`) do not go with."""

from sim.config.errors import InputError
from sim.parallel.job import Job


def check_versions(job: Job, where: str) -> None:
    """Raise `InputError` where a pipeline does not drain, but stages do not update their weights
    alone and whole."""
    plan = job.plan
    if not plan.versions(0):
        return
    for found, what, remedy in (
        (plan.zero > 0, f"shards of states (zero = {plan.zero})", "set zero = 0"),
        (bool(plan.offload), "offload", "leave it out"),
        (plan.overlap_experts, "passes in pairs (overlap_experts)", "leave it out"),
        (
            len(job.embedding_holders) > 1,
            "a word embedding that stages share",
            "set change.model.tied_embeddings = false",
        ),
    ):
        if found:
            what = f"schedule = {plan.schedule!r} updates every stage alone, without {what}"
            raise InputError(where, what, f"{remedy}, or take a schedule that drains")
