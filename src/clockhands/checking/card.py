"""What a README says of a model that was checked: a line for a badge, and a card in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from clockhands.checking.result import Result, list_reliances
from clockhands.checking.verdict.outcome import Outcome, sentence
from clockhands.findings import Light
from clockhands.streams import quote_code

_COUNTED = (
    ("PASS", "pass"),
    ("FAIL", "fail by the model's own code"),
    ("LIBRARY", "fail by code of the library"),
    ("WARN", "ask for care"),
    ("PROPERTY", "are properties of the scheme"),
    ("N/A", "do not apply"),
)
_LINKED = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)")


def describe_badge(result: Result) -> tuple[str, Light]:
    """Return the message of a badge and its light: what passed, what failed, and with which transformers."""
    passed, failed, shared = (result.count(verdict) for verdict in ("PASS", "FAIL", "LIBRARY"))
    version = " · ".join(f"{name} {number}" for name, number in result.versions.items() if name == "transformers")
    parts = ["not checked" if result.fault else f"{failed} fail, {passed} pass" if failed else f"{passed} pass"]
    parts += [f"{shared} by the library"] if shared else []
    light: Light = "bad" if result.failed_itself else "warn" if result.failed else "good"
    return " · ".join(filter(None, [*parts, version])), light


def describe_versions(result: Result) -> str:
    """Return the versions of what was checked in one line."""
    return ", ".join(f"{name} {version}" for name, version in result.versions.items())


def make_card(result: Result) -> str:
    """Return a section for a README: what this model gets wrong, what its library does, and what may be relied on."""
    lines = [f"## How {_escape(result.model)} handles position", ""]
    if result.fault:
        lines += [f"It could not be checked: {_escape(result.fault)}", ""]
    else:
        counts = ", ".join(f"{count} {words}" for verdict, words in _COUNTED if (count := result.count(verdict)))
        lines += [f"Position enters by: {_escape(result.scheme)}. Of {len(result.outcomes)} checks {counts}.", ""]
        for heading, verdict in (("What this model gets wrong", "FAIL"), ("What the library does", "LIBRARY")):
            causes = _list(outcome for outcome in result.outcomes if outcome.verdict == verdict)
            lines += [f"### {heading}", "", *(causes or ["Nothing that the checks look for."]), ""]
        lines += ["### What you may rely on", "", "| use | safe |", "|---|---|"]
        for reliance in list_reliances(result.outcomes):
            untried = f" (not tried: {', '.join(reliance.untried)})" if reliance.untried else ""
            if reliance.safe is not None:
                lines.append(f"| {reliance.use} | {'yes' if reliance.safe else 'no'}{untried} |")
        lines.append("")
    measured = f"Measured with {describe_versions(result)}: {quote_code(result.command)}."
    lines.append(measured if result.command else f"With {describe_versions(result)}.")
    return "\n".join(lines) + "\n"


def _list(outcomes: Iterable[Outcome]) -> list[str]:
    """Return one line for each cause; the checks that share it stand together."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.cause or outcome.check, []).append(outcome)
    lines = []
    for group in groups.values():
        names = ", ".join(quote_code(outcome.check) for outcome in group)
        text = sentence(group[0]).removeprefix(group[0].verdict).strip()
        linked = _LINKED.sub(r"[\1#\2](https://github.com/\1/issues/\2)", _escape(text))
        lines.append(f"- {names}: {linked}")
    return lines


def _escape(text: str) -> str:
    """Return text that stands in Markdown as it is: a message of a library may hold anything."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", " ".join(text.split()))
