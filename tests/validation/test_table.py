"""Rows of tables: what they leave open, and the names that are none of ours."""

from sim.validation.table import setup_of
from tests.validation.test_validate import RUN


def test_a_guessed_vocabulary_gives_way_to_that_of_the_softwares_own_tokenizer():
    zero_bubble = {**RUN, "software": "megatron-lm-zero-bubble"}
    printed = setup_of({**zero_bubble, "assumed": "precision"})
    guessed = setup_of({**zero_bubble, "assumed": "heads vocab"})
    assert printed.job.model.vocab == RUN["vocab"]
    assert guessed.job.model.vocab == 32_000
    other = setup_of({**RUN, "software": "megatron-lm-2021", "assumed": "vocab"})
    assert other.job.model.vocab == RUN["vocab"]


def test_automatic_schedules_of_the_zero_bubble_paper_are_ours_within_their_memory():
    row = {**RUN, "software": "megatron-lm-zero-bubble", "tp": 1, "pp": 8, "dp": 1, "gpus": 8}
    for name, memory in (("zb-1p", 1.0), ("zb-2p", 2.0)):
        plan = setup_of({**row, "schedule": name}).job.plan
        assert (plan.schedule, plan.schedule_memory) == ("zb-auto", memory)
