"""The pages of the answers as Markdown: the list of questions, a page for each, and a page of its evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from exact import FACTS
from gaps import describe_gap
from kept import Facts, Measured, judge_once
from measurement_notes import describe_earlier_plan, describe_measurements, describe_missing
from page_slots import fill_slot
from question import EXACT, ORDERED, SLOT, Claim, Question
from rests import check_rests, count_comparisons, count_growths

from clockhands.comparison import Comparison
from clockhands.studies import STUDIES

TOPICS = {
    "input": "The input: words and positions",
    "layers": "Order, layers and length",
    "rotation": "Rotary embedding",
}
FIRST = ("order-at-all", "why-not-the-index", "why-sine-and-cosine", "sum-or-concatenate", "scale")
"""The questions that are read first, in this order."""
CHANNELS = "../studies/figures/mechanism-{}.svg"
ROUNDING = 1e-6
"""What is smaller is an error of rounding: its power of ten is told."""
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LINK = re.compile(r"\]\((#|studies/|schemes/)([^)]*)\)")
TRY = re.compile(r"\nTry(?:, after (`.+`))?: ")
"""Before the command that a reader can run, and what has to be run before it."""
PLAIN = re.compile(r"([−+]?\d[\d,]*(?:\.\d+)?(?:e[-−]?\d+)?)(?: to ([−+]?\d[\d,]*(?:\.\d+)?) over)?")


def write_answers(
    questions: Iterable[Question], measured: Measured, facts: Facts, bodies: Mapping[str, str], guide: str = ""
) -> dict[str, str]:
    """Return the pages by their place: one of each question, its evidence, the list of questions and the claims.

    ``bodies``: by question, what stands between its picture and what people say; ``guide`` tells how evidence is read.
    Raises ConfigError where the results do not say what a sentence says.
    """
    ordered = sorted(questions, key=lambda question: (list(TOPICS).index(question.topic), question.place))
    check_rests(ordered, measured, facts)
    owners = {claim.number: question.name for question in ordered for claim in question.claims}

    def write(lines: Iterable[str], question: Question | None = None) -> str:
        return "\n".join(_relink(fill(line, measured, facts, question), owners) for line in lines)

    pages = {"index.md": write(_write_index(ordered))}
    described: dict[str, str] = {}
    for question in ordered:
        pages[f"{question.name}.md"] = write(_write_page(question, bodies[question.name]), question)
        evidence = _write_evidence(question, measured, described)
        pages[f"evidence/{question.name}.md"] = write(evidence, question)
    pages["evidence/reading.md"] = write([f"# How to read the evidence\n\n{guide.strip()}\n"])
    pages["evidence/claims.md"] = write([*_write_claims(ordered), *_write_further(ordered, measured)])
    return pages


def _relink(text: str, owners: Mapping[int | None, str]) -> str:
    """Return a text of an evidence page with its links from there: to a question, a claim, a study or a scheme."""

    def rewrite(link: re.Match[str]) -> str:
        kind, rest = link[1], link[2]
        if kind != "#":
            return f"](../../{kind}{rest})"
        claim = re.fullmatch(r"claim-(\d+)", rest)
        return f"]({owners[int(claim[1])]}.md#{rest})" if claim else f"]({rest}.md)"

    return LINK.sub(rewrite, text)


def _write_index(questions: Sequence[Question]) -> list[str]:
    """The questions with their answers in a line, in the order in which to read them; and what is undecided."""
    named = {question.name: question for question in questions}
    parts = ["# Questions and answers", "", "**These five first**", ""]
    parts += [f"{place}. {_write_line(named[name])}" for place, name in enumerate(FIRST, 1) if name in named]
    for topic, title in TOPICS.items():
        own = [question for question in questions if question.topic == topic and question.name not in FIRST]
        parts += ["", f"**{title}**", "", *(f"- {_write_line(question)}" for question in own)] if own else []
    undecided = [claim for question in questions for claim in question.claims if claim.verdict == "undecided"]
    parts += ["", "**Not decided**, and what deciding it would take", ""]
    parts += [f"- “{claim.says}” {claim.cost[0].upper()}{claim.cost[1:]}." for claim in undecided]
    return [*parts, "", "What people say, [claim by claim](evidence/claims.md).", ""]


def _write_line(question: Question) -> str:
    return f"[{question.asked}]({question.name}.md) {question.short}"


def _write_page(question: Question, body: str) -> list[str]:
    """The page of a question: at most 350 words, with the evidence behind a link."""
    text, before, command = TRY.split(body.strip())
    return [
        f"# {question.asked}", "", f"**{question.answer}**", "",
        f"![{question.caption}]({CHANNELS.format(question.name)})", "", text.strip(), "",
        *(["## What people say", "", *map(_write_claim, question.claims), ""] if question.claims else []),
        "## Try it", "", *([f"After {before}:", ""] if before else []), "```sh", command, "```", "",
        '<details markdown="1"><summary>The same in Python</summary>', "",
        "```python", question.attempt.code.strip(), "```", "", "```text", question.attempt.prints.strip(), "```", "",
        "</details>", "", '<details markdown="1"><summary>The evidence</summary>', "",
        *([*write_table(question.columns, question.rows), ""] if question.rows else []),
        f"Seeds, tests, margins and limits: [the evidence](evidence/{question.name}.md).", "", "</details>", "",
    ]  # fmt: skip


def _write_evidence(question: Question, measured: Measured, described: dict[str, str]) -> list[str]:
    """The evidence of a question; ``described``: which question describes a study, of those written so far."""
    parts = [
        f"# The evidence: {question.asked}",
        "",
        f"[The answer](../{question.name}.md) · [how to read this](reading.md)",
        "",
    ]
    parts += [question.why, ""]
    if question.rows:
        note = [question.note, ""] if question.note else []
        parts += [f"**{_find_title(question)}**", "", *note, *write_table(question.columns, question.rows), ""]
        parts += _fold_measurements(question, measured)
    parts += _describe_earlier(question, measured)
    if question.claims:
        parts += ["**People also say**", "", *map(_write_judged, question.claims), ""]
    between = "\n\n" if question.limits.startswith("- ") else " "  # a list needs an empty line before it
    parts += [f"**Limits, and what else was measured.**{between}{question.limits}", ""]
    return parts + _write_details(question, measured, described)


def describe_verdict(claim: Claim) -> str:
    """Return a verdict in words: of one that depends, on what."""
    return f"Depends: on {claim.on}" if claim.verdict == "depends" else claim.verdict.capitalize()


def _write_claim(claim: Claim) -> str:
    anchor = f'<a id="claim-{claim.number}"></a>' if claim.number is not None else ""
    return f"- {anchor}“{claim.says}” **{describe_verdict(claim)}.** {claim.short}"


def _write_judged(claim: Claim) -> str:
    # Four spaces, because a list inside a list needs as many where the site is built.
    because = claim.because.replace("\n- ", "\n    - ")
    anchor = f'<a id="claim-{claim.number}"></a>' if claim.number is not None else ""
    return f"- {anchor}“{claim.says}” **{describe_verdict(claim)}.** {because}"


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


def _write_details(question: Question, measured: Measured, described: dict[str, str]) -> list[str]:
    """What is folded away: further words, and for each study its answer in figures with its page and command."""
    folded = [question.details] if question.details else []
    for name in question.studies:
        study = STUDIES[name]
        command = f"`clockhands study {name}{' --text FOLDER' if study.text.files else ''}`"
        if name in described:
            folded.append(
                f"[{study.question}](studies/{name}.md): described with [another answer](#{described[name]})."
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
    """The numbered claims with their verdicts, as links to the pages."""
    numbered = {claim.number: (claim, question) for question in questions for claim in question.claims if claim.number}
    rows = [
        (
            str(number),
            f"[{claim.says}](../{question.name}.md#claim-{number})".replace("|", "\\|"),
            describe_verdict(claim),
        )
        for number, (claim, question) in sorted(numbered.items())
    ]
    return ["# Claim by claim", "", *write_table(("number", "claim", "verdict"), rows), ""]


def fill(text: str, measured: Measured, facts: Facts, question: Question | None = None) -> str:
    """Return the text with what was measured and computed in its slots. Raises KeyError for a slot of nothing.

    A slot that ends in ``|1`` has the number alone, with so many decimals and no interval; ``|%`` a share in percent,
    ``|range`` the least and the largest of all seeds.

    ``question``: the one that the text is of, over whose comparisons and growths their intervals hold together.
    """
    named = {pair.name: pair for pair in question.ordered if pair.name} if question else {}
    growths = count_growths(question) if question else 1
    studies = {pair.study for pair in question.ordered} if question else set()
    counts = {name: count_comparisons(question, name, measured[name]) for name in studies} if question else {}

    def replace(slot: re.Match[str]) -> str:
        name, (rest, _, wanted) = slot[1], slot[2].partition("|")
        if wanted == "range":
            return _find_range_of_seeds(measured[name], rest.partition(":")[2])
        text = write(name, rest)
        return make_plain(text, wanted) if wanted else text

    def write(name: str, rest: str) -> str:
        if name == EXACT:
            return format_fact(rest, facts)
        if name == ORDERED:
            pair = named[rest]
            return describe_gap(pair.ordering, measured[pair.study], counts[pair.study])
        comparison = measured[name]
        verdicts = {verdict.variant: verdict for verdict in judge_once(name, comparison)}
        return fill_slot(rest, comparison, verdicts, growths)

    return SLOT.sub(replace, text)


def make_plain(text: str, wanted: str) -> str:
    """Return the first number of a text without its interval, in percent or with so many decimals.

    >>> [make_plain("0.57 [0.52, 0.62]", "%"), make_plain("worse by 0.041 nats [0.019, 0.064]", "2")]
    ['57', '0.04']
    >>> make_plain("0.7 to 34.7 over its seeds, of which 2 of 5 learned", "0")
    '1–35'
    """
    found = PLAIN.search(text)
    if found is None:
        raise ValueError(f"{text!r} has no number")
    values = [float(number.replace("−", "-").replace(",", "")) for number in found.groups() if number]
    if wanted == "%":
        return "–".join(f"{100 * value:.0f}" for value in values)
    digits = int(wanted.removeprefix("a"))
    values = [abs(value) for value in values] if wanted.startswith("a") else values
    return "–".join(f"{value:,.{digits}f}" for value in values).replace("-", "−")


def _find_range_of_seeds(comparison: Comparison, variant: str) -> str:
    """Return the lowest and the highest mean of the trainings of a variant, as whole numbers."""
    means = [float(trial.items_N.mean()) for trial in comparison.get_trials(variant)]
    return f"{min(means):.0f}–{max(means):.0f}"


def format_fact(rest: str, facts: Facts) -> str:
    """Return a computed value as text; ``FACT.KEY:2`` has two decimals, whole numbers none, rounding one digit."""
    path, _, digits = rest.partition(":")
    name, _, key = path.partition(".")
    value = facts[name][key]
    if isinstance(value, str):
        return value
    if digits:
        return f"{value:,.{int(digits)}f}".replace("-", "−")
    if 0 < abs(value) < ROUNDING:
        mantissa, _, power = f"{value:.0e}".partition("e")
        return f"{mantissa} × 10{str(int(power)).translate(RAISED)}".replace("-", "−")
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
