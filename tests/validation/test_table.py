"""Rows of tables: what they leave open, and the names that are none of ours."""

from sim.validation.table import setup_of
from tests.validation.test_validate import RUN


def test_automatic_schedules_of_the_zero_bubble_paper_are_ours_within_their_memory():
    row = {**RUN, "software": "megatron-lm-zero-bubble", "tp": 1, "pp": 8, "dp": 1, "gpus": 8}
    for name, memory in (("zb-1p", 1.0), ("zb-2p", 2.0)):
        plan = setup_of({**row, "schedule": name}).job.plan
        assert (plan.schedule, plan.schedule_memory) == ("zb-auto", memory)
