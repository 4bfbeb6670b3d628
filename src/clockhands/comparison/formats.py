"""The verdicts as tables for a README (Markdown) and a paper (LaTeX), all trials as CSV, and the list of formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from clockhands.comparison.findings import describe_method
from clockhands.comparison.plan import METRICS
from clockhands.comparison.results import Comparison
from clockhands.comparison.verdicts import format_score, judge
from clockhands.findings import choose_digits
from clockhands.findings.csv_text import write_csv

COLUMNS = ("variant", "score", "difference", "P(better)", "p", "learned", "verdict")
"""The columns of the table for a README."""
UNKNOWN_TO_TEX = {"√": r"$\surd$", "·": r"$\cdot$", "×": r"$\times$", "−": "$-$", "±": r"$\pm$", "χ": r"$\chi$"}


def format_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return every variant as the cells of ``COLUMNS``, the baseline first."""
    digits = comparison.plan.digits
    rows: list[tuple[str, ...]] = []
    for verdict in judge(comparison):
        signed, p, gap = "", "", verdict.difference
        if gap is not None:
            places = choose_digits(gap.low, gap.high, digits)
            signed = f"{gap.value:+.{places}f} [{gap.low:+.{places}f}, {gap.high:+.{places}f}]"
            p = "< 0.001" if gap.adjusted < 0.001 else f"{gap.adjusted:.3f}"
        better = "" if verdict.probability is None else f"{verdict.probability:.2f}"
        score = format_score(verdict, digits)
        rows.append((verdict.variant, score, signed, better, p, str(verdict.learning), verdict.sentence))
    return rows


def write_markdown(comparison: Comparison) -> str:
    """Return a table for a README, with its signature beneath."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *format_rows(comparison)]
    lines = ["| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", f"{METRICS[comparison.plan.metric]}; `{comparison.signature}`", ""])


def write_latex(comparison: Comparison) -> str:
    """Return a table with caption and label, no wider than the text, and a paragraph on the statistics."""
    from tabulate import tabulate

    plan, (kind, amount) = comparison.plan, comparison.plan.budget
    metric = METRICS[plan.metric]
    columns = ("variant", "score", "difference", "p", "learned", "verdict")
    rows = [
        (*row[:3], row[4], "{}/{}".format(*verdict.learning.counts), verdict.kind)
        for row, verdict in zip(format_rows(comparison), judge(comparison), strict=True)
    ]
    caption = (
        f"{plan.title}{'' if plan.title.endswith('?') else '.'} {metric[0].upper()}{metric[1:]}, {len(plan.seeds)} "
        f"seeds, {amount:,g} {kind} each; in brackets 95 % intervals, of differences from {plan.baseline} for all "
        "comparisons together."
    )
    label = re.sub(r"[^a-z0-9]+", "-", plan.title.lower()).strip("-") or "comparison"
    table = tabulate(rows, columns, tablefmt="latex_booktabs", disable_numparse=True)
    lines = [
        f"% {comparison.signature}",
        r"% in the preamble: \usepackage{booktabs,adjustbox}",
        r"\begin{table}", r"\centering\small", rf"\caption{{{escape(caption)}}}", rf"\label{{tab:{label}}}",
        r"\begin{adjustbox}{max width=\linewidth}", _write_signs(table), r"\end{adjustbox}", r"\end{table}", "",
        rf"\paragraph{{Statistics.}} {escape(describe_method(plan))}", "",
    ]  # fmt: skip
    return "\n".join(lines)


def escape(text: str) -> str:
    """Return text with what LaTeX would take as a command written as itself."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"}
    special |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
    return _write_signs("".join(special.get(letter, letter) for letter in text))


def _write_signs(text: str) -> str:
    """Return text with signs that LaTeX does not know as commands, and with minus signs before numbers."""
    text = re.sub(r"(?<![\w.)}-])-(?=\d)", "−", text)
    return "".join(UNKNOWN_TO_TEX.get(letter, letter) for letter in text)


def write_trials(comparison: Comparison) -> str:
    """Return every trial, one a line: for those who want to compute themselves."""
    names = list(dict.fromkeys(name for trial in comparison.trials for name in trial.scores))
    columns = ["variant", "seed", "status", "steps", "seconds", "parameters", *names, "error"]
    rows = []
    for trial in comparison.trials:
        scores = [trial.scores.get(name, "") for name in names]
        facts = (trial.steps, trial.seconds, trial.parameters)  # None is written as an empty cell
        rows.append([*trial.key, trial.status, *facts, *scores, trial.error])
    return write_csv(columns, rows, "\n")


FORMATS: Mapping[str, Callable[[Comparison], str]] = {
    "markdown": write_markdown,
    "latex": write_latex,
    "csv": write_trials,
}
