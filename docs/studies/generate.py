"""Write docs/answers.md and docs/studies/*.md from the committed results of the studies, so that they cannot drift.

    python docs/studies/generate.py            # writes the pages and their pictures
    python docs/studies/generate.py --check    # exit code 1 if a page is not what this writes

``--take NAME FOLDER`` first copies the results of ``clockhands study NAME --out FOLDER`` here.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.comparison import conclude
from clockhands.comparison.folder import read_comparison
from clockhands.comparison.formats import as_markdown
from clockhands.comparison.results import Comparison
from clockhands.comparison.statistics import difference, mean_interval
from clockhands.comparison.verdicts import Verdict, format_score, judge, score_matrix
from clockhands.data import open_corpus, order_blind_ceiling
from clockhands.files import write_text
from clockhands.findings import Figure, Finding, Findings
from clockhands.studies import ORDER

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from inner_figure import inner_figure  # noqa: E402

QUESTIONS: dict[str, Any] = tomllib.loads((HERE / "questions.toml").read_text("utf8"))
SLOT = re.compile(r"\[\[(\w+)(?::(.+?))?\]\]")


def pages() -> dict[Path, str]:
    """Every page by its path."""
    results = measured()
    found = {HERE / f"{name}.md": study_page(name, one) for name, one in results.items()}
    return {**found, HERE / "README.md": index(results), HERE.parent / "answers.md": answers(results)}


def measured() -> dict[str, Comparison]:
    """The committed results, by study."""
    return {name: Comparison.from_json(path.read_text("utf8")) for name in ORDER if (path := stored(name)).is_file()}


def stored(name: str) -> Path:
    """Where the results of a study are."""
    return HERE / "results" / f"{name}.json"


def answers(results: dict[str, Comparison]) -> str:
    """The page of answers: each question, three sentences with their numbers, the picture, the command."""
    budgets = [int(one.plan.budget[1]) for name, one in results.items() if not QUESTIONS[name].get("unscored")]
    parts = ["# Answers", "", INTRODUCTION.format(fewest=min(budgets), most=max(budgets)), ""]
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
    "layer on each side and 64 channels, unless it is said) and trained for {fewest} to {most} steps, and the task "
    "is one (German number words to English, unless another is named): the direction of an effect is what carries "
    "over, not its size. Written by `python docs/studies/generate.py`."
)


def index(results: dict[str, Comparison]) -> str:
    """The list of the studies."""
    lines = [
        f"- [{QUESTIONS[name]['question']}]({name}.md), {len(one.trials)} trials, `{one.signature}`"
        for name, one in results.items()
    ]
    open_ones = [f"- {QUESTIONS[name]['question']} `clockhands study {name}`" for name in ORDER if name not in results]
    waiting = ["", "Ready, and not run yet:", "", *open_ones] if open_ones else []
    calibration = "- [Does the comparison itself tell the truth?](calibration.md)"
    return "\n".join(["# Studies", "", *lines, calibration, *waiting, ""])


def study_page(name: str, results: Comparison) -> str:
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
        *scores(name, results, findings), "## Verdict", "",
        answer(name, results), "",
        "## What would change it", "", entry["change"], "", "## The command", "", f"    clockhands study {name}", "",
    ]  # fmt: skip
    return "\n".join(body)


def scores(name: str, results: Comparison, findings: Findings) -> list[str]:
    """The tables; without the score's where a study trains too little for it to say anything."""
    if QUESTIONS[name].get("unscored"):
        return [f"`{results.signature}`", "", *_more(one for one in findings.items if one.name.startswith("inside."))]
    return [as_markdown(results), *orderings(name, results), *_more(findings.items)]


def _more(items: Iterable[Finding]) -> list[str]:
    lines = []
    for item in items:
        if item.name != "compare.verdict" and item.table.rows:
            columns, rows = _pivoted(item) if item.name == "compare.lengths" else _merged(item)
            shown = [i for i in range(len(columns)) if any(row[i] for row in rows)]
            lines += [f"### {item.question}", "", _row(columns, shown), _row(["---"] * len(columns), shown)]
            lines += [_row(row, shown) for row in rows]
            lines += ["", item.method, ""]
    return lines


def _merged(item: Finding) -> tuple[list[str], list[list[str]]]:
    """The table as text, in which a value and the two columns of its range are one cell: 4.2 [4.15, 4.25]."""
    columns = list(item.table.columns)
    firsts = [i for i in range(len(columns)) if columns[i] not in RANGE]

    def cell(row: tuple[Any, ...], i: int) -> str:
        if columns[i + 1 : i + 3] in RANGES and row[i] is not None:
            return _ranged(*row[i : i + 3])
        return _cell(row[i])

    return [columns[i] for i in firsts], [[cell(row, i) for i in firsts] for row in item.table.rows]


def _pivoted(item: Finding) -> tuple[list[str], list[list[str]]]:
    """Longer text: a row a variant, a column a split."""
    splits = list(dict.fromkeys(str(row[1]) for row in item.table.rows))
    cells: dict[str, dict[str, str]] = {}
    for variant, split, loss, low, high, _, refused in item.table.rows:
        cells.setdefault(variant, {})[split] = "refused" if refused else _ranged(loss, low, high)
    rows = [[variant, *(own.get(split, "") for split in splits)] for variant, own in cells.items()]
    exact = [row[5] for row in item.table.rows if row[5] is not None]
    beside = [f"{split}, loss" for split in splits]
    if exact and max(exact) == 0:
        beside[-1] += " (exact match: 0 % everywhere)"
    return ["variant", *beside], rows


RANGES = (["low", "high"], ["lowest seed", "highest seed"])
RANGE = {name for pair in RANGES for name in pair}


def _ranged(value: Any, low: Any, high: Any) -> str:
    if value is None or _cell(low) == _cell(high):
        return _cell(value)
    return f"{_cell(value)} [{_cell(low)}, {_cell(high)}]"


def _row(cells: Any, shown: list[int]) -> str:
    return "| " + " | ".join(str(cells[column]) for column in shown) + " |"


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return "" if value is None else str(value)


def orderings(name: str, results: Comparison) -> list[str]:
    """What the literature reports of two variants, beside what was measured here."""
    claims = QUESTIONS[name].get("ordering", ())
    if not claims:
        return []
    lines = ["### What the literature reports, and what was measured here", "", _row(ORDERING, range(4))]
    lines += [_row(["---"] * 4, range(4)), *(_row(_checked(one, results, len(claims)), range(4)) for one in claims)]
    return [
        *lines,
        "",
        "Differences are paired by seed, with simultaneous 95 % intervals (bootstrap t, Bonferroni).",
        "",
    ]


ORDERING = ("claim", "source", "measured", "verdict")


def _checked(claim: dict[str, str], results: Comparison, comparisons: int) -> tuple[str, ...]:
    """``more`` - ``less`` of what is measured: above 0 if the claim holds; a claim of equality has ``alike``."""
    first, second = claim.get("alike", (claim.get("more"), claim.get("less")))
    what = claim.get("on", "score")
    found = difference(_values(results, first, what), _values(results, second, what), comparisons)
    size = f"{first} − {second}, {what}: {found.value:+.3g} [{found.low:+.3g}, {found.high:+.3g}]"
    if "alike" in claim:
        seen = f"{found.detectable:.2g} could have been detected" if found.detectable else "the same on every item"
        verdict = "contradicted" if found.significant else f"reproduced ({seen})"
    else:
        verdict = ("reproduced" if found.value > 0 else "contradicted") if found.significant else "not shown"
    return claim["claim"], claim["source"], size, verdict


def _values(results: Comparison, name: str, what: str) -> np.ndarray:
    """Seeds × items of the metric, or seeds × 1 of the loss on a longer split, or of its growth over the test split."""
    if what == "score":
        return score_matrix(results, name)
    split = what.removesuffix(", growth")
    longer = [one.longer[split].loss for one in results.trials_of(name)]
    base = [one.scores["loss"] if what != split else 0.0 for one in results.trials_of(name)]
    return np.array([[a - b] for a, b in zip(longer, base, strict=True)])


def answer(name: str, results: Comparison) -> str:
    """The measured sentences, and what they mean where the verdicts are such."""
    kinds = {one.variant: one.kind for one in judge(results)}
    said = [
        reading["say"]
        for reading in QUESTIONS[name].get("reading", ())
        if all(kinds[variant] == kind for variant, kind in reading["when"].items())
    ]
    text = QUESTIONS[name]["answer"].replace("[[literature]]", tally(name, results))
    return " ".join([filled(text, results), *said])


def tally(name: str, results: Comparison) -> str:
    """How many of the literature's orderings came out here."""
    claims = QUESTIONS[name].get("ordering", ())
    verdicts = [_checked(one, results, len(claims))[3] for one in claims]
    counts = [f"{sum(one.startswith(begins) for one in verdicts)} {words}" for begins, words in TALLIED.items()]
    return f"{len(claims)} orderings that the literature reports {', '.join(counts[:-1])} and {counts[-1]}"


TALLIED = {"reproduced": "are reproduced here", "contradicted": "contradicted", "not shown": "could not be shown"}


def filled(text: str, results: Comparison) -> str:
    """The text with what was measured in its slots. Raises KeyError for a slot of no variant."""
    judged = {one.variant: one for one in judge(results)}
    return SLOT.sub(lambda slot: _slot(slot[1], slot[2] or "", judged, results), text)


def _slot(kind: str, rest: str, judged: dict[str, Verdict], results: Comparison) -> str:
    if kind == "ceiling":
        corpus = open_corpus(results.plan.recipe.corpus, **results.plan.recipe.corpus_options)
        return f"{100 * order_blind_ceiling(corpus.pairs('test')):.1f}"
    if kind in ("before", "after"):
        name, _, measure = rest.rpartition(":")
        return _interval([getattr(one.measured, kind)[measure] for one in results.trials_of(name)], 2)
    if kind == "longer":
        name, _, split = rest.rpartition(":")
        return _interval([one.longer[split].loss for one in results.trials_of(name)], 2)
    one = judged[rest]
    if kind == "verdict":
        return one.sentence.replace(" (", ", ").replace(")", "")
    return format_score(one, results.plan.digits)


def _interval(values: list[float], digits: int) -> str:
    """Mean and 95 % interval over seeds; a number that is the same for every seed has none."""
    mean = sum(values) / len(values)
    if max(values) - min(values) < 10**-digits / 2:
        return f"{mean:.{digits}f}"
    low, high = mean_interval(np.array(values)[:, None])
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def picture(name: str, results: Comparison) -> Figure:
    """What questions.toml asks to be drawn, or else the verdict's figure."""
    if "figure" in QUESTIONS[name]:
        return inner_figure(results, QUESTIONS[name]["figure"])
    figure = conclude(results)["compare.verdict"].figure
    assert figure is not None
    return figure


def pictures() -> None:
    """The picture of every study as SVG."""
    from clockhands.report.figures import as_file, draw

    for name in ORDER:
        if stored(name).is_file():
            figure = picture(name, Comparison.from_json(stored(name).read_text("utf8")))
            write_text(HERE / "figures" / f"{name}.svg", as_file(draw(figure, name)))


def main(arguments: list[str]) -> int:
    """Write, or check."""
    if arguments[:1] == ["--take"]:
        write_text(stored(arguments[1]), read_comparison(arguments[2]).to_json())
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
