"""The page itself: Bokeh's library, the figures, the text and the numbers in one file of HTML."""

from collections.abc import Mapping
from typing import Any

from bokeh.embed import components
from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined

from sim.interface.document.nodes import Document
from sim.interface.page.nodes import charts


def html(
    document: Document,
    *,
    subtitle: str,
    numbers: Mapping[str, Any],
    columns: Mapping[str, Any] | None = None,
    command: str = "sim run",
) -> str:
    """One page. `numbers` are the JSON that a `command` writes, `columns` what its sliders look
    up."""
    library = Resources(mode="inline", components=["bokeh"])  # no widgets: the page has HTML's own
    figures = {chart.name: chart.figure for chart in charts(document)}
    script, places = components(figures, wrap_script=False)
    # What is inside ours is escaped; StrictUndefined makes a typing error of a name an error.
    templates = Environment(
        loader=PackageLoader("sim.interface.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
    )
    templates.filters["kind"] = lambda node: type(node).__name__
    return templates.get_template("page.html").render(
        document=document,
        subtitle=subtitle,
        numbers=numbers,
        columns=columns,
        command=command,
        library="\n".join(library.js_raw),
        script=script,
        places=places,
    )
