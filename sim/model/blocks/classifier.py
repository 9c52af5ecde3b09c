"""The head of a classifier: final normalisation, logits of the first token of each sequence.

Dosovitskiy et al. 2020 (arXiv 2010.11929), section 3.1, equation 4; the model's `vocab` is the
number of classes.
"""

from dataclasses import replace

from sim.model.bert_head import gathered
from sim.model.blocks.head import cross_entropy, logits
from sim.model.execution import Execution
from sim.model.operators import Operator, normalise

LAYER = False


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    run = replace(run, recipe=None, model=replace(run.shape, biases=("logits",)))
    norm = normalise(run, "final norm", run.local, residual=False)
    rows = run.microbatch
    return (norm, gathered(run, rows), logits(run, rows), cross_entropy(run, rows))
