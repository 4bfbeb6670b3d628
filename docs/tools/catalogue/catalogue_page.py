"""The catalogue of schemes as one page whose rows are filtered by what is typed and chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import ChoiceLoader, FileSystemLoader
from markupsafe import Markup

from clockhands.report.render import make_environment, make_policy, read_asset

HERE = Path(__file__).parent

LEAD = (
    "Each row is one scheme, under its default options. Follow a name to its equation, options, source and picture. "
    "Time: of attention alone, forward, divided by that without positions. Parameters: of one instance, d_model 512, "
    "8 heads."
)
"""What stands above the table."""


def make_catalogue_page(columns: Sequence[str], rows: Sequence[Sequence[str]], filters: Sequence[str]) -> str:
    """Return the page of a table, whose first column is the name of a Markdown file beside it.

    ``filters`` are the columns to choose by: each gets a list of the values in it, which commas separate.
    """
    choices = []
    for name in filters:
        column = list(columns).index(name)
        values = sorted({value for row in rows for value in row[column].split(", ") if value})
        choices.append((column, name, values))
    program = (HERE / "catalogue.js").read_text("utf8").replace("</", "<\\/")
    environment = make_environment()
    environment = environment.overlay(loader=ChoiceLoader([FileSystemLoader(HERE), environment.loader]))
    return environment.get_template("catalogue.html").render(
        title="Every way to encode position",
        policy=make_policy(program),
        style=Markup(read_asset("style.css")),
        script=Markup(program),
        lead=LEAD,
        columns=columns,
        rows=rows,
        choices=choices,
    )
