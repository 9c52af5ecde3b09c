"""`sim cost` predicts the days, dollars and energy of a training."""

from typing import Any

import click

from sim.config.errors import InputError
from sim.config.units import quantity_of
from sim.interface.cli import options
from sim.interface.cli.files import Form, answers


@click.command(
    epilog=options.examples(
        "sim cost gpt3-175b-cost --picture cost.png",
        'sim cost megatron-39b --tokens 500B --deadline "3 weeks" --failures --chance 90%',
        "sim cost megatron-39b --tokens 20B --budget 40000 --chance 90%",
        'sim cost megatron-39b --tokens 300e9 --price "2 USD/h" --goodput 0.9',
    )
)
@click.argument("scenario", required=False)
@click.option("--tokens", type=options.NUMBER, help="Tokens to train on; default: the scenario's.")
@options.METHOD
@options.PRICE
@click.option(
    "--goodput",
    type=options.NUMBER,
    default=1.0,
    show_default=True,
    help="Share of the time in which training makes progress.",
)
@click.option(
    "--deadline", metavar="TIME", help='Time until the training must end, such as "3 weeks".'
)
@click.option("--budget", type=options.NUMBER, metavar="USD", help="Dollars of rent to spend.")
@click.option(
    "--failures",
    is_flag=False,
    flag_value="llama3",
    metavar="[TABLE]",
    help="Count failures and restarts, from a TABLE as in sim goodput (llama3 if not named).",
)
@click.option(
    "--chance", type=options.SHARE, help="Chance of meeting --deadline and --budget; default 90%."
)
@options.of_scenario
@answers()
@options.LIMIT
def cost(
    goodput: float,
    deadline: str | None,
    budget: float | None,
    failures: str | None,
    chance: float | None,
    form: Form,
    **question: Any,
) -> None:
    """Predict the days, dollars and energy of training SCENARIO.

    The training has --tokens, or the scenario's tokens. With --deadline, --budget, --failures or
    --chance the answer has the days and dollars that suffice with a chance of 10, 50 and 90 %. It
    then also has the GPUs that the deadline needs, and the GPUs that the budget pays. The exit code
    is 3 if the job does not fit into memory.
    """
    if (deadline, budget, failures, chance) != (None, None, None, None):
        if goodput != 1.0:
            raise InputError("--goodput", "follows from --failures", "give one of the two")
        from sim.analysis.reliability.budget import budget as budget_of

        by = None if deadline is None else quantity_of("--deadline", deadline, "s", "3 weeks")
        form.show(
            budget_of(
                deadline=by, money=budget, failures=failures, chance=chance or 0.9, **question
            )
        )
        return
    from sim.analysis.reliability.cost import cost as cost_of

    form.show(cost_of(goodput=goodput, **question))
