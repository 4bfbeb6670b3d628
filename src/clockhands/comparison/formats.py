"""The verdicts as a table for a README (Markdown), all trials for spreadsheets (CSV), and the catalogue of formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from clockhands.comparison.latex import write_latex
from clockhands.comparison.plan_settings import METRICS
from clockhands.comparison.results import Comparison
from clockhands.comparison.verdicts import Verdict, format_score, judge
from clockhands.findings import choose_digits
from clockhands.findings.csv_text import write_csv

COLUMNS = ("variant", "score", "difference", "P(better)", "p", "learned", "verdict")
"""The columns of the table for a README."""


def format_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return every variant as text, the baseline first."""
    return [_make_row(verdict, comparison.plan.digits) for verdict in judge(comparison)]


def write_markdown(comparison: Comparison) -> str:
    """Return a table for a README, with its signature beneath."""
    lines = [
        _draw_bars(COLUMNS),
        _draw_bars(["---"] * len(COLUMNS)),
        *(_draw_bars(row) for row in format_rows(comparison)),
    ]
    return "\n".join([*lines, "", f"{METRICS[comparison.plan.metric]}; `{comparison.signature}`", ""])


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


def _make_row(verdict: Verdict, digits: int) -> tuple[str, ...]:
    """Return one verdict as the cells of ``COLUMNS``."""
    gap = verdict.difference
    places = digits if gap is None else choose_digits(gap.low, gap.high, digits)
    signed = "" if gap is None else f"{gap.value:+.{places}f} [{gap.low:+.{places}f}, {gap.high:+.{places}f}]"
    better = "" if verdict.probability is None else f"{verdict.probability:.2f}"
    p = "" if gap is None else "< 0.001" if gap.adjusted < 0.001 else f"{gap.adjusted:.3f}"
    return verdict.variant, format_score(verdict, digits), signed, better, p, str(verdict.learning), verdict.sentence


def _draw_bars(cells: Sequence[str]) -> str:
    """Return cells as one line of a table in Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
