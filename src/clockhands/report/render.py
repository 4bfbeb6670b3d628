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

from clockhands.report.text import LIGHTS, MEANINGS, number, quantity, span, visible

GENERATOR = '<meta name="generator" content="Clockhands">'
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(template: str, **values: Any) -> str:
    """Return the template with the values in it. Raises jinja2.UndefinedError for a value that is missing."""
    return _environment().get_template(template).render(**values)


def render_page(template: str, title: str, *, script: str = "", style: str = "", **values: Any) -> str:
    """Return a whole page. ``script`` names a file of ``templates``; ``style`` is added to the style sheet."""
    program = _asset(script).replace("</", "<\\/") if script else ""
    sheet = _asset("style.css") + style
    return render(
        template,
        title=title,
        policy=policy(program),
        style=Markup(sheet),
        script=Markup(program),
        **values,
    )


def policy(script: str = "") -> str:
    """Return the content security policy of a page that runs this script and no other, or none at all."""
    if not script:
        return _POLICY
    digest = base64.b64encode(hashlib.sha256(script.encode("utf8")).digest()).decode("ascii")
    return f"{_POLICY}; script-src 'sha256-{digest}'"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("clockhands.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "quantity": quantity, "span": span, "lines": _lines, "prose": _prose}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.globals |= {"lights": LIGHTS, "meanings": MEANINGS}
    return environment


@cache
def _asset(name: str) -> str:
    return files("clockhands.report").joinpath("templates", name).read_text(encoding="utf8")


def _finalize(value: Any) -> Any:
    """Control characters as signs, in all that is not markup made by a template; Jinja2 escapes it afterwards."""
    return value if isinstance(value, Markup) else visible(value)


def _lines(text: object) -> Markup:
    """Text whose line breaks stay."""
    return Markup(html.escape(visible(text, lines=True)))


def _prose(text: str) -> Markup:
    """Plain text as HTML: blank lines separate paragraphs, ``backticks`` become code, web addresses become links."""
    paragraphs = [part for part in re.split(r"\n\s*\n", text.strip()) if part]
    return Markup("".join(f"<p>{_inline(str(_lines(part)))}</p>" for part in paragraphs))


def _inline(escaped: str) -> str:
    escaped = re.sub(r"``?([^`]+)``?", r"<code>\1</code>", escaped)
    link = r'<a href="\g<0>" rel="noreferrer">\g<0></a>'
    escaped = re.sub(r"https://[^\s<>&;,)]+[^\s<>&;,).]", link, escaped)
    return re.sub(
        r"\barXiv:(\d{4}\.\d{4,5})", r'<a href="https://arxiv.org/abs/\1" rel="noreferrer">\g<0></a>', escaped
    )
