"""The verdict table in the languages of papers and spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence

from clockhands.comparison.asked import METRICS
from clockhands.comparison.folder import Results
from clockhands.comparison.verdicts import Judged, judge, scored
from clockhands.findings import digits_apart

COLUMNS = ("variant", "score", "difference", "P(better)", "p", "seeds", "verdict")
# fmt: off
SPECIAL = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
           "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "√": r"$\surd$",
           "·": r"$\cdot$", "×": r"$\times$", "−": r"$-$"}
# fmt: on


def rows(results: Results) -> list[tuple[str, ...]]:
    """Every variant as text, the baseline first."""
    return [_row(one, results.plan.digits) for one in judge(results)]


def markdown(results: Results) -> str:
    """A table for a README, with its signature beneath."""
    lines = [_bars(COLUMNS), _bars(["---"] * len(COLUMNS)), *(_bars(row) for row in rows(results))]
    return "\n".join([*lines, "", f"{METRICS[results.plan.metric]}; `{results.signature}`", ""])


def latex(results: Results) -> str:
    """A ``tabular`` (booktabs) for a paper."""
    lines = [" & ".join(map(_escape, row)) + r" \\" for row in rows(results)]
    head = " & ".join(map(_escape, COLUMNS)) + r" \\"
    body = [r"\toprule", head, r"\midrule", *lines, r"\bottomrule"]
    return "\n".join([
        f"% {results.signature}", rf"\begin{{tabular}}{{{'l' * len(COLUMNS)}}}", *body, r"\end{tabular}", "",
    ])  # fmt: skip


def as_csv(results: Results) -> str:
    """Every trial, one a line: for those who want to compute themselves."""
    out = io.StringIO()
    names = list(dict.fromkeys(name for one in results.trials for name in one.get("scores", {})))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["variant", "seed", "status", "steps", "seconds", "parameters", *names, "error"])
    for one in results.trials:
        facts = [one.get(key, "") for key in ("steps", "seconds", "parameters")]
        scores = [one.get("scores", {}).get(name, "") for name in names]
        writer.writerow([one["variant"], one["seed"], one["status"], *facts, *scores, one.get("error", "")])
    return out.getvalue()


FORMATS: Mapping[str, Callable[[Results], str]] = {"markdown": markdown, "latex": latex, "csv": as_csv}


def _row(one: Judged, digits: int) -> tuple[str, ...]:
    gap = one.difference
    places = digits if gap is None else digits_apart(gap.low, gap.high, digits)
    signed = "" if gap is None else f"{gap.value:+.{places}f} [{gap.low:+.{places}f}, {gap.high:+.{places}f}]"
    better = "" if one.probability is None else f"{one.probability:.2f}"
    p = "" if gap is None else "< 0.001" if gap.adjusted < 0.001 else f"{gap.adjusted:.3f}"
    return one.name, scored(one, digits), signed, better, p, f"{one.finished} of {one.planned}", one.verdict


def _bars(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _escape(text: str) -> str:
    return "".join(SPECIAL.get(letter, letter) for letter in text)
