"""The one door to HTML: Jinja2 templates in ``templates``. Whatever a template writes is escaped.

Every page is one file that asks for nothing: the style sheet and the script stand in it, and its policy allows no other
source. The policy names the script by its hash, so that no other can run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from clockhands.report.text import (
    LIGHTS,
    MEANINGS,
    describe_measured,
    format_amount,
    format_interval,
    format_number,
    format_quantity,
    scale_unit,
    use_minus,
)
from clockhands.streams import replace_controls

GENERATOR = '<meta name="generator" content="Clockhands">'
"""The tag by which a page is known to be ours, so that it may be replaced."""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The content security policy of every page: nothing is loaded, sent or run."""


def render(template: str, **values: Any) -> str:
    """Return the template with the values in it. Raises jinja2.UndefinedError for a value that is missing."""
    return make_environment().get_template(template).render(**values)


def make_policy(script: str = "", *, workers: bool = False) -> str:
    """Return the content security policy of a page that runs this script and no other, or none at all.

    ``workers``: whether the script may start workers from texts that it holds itself.
    """
    if not script:
        return _POLICY
    digest = base64.b64encode(hashlib.sha256(script.encode("utf8")).digest()).decode("ascii")
    allowed = f"{_POLICY}; script-src 'sha256-{digest}'"
    return f"{allowed}; worker-src blob:" if workers else allowed


@cache
def make_environment() -> Environment:
    """Make the Jinja2 environment of all templates, with our filters."""
    environment = Environment(
        loader=PackageLoader("clockhands.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        # Control characters are replaced in all that is not markup made by a template; Jinja2 escapes it afterwards.
        finalize=lambda value: value if isinstance(value, Markup) else replace_controls(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "amount": format_amount,
        "number": format_number,
        "quantity": format_quantity,
        "span": format_interval,
        "unit": lambda unit: scale_unit(unit)[1],
        "lines": _escape_lines,
        "measured": describe_measured,
        "minus": use_minus,
        "prose": _render_prose,
    }
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.globals |= {"lights": LIGHTS, "meanings": MEANINGS}
    return environment


@cache
def read_asset(name: str) -> str:
    """Read a style sheet or a script of ``templates``."""
    return files("clockhands.report").joinpath("templates", name).read_text(encoding="utf8")


def _escape_lines(text: object) -> Markup:
    """Return text as HTML, its line breaks kept."""
    return Markup(html.escape(replace_controls(text, lines=True)))


def _render_prose(text: str) -> Markup:
    """Return plain text as HTML: blank lines separate paragraphs, ``backticks`` become code, web addresses links.

    So do arXiv numbers.
    """
    paragraphs = []
    for part in filter(None, re.split(r"\n\s*\n", text.strip())):
        escaped = re.sub(r"``?([^`]+)``?", r"<code>\1</code>", str(_escape_lines(part)))
        link = r'<a href="\g<0>" rel="noreferrer">\g<0></a>'
        escaped = re.sub(r"https://[^\s<>&;,)]+[^\s<>&;,).]", link, escaped)
        number = r'<a href="https://arxiv.org/abs/\1" rel="noreferrer">\g<0></a>'
        escaped = re.sub(r"\barXiv:(\d{4}\.\d{4,5})", number, escaped)
        paragraphs.append(f"<p>{escaped}</p>")
    return Markup("".join(paragraphs))
