"""The page of answers as Markdown: a list of one-sentence answers, then each question with its evidence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from clockhands.comparison import Comparison, Plan
from clockhands.comparison.score_matrix import score_matrix
from clockhands.comparison.statistics import MIN_SEEDS
from clockhands.studies import STUDIES
from clockhands.studies.answer import describe_missing, fill_slots
from clockhands.studies.guards import Facts, Measured, check_guards, count_comparisons, count_growths, judge_once
from clockhands.studies.literature import describe_gap
from clockhands.studies.question import EXACT, ORDERED, SLOT, Claim, Question
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

    Raises ConfigError where the results do not say what a sentence says, or a sentence has no guard.
    """
    ordered = sorted(questions, key=lambda question: (list(TOPICS).index(question.topic), question.place))
    check_guards(ordered, measured, facts)
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
    "run and, for most questions that need trained models, a table of what was measured. Written by "
    "`python docs/studies/generate.py`."
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
        parts += ["**What was measured**", "", *note, *write_table(question.columns, question.rows), ""]
        parts += _fold_measurements(question, measured)
    parts += _describe_earlier(question, measured)
    if question.claims:
        parts += ["**People also say**", "", *map(_write_claim, question.claims), ""]
    between = "\n\n" if question.limits.startswith("- ") else " "  # a list needs an empty line before it
    parts += [f"**Limits, and what else was measured.**{between}{question.limits}", ""]
    return parts + _write_details(question, measured, described)


def write_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return ["| " + " | ".join(cells) + " |" for cells in (columns, ["---"] * len(columns), *rows)]


def _fold_measurements(question: Question, measured: Measured) -> list[str]:
    """Return what is folded away under a table: its further rows, and how each study that it draws on was measured."""
    described = _describe_measurements(question, measured)
    more = [*write_table(question.columns, question.more), ""] if question.more else []
    if not described and not more:
        return []
    title = "More trainings" if more else "How this was measured: steps, seeds, margins"
    if more and described:
        title += ", and how all of them were measured: steps, seeds, margins"
    return [f'<details markdown="1"><summary>{title}</summary>', "", *more, *described, "</details>", ""]


def _describe_measurements(question: Question, measured: Measured) -> list[str]:
    """Return how each study was measured that the cells of a table draw on."""
    slots = [slot for cell in question.cells for slot in SLOT.finditer(cell)]
    shown = {(slot[1], slot[2].partition(":")[2]) for slot in slots if slot[2].startswith(("verdict:", "kind:"))}
    judged = Counter(name for name, variant in shown if name in measured and variant != measured[name].plan.baseline)
    names = dict.fromkeys(slot[1] for slot in slots)
    lines = [describe_measurement(name, measured[name], judged[name]) for name in names if name in measured]
    return [*(f"- {line}" for line in lines), ""] if lines else []


def describe_measurement(name: str, comparison: Comparison, judged: int) -> str:
    """Return how a study was measured: task, size, seeds and items; if any is ``judged``, margin and comparisons too.

    ``judged``: how many of the comparisons with the baseline the reader sees; the intervals hold for all of the study.
    """
    plan = comparison.plan
    study, _, size = name.partition(".")
    study = f"[{study}](studies/{study}.md)" if not size else f"{study} --scale {size}"
    kind, amount = plan.budget
    items = score_matrix(comparison, plan.baseline).shape[1]
    margin = f", equal within ±{plan.margin_text}"
    verdicts = f"{margin}, {_describe_family(name, comparison, judged)}" if judged else ""
    text = ", each with a text of its own" if plan.redraw_text else ""
    precision = ", computed in bf16" if plan.recipe.training.precision == "bf16" else ""
    unit = "stretches or documents of the test text" if plan.metric == "loss" else "test items"
    counted = "" if STUDIES[name.partition(".")[0]].unscored else f", {items:,} {unit}"
    return (
        f"{study}: corpus {plan.recipe.corpus}, {_describe_widths(plan)}, {amount:,g} {kind}{precision}, "
        f"{_count_seeds(comparison)} seeds{text}{counted}{verdicts}"
    )


def _describe_family(name: str, comparison: Comparison, judged: int) -> str:
    """Return how many models were compared with the baseline, in intervals that hold together and by other tests."""
    others = len(comparison.plan.variants) - 1
    gaps = [verdict.difference for verdict in judge_once(name, comparison) if verdict.difference is not None]
    together = sum(gap.seeds >= MIN_SEEDS for gap in gaps)  # those of fewer seeds have intervals of their own
    tested = f", {together} of them by intervals that hold together" if 1 < together < others else ""
    tested = " together" if together == others > 1 else tested
    shown = "" if judged == others else f"; {judged} {'is' if judged == 1 else 'are'} shown"
    return f"{'one' if others == 1 else others} compared with the baseline{tested}{shown}"


def _describe_widths(plan: Plan) -> str:
    """Return the width of the models, or from which to which they are."""
    own = plan.recipe.model.d_model
    widths = sorted({variant.overrides.get("model.d_model", own) for variant in plan.variants})
    return f"width {widths[0]}" if len(widths) == 1 else f"widths {widths[0]} to {widths[-1]:,}"


def _count_seeds(comparison: Comparison) -> str:
    """Return the number of seeds, and of a comparison that has not ended the most that a variant has so far."""
    most = max(len(comparison.get_trials(variant.name)) for variant in comparison.plan.variants)
    planned = len(comparison.plan.seeds)
    return f"{most} of {planned} planned" if comparison.missing else f"{planned}"


def _describe_earlier(question: Question, measured: Measured) -> list[str]:
    """What the reader must know of results that are not of today's plan."""
    sentences = [describe_earlier_plan(STUDIES[name], measured[name]) for name in question.studies if name in measured]
    return [part for sentence in sentences if sentence for part in (f"*{sentence}*", "")]


def _write_claim(claim: Claim) -> str:
    anchor = f'<a id="claim-{claim.number}"></a>' if claim.number is not None else ""
    end = "" if claim.verdict == "only if" else "."
    return f"- {anchor}“{claim.says}” **{VERDICTS[claim.verdict]}{end}** {claim.because}"


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
    condition = re.split(r"[:.](?= |$)", claim.because.strip(), maxsplit=1)[0]
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
