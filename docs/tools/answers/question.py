"""A question that people ask and its answer as a TOML file, from which its page is written.

::

    asked = "Why is the embedding multiplied by √d_model?"   # in the words of those who ask
    place = 1                                    # among the questions
    topic = "input"                              # input, layers or rotation: the part of the page
    answer = "Because ..."                       # one sentence of at most 15 words that says because
    short = "..."                                # the same in at most 12 words, for the list of questions
    why = "..."                                  # three sentences, with the formula
    caption = "..."                              # what the picture of the mechanism shows
    limits = "..."                               # where the answer does not hold; several points as a list, "- ..."
    studies = ["scale"]                          # those that measure it; none if it is computed alone
    details = "..."                              # optional: what is folded away
    longer = "4 × 65 tokens"                     # optional: on which text "grows" and "holds" are judged; the longest

    [rests.scale]                                # optional: the verdicts without which the answer falls
    "1, shared" = "worse"                        # or several: ["later", "equivalent"]

    [[ordered]]                                  # optional: two variants that the text compares
    study = "how-far"
    claim = "Without positions the loss is higher than with rotary embedding."
    more = "none"                                # or: alike = ["none", "rope"], undecided = ["none", "rope"]
    less = "rope"
    on = "4 × 65 tokens"                         # optional, as in an ordering of a study
    name = "none above rope"                     # optional: a text shows the difference as [[ordered/none above rope]]

    [[numbers]]                                  # optional: numbers that the text compares, the highest first
    claim = "Words hardly use the directions of positions."
    descending = ["encoder.words in them by chance", "encoder.words in them"]   # FACT.KEY, STUDY/SLOT, or a limit

    [try]                                        # what a reader can run in 20 seconds
    code = "..."
    prints = "..."

    [table]                                      # over tasks and sizes: effect and interval
    note = "..."                                 # optional: what its words mean, above the table
    columns = ["task and size", "..."]
    rows = [["...", "[[scale/score:√d, shared]]"]]
    more = [["...", "[[scale.wide/score:√d, shared]]"]]   # optional: rows of the same columns that are folded away

    [[claim]]                                    # what people also say
    number = 2                                   # optional: in the list of claims
    says = "It makes positions small."
    verdict = "depends"                          # true, false, depends, undecided
    on = "the start"                             # of one that depends: on what
    cost = "an hour of two cores"                # of one that is undecided: what deciding it would take
    short = "..."                                # the reason in one sentence, for the page
    because = "..."                              # the evidence: a sentence or two, then a list if it is long
    rests = { scale = { "1, shared" = "worse" } }

No measured number is typed: ``[[STUDY/SLOT]]`` is a slot of a study's answer (`study.py`), and ``[[exact/FACT.KEY:2]]``
a value of `FACTS` with so many decimals; ``[[ordered/NAME]]`` is the difference of a comparison, the first variant
minus the second, with its interval. What a sentence says of variants stands in ``rests``, ``ordered`` or ``numbers``
too: where the results say something else, the page is not written (`docs/tools/answers/rests.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import clockhands.studies
from clockhands.comparison.verdicts import VerdictKind
from clockhands.errors import ConfigError, describe_unknown
from clockhands.reading import read_toml
from clockhands.studies.study import Ordering

QUESTIONS = Path(clockhands.studies.__file__).parent / "questions"
Judgement = Literal["true", "false", "depends", "undecided"]
"""Undecided: what was measured allows both, or nothing was measured that could tell."""
Topic = Literal["input", "layers", "rotation"]
MOST_WORDS, MOST_SHORT = 15, 12
"""The most words of an answer, so that it can be said back after one reading, and of its short form."""

SLOT = re.compile(r"\[\[([\w.-]+)/(.+?)\]\]", re.DOTALL)
"""What a text has in place of a measured number: the study, or "exact", and what of it."""
EXACT = "exact"
ORDERED = "ordered"
"""What stands in a slot in place of a study for the difference of two variants that ``[[ordered]]`` names."""
Rest: TypeAlias = VerdictKind | Literal["later", "grows", "holds", "more", "less"]
Rests: TypeAlias = Mapping[str, Mapping[str, Rest | Sequence[Rest]]]
"""Verdicts by study and variant, without which a sentence falls; "later": it reaches the target later (`answer.py`);
"grows", "holds": its loss on longer text (`gaps.py`)."""


@dataclass(frozen=True)
class Pair:
    """Two variants of a study as a text compares them, and the verdict without which the text falls."""

    study: str
    ordering: Ordering
    verdict: Literal["reproduced", "undecided"] = "reproduced"
    name: str = ""


@dataclass(frozen=True)
class Numbers:
    """Numbers as a text compares them: each, with its interval, is above the next."""

    claim: str
    descending: Sequence[str]


@dataclass(frozen=True)
class Claim:
    """What people say, whether it is true or on what that depends, the reason in a sentence, and the evidence."""

    says: str
    verdict: Judgement
    because: str
    number: int | None = None
    short: str = ""
    on: str = ""
    cost: str = ""
    rests: Rests = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """Code that a reader can run, and what it prints."""

    code: str
    prints: str


@dataclass(frozen=True)
class Question:
    """A question, its one-sentence answer, and what supports and limits it; texts have slots for what is measured."""

    name: str
    asked: str
    place: int
    topic: Topic
    answer: str
    short: str
    why: str
    caption: str
    limits: str
    attempt: Example
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    claims: tuple[Claim, ...] = ()
    studies: tuple[str, ...] = ()
    details: str = ""
    rests: Rests = field(default_factory=dict)
    ordered: tuple[Pair, ...] = ()
    numbers: tuple[Numbers, ...] = ()
    note: str = ""
    more: tuple[tuple[str, ...], ...] = ()
    longer: str = ""

    @property
    def cells(self) -> list[str]:
        """The cells of the table, those of folded rows too."""
        return [cell for row in (*self.rows, *self.more) for cell in row]


JUDGEMENTS = get_args(Judgement)
REQUIRED = ("asked", "place", "topic", "answer", "short", "why", "caption", "limits", "try")
KEYS = (*REQUIRED, "table", "claim", "studies", "details", "longer", "rests", "ordered", "numbers")


def read_questions(folder: str | Path | None = None) -> dict[str, Question]:
    """Return the questions of a folder (default: the built-in ones) by name. Raises as `read_question` does."""
    paths = sorted((QUESTIONS if folder is None else Path(folder)).glob("*.toml"))
    return {path.stem: read_question(path) for path in paths}


def read_question(path: str | Path) -> Question:
    """Return the question in a file. Raises DataError if it cannot be read, ConfigError with all of its faults."""
    path = Path(path)
    tables = read_toml(path, "the question")
    faults = [describe_unknown("key", key, KEYS) for key in tables if key not in KEYS]
    faults += [f"{key} is missing" for key in REQUIRED if key not in tables]
    faults = faults or _check_texts(tables)
    if faults:
        raise ConfigError(faults, str(path))
    table = tables.get("table", {"columns": (), "rows": ()})
    return Question(
        name=path.stem,
        attempt=Example(**tables["try"]),
        columns=tuple(table["columns"]),
        rows=tuple(map(tuple, table["rows"])),
        more=tuple(map(tuple, table.get("more", ()))),
        note=table.get("note", ""),
        claims=tuple(Claim(**claim) for claim in tables.get("claim", ())),
        studies=tuple(tables.get("studies", ())),
        ordered=tuple(_read_pair(**order) for order in tables.get("ordered", ())),
        numbers=tuple(Numbers(**numbers) for numbers in tables.get("numbers", ())),
        **{key: tables[key] for key in REQUIRED if key != "try"},
        **{key: tables[key] for key in ("details", "longer", "rests") if key in tables},
    )


def _read_pair(study: str, claim: str, undecided: Sequence[str] = (), name: str = "", **order: Any) -> Pair:
    """Return two variants that a text compares; ``undecided``: the two are shown neither to differ nor to be equal."""
    if undecided:
        return Pair(study, Ordering(claim, alike=tuple(undecided), **order), "undecided", name)
    return Pair(study, Ordering(claim, **{**order, "alike": tuple(order.get("alike", ()))}), name=name)


def _check_texts(tables: Mapping[str, Any]) -> list[str]:
    """Return the faults of the answer, of the rows and of the verdicts."""
    faults = [
        f"{key} has {words} words; at most {most} can be said back after one reading"
        for key, most in (("answer", MOST_WORDS), ("short", MOST_SHORT))
        for words in (len(tables[key].split()),)
        if words > most
    ]
    if re.search(r"[()\[\]{}]", tables["answer"]):
        faults.append("answer has a bracket; say it in plain words, and put what it held into why")
    if not re.fullmatch(r"[^.?!]*(?:\.(?=\d)[^.?!]*)*\.", tables["answer"]):
        faults.append("answer must be one sentence, with one full stop at its end")
    if "because" not in tables["answer"].lower():
        faults.append("answer does not say because; give the reason")
    table = tables.get("table", {})
    width = len(table.get("columns", ()))
    faults += [
        f"a row of the table has {len(row)} cells and there are {width} columns"
        for row in [*table.get("rows", ()), *table.get("more", ())]
        if len(row) != width
    ]
    if table.get("more") and not table.get("rows"):
        faults.append("the table has folded rows, more, and no rows; give it rows that are seen")
    names = [order["name"] for order in tables.get("ordered", ()) if "name" in order]
    faults += [f"two comparisons have the name {name!r}" for name in sorted({*names}) if names.count(name) > 1]
    if tables["topic"] not in get_args(Topic):
        faults.append(describe_unknown("topic", tables["topic"], get_args(Topic)))
    claims = tables.get("claim", ())
    for verdict, key, what in (("depends", "on", "on what"), ("undecided", "cost", "what deciding it would take")):
        faults += [
            f"claim {claim['number']}: the verdict is {verdict!r}, and {key} is missing: say {what}"
            for claim in claims
            if claim["verdict"] == verdict and not claim.get(key)
        ]
    verdicts = {claim["verdict"] for claim in claims}
    return faults + [describe_unknown("verdict", verdict, JUDGEMENTS) for verdict in sorted(verdicts - {*JUDGEMENTS})]
