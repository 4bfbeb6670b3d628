"""The page of answers as Markdown: a list of one-sentence answers, then each question with its evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from exact import FACTS
from kept import Facts, Measured
from measurement_notes import describe_measurements
from rests import check_rests, count_comparisons, count_growths, judge_once

from clockhands.studies import STUDIES
from clockhands.studies.answer import describe_missing
from clockhands.studies.literature import describe_gap
from clockhands.studies.question import EXACT, ORDERED, SLOT, Claim, Question
from clockhands.studies.slots import fill_slots
from clockhands.studies.soundness import describe_earlier_plan

TOPICS = {
    "input": "The input: words and positions",
    "layers": "Order, layers and length",
    "rotation": "Rotary embedding",
}
VERDICTS = {
    "true": "True",
    "false": "False",
    "only if": "Only if",
    "undecided": "Undecided",
    "unmeasured": "Not measured here",
}


def write_answers(questions: Iterable[Question], measured: Measured, facts: Facts, guide: str = "") -> str:
    """Return the page; ``guide`` tells how to read it, after the contents.

    Raises ConfigError where the results do not say what a sentence says.
    """
    ordered = sorted(questions, key=lambda question: (list(TOPICS).index(question.topic), question.place))
    check_rests(ordered, measured, facts)
    parts = ["# Answers", "", INTRODUCTION, ""]
    parts += _write_contents(ordered)
    parts += [fill(guide.strip(), measured, facts), ""] if guide else []
    described: dict[str, str] = {}
    for question in ordered:
        parts += [fill(line, measured, facts, question) for line in _write_question(question, measured, described)]
    parts += _write_further(ordered, measured)
    parts += [fill(line, measured, facts) for line in _write_claims(ordered)]
    return "\n".join(parts)


INTRODUCTION = (
    "What people ask about the input of a Transformer, each with a one-sentence answer, the mechanism, something to "
    "run and a table of what was measured, or computed where no trained model is needed. Written by "
    "`python docs/tools/answers/generate.py`."
)


def _write_contents(questions: Sequence[Question]) -> list[str]:
    parts = []
    for topic, title in TOPICS.items():
        own = [question for question in questions if question.topic == topic]
        if own:
            parts += [f"**{title}**", ""]
            parts += [f"- [{question.asked}](#{question.name}) {question.answer}" for question in own]
            parts += [""]
    return [*parts, "What people say, claim by claim: [the list](#claims).", ""]


def _write_question(question: Question, measured: Measured, described: dict[str, str]) -> list[str]:
    """Return the lines of a question; ``described``: which question describes a study, of those written so far."""
    parts = [
        f'<a id="{question.name}"></a>', "", f"## {question.asked}", "", f"**{question.answer}**", "",
        question.why, "", f"![{question.caption}](studies/figures/mechanism-{question.name}.svg)", "",
        f"*{question.caption}*", "", "**Try it**", "", "```python", question.attempt.code.strip(), "```", "",
        "```text", question.attempt.prints.strip(), "```", "",
    ]  # fmt: skip
    if question.rows:
        note = [question.note, ""] if question.note else []
        parts += [f"**{_find_title(question)}**", "", *note, *write_table(question.columns, question.rows), ""]
        parts += _fold_measurements(question, measured)
    parts += _describe_earlier(question, measured)
    if question.claims:
        parts += ["**People also say**", "", *map(_write_claim, question.claims), ""]
    between = "\n\n" if question.limits.startswith("- ") else " "  # a list needs an empty line before it
    parts += [f"**Limits, and what else was measured.**{between}{question.limits}", ""]
    return parts + _write_details(question, measured, described)


def _find_title(question: Question) -> str:
    """Return the title of a table: what was computed stands apart from what was measured in trained models."""
    slots = [slot for cell in question.cells for slot in SLOT.finditer(cell)]
    computed = all(slot[1] == EXACT and slot[2].partition(".")[0] in FACTS for slot in slots)
    return "What was computed" if computed else "What was measured"


def write_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return ["| " + " | ".join(cells) + " |" for cells in (columns, ["---"] * len(columns), *rows)]


def _fold_measurements(question: Question, measured: Measured) -> list[str]:
    """Return what is folded away under a table: its further rows, and how each study that it draws on was measured."""
    described = describe_measurements(question, measured)
    more = [*write_table(question.columns, question.more), ""] if question.more else []
    if not described and not more:
        return []
    title = "More trainings" if more else "How this was measured: steps, seeds, margins"
    if more and described:
        title += ", and how all of them were measured: steps, seeds, margins"
    return [f'<details markdown="1"><summary>{title}</summary>', "", *more, *described, "</details>", ""]


def _describe_earlier(question: Question, measured: Measured) -> list[str]:
    """What the reader must know of results that are not of today's plan."""
    sentences = [describe_earlier_plan(STUDIES[name], measured[name]) for name in question.studies if name in measured]
    return [part for sentence in sentences if sentence for part in (f"*{sentence}*", "")]


def _write_claim(claim: Claim) -> str:
    anchor = f'<a id="claim-{claim.number}"></a>' if claim.number is not None else ""
    end = "" if claim.verdict == "only if" else "."
    # Four spaces, because a list inside a list needs as many where the site is built.
    because = claim.because.replace("\n- ", "\n    - ")
    return f"- {anchor}“{claim.says}” **{VERDICTS[claim.verdict]}{end}** {because}"


def _write_details(question: Question, measured: Measured, described: dict[str, str]) -> list[str]:
    """What is folded away: further words, and for each study its answer in figures with its page and command."""
    folded = [question.details] if question.details else []
    for name in question.studies:
        study = STUDIES[name]
        command = f"`clockhands study {name}{' --text FOLDER' if study.text.files else ''}`"
        if name in described:
            folded.append(
                f"[{study.question}](studies/{name}.md): described in [an earlier answer](#{described[name]})."
            )
        elif name in measured:
            described[name] = question.name
            missing = f" {describe_missing(measured[name])}" if measured[name].missing else ""
            folded.append(f"[{study.question}](studies/{name}.md): {study.design}{missing} Again with {command}.")
        else:
            folded.append(f"{study.question} That is not measured yet; the study of it is ready: {command}.")
    if not folded:
        return []
    return ['<details markdown="1"><summary>Details</summary>', "", "\n\n".join(folded), "", "</details>", ""]


def _write_further(questions: Iterable[Question], measured: Measured) -> list[str]:
    """Studies that no answer here draws on."""
    drawn = {name for question in questions for name in question.studies}
    lines = [
        f"- [{STUDIES[name].question}](studies/{name}.md)" for name in measured if name in STUDIES and name not in drawn
    ]
    return ["## Further studies", "", *lines, ""] if lines else []


def _write_claims(questions: Iterable[Question]) -> list[str]:
    """The numbered claims with their verdicts, as links."""
    numbered = {claim.number: claim for question in questions for claim in question.claims if claim.number is not None}
    if not numbered:
        return []
    rows = [
        (str(number), f"[{numbered[number].says}](#claim-{number})", _shorten_verdict(numbered[number]))
        for number in sorted(numbered)
    ]
    return ['<a id="claims"></a>', "", "## Claim by claim", "", *write_table(("", "claim", "verdict"), rows), ""]


def _shorten_verdict(claim: Claim) -> str:
    """Return the verdict in a few words: of one that holds on a condition, the condition too."""
    verdict = VERDICTS[claim.verdict].lower()
    if claim.verdict != "only if":
        return verdict
    condition = re.split(r"[:.](?=\s|$)", claim.because.strip(), maxsplit=1)[0]
    return f"{verdict} {condition}".replace("|", "\\|")


def fill(text: str, measured: Measured, facts: Facts, question: Question | None = None) -> str:
    """Return the text with what was measured and computed in its slots. Raises KeyError for a slot of nothing.

    ``question``: the one that the text is of, over whose comparisons and growths their intervals hold together.
    """
    named = {pair.name: pair for pair in question.ordered if pair.name} if question else {}
    growths = count_growths(question) if question else 1
    studies = {pair.study for pair in question.ordered} if question else set()
    counts = {name: count_comparisons(question, name, measured[name]) for name in studies} if question else {}

    def replace(slot: re.Match[str]) -> str:
        name, rest = slot[1], slot[2]
        if name == EXACT:
            return format_fact(rest, facts)
        if name == ORDERED:
            pair = named[rest]
            return describe_gap(pair.ordering, measured[pair.study], counts[pair.study])
        comparison = measured[name]
        verdicts = {verdict.variant: verdict for verdict in judge_once(name, comparison)}
        return fill_slots(f"[[{rest}]]", comparison, verdicts, growths)

    return SLOT.sub(replace, text)


def format_fact(rest: str, facts: Facts) -> str:
    """Return a computed value as text; ``FACT.KEY:2`` has two decimals, and whole numbers have none."""
    path, _, digits = rest.partition(":")
    name, _, key = path.partition(".")
    value = facts[name][key]
    if isinstance(value, str):
        return value
    if digits:
        return f"{value:,.{int(digits)}f}".replace("-", "−")
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
