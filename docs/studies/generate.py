"""Write docs/answers.md and docs/studies/*.md from the committed results of the studies, so that they cannot drift.

    python docs/studies/generate.py            # writes the pages and their pictures
    python docs/studies/generate.py --check    # exit code 1 if a page is not what this writes

``--take NAME FOLDER`` first copies the results of ``clockhands study NAME --out FOLDER`` here.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from clockhands.comparison import conclude
from clockhands.comparison.formats import markdown
from clockhands.comparison.judge import Judged, judge
from clockhands.comparison.store import Results, read_results
from clockhands.comparison.studies import ORDER
from clockhands.data import open_corpus, order_blind_ceiling
from clockhands.files import write_text
from clockhands.findings import Finding

HERE = Path(__file__).parent
QUESTIONS: dict[str, Any] = tomllib.loads((HERE / "questions.toml").read_text("utf8"))
SLOT = re.compile(r"\[\[(\w+)(?::(.+?))?\]\]")


def pages() -> dict[Path, str]:
    """Every page by its path."""
    results = {name: Results.from_json(path.read_text("utf8")) for name in ORDER if (path := stored(name)).is_file()}
    found = {HERE / f"{name}.md": study_page(name, one) for name, one in results.items()}
    return {**found, HERE / "README.md": index(results), HERE.parent / "answers.md": answers(results)}


def stored(name: str) -> Path:
    """Where the results of a study are."""
    return HERE / "results" / f"{name}.json"


def answers(results: dict[str, Results]) -> str:
    """The page of answers: each question, three sentences with their numbers, the picture, the command."""
    parts = ["# Answers", "", INTRODUCTION, ""]
    for name in ORDER:
        entry = QUESTIONS[name]
        parts += [f"## {entry['question']}", ""]
        if name in results:
            picture = f"![{entry['question']}](studies/figures/{name}.svg)"
            more = f"[How it was measured](studies/{name}.md); again with `clockhands study {name}`."
            parts += [answer(name, results[name]), "", picture, "", more, ""]
        else:
            parts += [f"Not measured yet. The study is ready: `clockhands study {name}`.", ""]
    return "\n".join(parts)


INTRODUCTION = (
    "Measured answers to the questions that people ask about positional encodings. Every number comes from a study "
    "that anyone can run again; brackets hold 95 % intervals, over seeds and test items. The models are tiny (one "
    "layer on each side, 64 channels) and the task is one (German number words to English, unless another is named): "
    "the direction of an effect is what carries over, not its size. Written by `python docs/studies/generate.py`."
)


def index(results: dict[str, Results]) -> str:
    """The list of the studies."""
    lines = [
        f"- [{QUESTIONS[name]['question']}]({name}.md), {len(one.trials)} trials, `{one.signature}`"
        for name, one in results.items()
    ]
    open_ones = [f"- {QUESTIONS[name]['question']} `clockhands study {name}`" for name in ORDER if name not in results]
    waiting = ["", "Ready, and not run yet:", "", *open_ones] if open_ones else []
    calibration = "- [Does the comparison itself tell the truth?](calibration.md)"
    return "\n".join(["# Studies", "", *lines, calibration, *waiting, ""])


def study_page(name: str, results: Results) -> str:
    """Question, claims, design, result, verdict, what would change it, the command."""
    entry, findings = QUESTIONS[name], conclude(results)
    claims = [f"- “{claim}”" for claim in entry["claims"]]
    plan = results.plan
    kind, amount = plan.budget
    setting = (
        f"{entry['design']} {len(plan.variants)} variants × {len(plan.seeds)} seeds, {amount:g} {kind} each, equal "
        f"{plan.match}; corpus *{plan.recipe.corpus}*, d_model {plan.recipe.model.d_model}."
    )
    body = [
        f"# {entry['question']}", "", "## What people answer", "", *claims, "", "## Design", "", setting, "",
        findings["compare.verdict"].method, "", "## Result", "", f"![{entry['question']}](figures/{name}.svg)", "",
        markdown(results), *_more(findings.items), "## Verdict", "", answer(name, results), "",
        "## What would change it", "", entry["change"], "", "## The command", "", f"    clockhands study {name}", "",
    ]  # fmt: skip
    return "\n".join(body)


def _more(items: tuple[Finding, ...]) -> list[str]:
    lines = []
    for item in items:
        if item.name != "compare.verdict" and item.table.rows and not item.name.startswith("compare.costs"):
            shown = [column for column in range(len(item.table.columns)) if _any(item, column)]
            lines += [f"### {item.question}", "", _row(item.table.columns, shown), _row(["---"] * 99, shown)]
            lines += [_row([_cell(cell) for cell in row], shown) for row in item.table.rows]
            lines += ["", item.method, ""]
    return lines


def _any(item: Finding, column: int) -> bool:
    return any(row[column] is not None for row in item.table.rows)


def _row(cells: Any, shown: list[int]) -> str:
    return "| " + " | ".join(str(cells[column]) for column in shown) + " |"


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)


def answer(name: str, results: Results) -> str:
    """The measured sentences, and what they mean where the verdicts are such."""
    verdicts = {one.name: one.verdict for one in judge(results)}
    said = [
        reading["say"]
        for reading in QUESTIONS[name].get("reading", ())
        if all(verdicts[variant].startswith(begins) for variant, begins in reading["when"].items())
    ]
    return " ".join([filled(QUESTIONS[name]["answer"], results), *said])


def filled(text: str, results: Results) -> str:
    """The text with what was measured in its slots. Raises KeyError for a slot of no variant."""
    judged = {one.name: one for one in judge(results)}
    return SLOT.sub(lambda slot: _slot(slot[1], slot[2] or "", judged, results), text)


def _slot(kind: str, rest: str, judged: dict[str, Judged], results: Results) -> str:
    if kind == "ceiling":
        corpus = open_corpus(results.plan.recipe.corpus, **results.plan.recipe.corpus_options)
        return f"{100 * order_blind_ceiling(corpus.pairs('test')):.1f}"
    if kind in ("before", "after"):
        name, _, measure = rest.rpartition(":")
        found = [one["inside"][kind][measure] for one in results.of(name)]
        return f"{sum(found) / len(found):.2f}"
    one = judged[rest]
    if kind == "verdict":
        return one.verdict
    interval = f" [{one.interval[0]:.1f}, {one.interval[1]:.1f}]" if one.interval else ""
    return "no" if one.score is None else f"{one.score:.1f}{interval}"


def pictures() -> None:
    """The verdict's figure of every study as SVG."""
    from clockhands.report.draw import draw
    from clockhands.report.svg import as_file

    for name in ORDER:
        if stored(name).is_file():
            figure = conclude(Results.from_json(stored(name).read_text("utf8")))["compare.verdict"].figure
            assert figure is not None
            write_text(HERE / "figures" / f"{name}.svg", as_file(draw(figure, name)))


def main(arguments: list[str]) -> int:
    """Write, or check."""
    if arguments[:1] == ["--take"]:
        write_text(stored(arguments[1]), read_results(arguments[2]).to_json())
    found = pages()
    if arguments == ["--check"]:
        stale = [path for path, text in found.items() if not path.is_file() or path.read_text("utf8") != text]
        print("\n".join(f"{path} is not what generate.py writes" for path in stale), end="\n" if stale else "")
        return int(bool(stale))
    for path, text in found.items():
        write_text(path, text)
    pictures()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
