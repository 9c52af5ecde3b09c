"""The page itself: Bokeh's library, the figures, the text and the numbers in one file of HTML."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bokeh.embed import components
from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined

from sim.interface.page.section import Figure, Section


def html(
    title: str,
    *,
    subtitle: str,
    figures: Sequence[Figure],
    warnings: Iterable[str],
    sections: Sequence[Section],
    numbers: Mapping[str, Any],
    columns: Mapping[str, Any] | None = None,
    command: str = "sim run",
) -> str:
    """One page. `numbers` are the JSON that a `command` writes, `columns` what its sliders look
    up."""
    charts = [chart for section in sections for chart in section.charts]
    library = Resources(mode="inline", components=["bokeh"])  # no widgets: the page has HTML's own
    script, places = components({chart.name: chart.figure for chart in charts}, wrap_script=False)
    # What is inside ours is escaped; StrictUndefined makes a typing error of a name an error.
    templates = Environment(
        loader=PackageLoader("sim.interface.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
    )
    return templates.get_template("page.html").render(
        title=title,
        subtitle=subtitle,
        figures=figures,
        warnings=list(warnings),
        sections=sections,
        numbers=numbers,
        columns=columns,
        command=command,
        library="\n".join(library.js_raw),
        script=script,
        places=places,
    )
