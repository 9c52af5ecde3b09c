"""`sim cost`: days, dollars and energy."""

import click

from sim.interface.cli import options
from sim.interface.cli.files import Form, answers


@click.command(
    epilog=options.examples(
        "sim cost gpt3-175b-cost --picture cost.png",
        'sim cost megatron-39b --tokens 300e9 --price "2 USD/h" --goodput 0.9',
    )
)
@click.argument("scenario")
@click.option("--tokens", type=options.NUMBER, help="How many; the scenario's budget otherwise.")
@options.PRICE
@click.option(
    "--goodput",
    type=options.NUMBER,
    default=1.0,
    show_default=True,
    help="Share of the time that counts.",
)
@options.of_scenario
@answers()
@options.LIMIT
def cost(
    scenario: str,
    tokens: float | None,
    price: str | None,
    goodput: float,
    settings: tuple[str, ...],
    form: Form,
) -> None:
    """Days, dollars and energy of training SCENARIO.

    Of --tokens, or of the scenario's own. The exit code is 3 where the job does not fit into
    memory.
    """
    from sim.analysis.reliability.cost import cost as cost_of

    answer = cost_of(scenario, tokens=tokens, price=price, goodput=goodput, settings=settings)
    form.show(answer)
