"""A study as a TOML file: a question, what people answer, the plan that measures it, and the answer with slots.

::

    question = "Why sine and cosine?"         # in the words of those who ask
    place = 5                                 # among the studies, as a reader should meet them
    claims = ["Any vectors would do."]        # what people answer
    design = "One property at a time ..."     # what is compared, and why so
    answer = "The sine alone [[score:sine alone]] % ([[verdict:sine alone]])."
    change = "Longer text."                   # what could change the answer
    unscored = true                           # optional: the models are trained too little for their scores to count
    minutes = 6                               # optional: of a trial on one core, for the list

    [plan]                                    # a plan, as `clockhands compare` reads it
    recipe = "recipes/numbers.toml"
    seeds = 5
    despite = { baseline = "..." }            # optional: why a task that is refused (soundness.py) is used

    [[reading]]                               # a sentence that is said only where the verdicts are such
    when = { "sine alone" = "equivalent" }
    ordered = [{ more = "both", less = "none" }]   # optional: and where these are reproduced, as [[ordering]] says
    say = "So the cosine is not needed here."

    [[ordering]]                              # what the literature reports of two variants, to be checked
    claim = "A learned table does as well as the sinusoid."
    source = "Vaswani et al. 2017, table 3 (E)"
    alike = ["learned", "sinusoidal"]         # or: more = "sinusoidal", less = "none"
    on = "score"                              # or a split of longer text: "4 × 65 tokens", "4 × 65 tokens, growth";
                                              # or what was measured inside: "before: MEASURE", "after: MEASURE"

    [figure]                                  # optional: see docs/tools/answers/study_figure.py

    [size.gpu]                                # optional: what differs in this size, see scaling.py

    [text]                                    # optional: text that the user has to give, see GivenText

The slots of an answer are filled from the trials, so that no figure is typed: ``[[score:VARIANT]]``,
``[[verdict:VARIANT]]``, ``[[before:VARIANT:MEASURE]]``, ``[[after:VARIANT:MEASURE]]``, ``[[longer:VARIANT:SPLIT]]``
(the loss on longer text), ``[[items]]`` (of the test split), ``[[ceiling]]`` (the best that a reader who is blind to
order could score), ``[[literature]]`` (how many of the orderings are reproduced, contradicted and undecided).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from clockhands.comparison import Plan
from clockhands.comparison.plan import make_plan_from_tables
from clockhands.comparison.verdicts import VerdictKind
from clockhands.errors import ConfigError, DataError, UsageError, describe_unknown
from clockhands.findings import join_words
from clockhands.reading import read_toml, refuse_strange_file
from clockhands.runs.recipe import vary_recipe
from clockhands.studies.scaling import SIZES, scale_plan


@dataclass(frozen=True)
class GivenText:
    """Files by name with their SHA-256, and where they can be had."""

    source: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    def bind(self, plan: Plan, beside: Path, folder: Path | None) -> Plan:
        """Return the plan with its text in ``folder``; None leaves it where the recipe names it, ``beside``.

        Raises UsageError where a folder is given and the study reads no text, and as ``check_files``.
        """
        if not self.files:
            if folder is not None:
                raise UsageError("this study makes its own text: leave --text out")
            return plan
        here = (folder or beside).absolute()
        bound = replace(plan, files=dict(self.files), folder=here)
        if folder is None:
            return bound
        self.check_files(folder)
        moved = {
            f"data.{key}": str(here / Path(value).relative_to(beside.absolute()))
            for key, value in plan.recipe.tables["data"].items()
            if isinstance(value, str) and Path(value).is_relative_to(beside.absolute())
        }
        return replace(bound, recipe=vary_recipe(plan.recipe, moved))

    def check_files(self, folder: Path) -> None:
        """Raise DataError for a file that cannot be read, UsageError for one that is not the study's."""
        missing = [name for name in self.files if not (folder / name).is_file()]
        if missing:
            raise DataError(f"{folder} does not hold {join_words(missing)}; {self.advice}")
        other = []
        for name, digest in self.files.items():
            refuse_strange_file(folder / name, DataError)
            try:
                with (folder / name).open("rb") as stream:
                    same = hashlib.file_digest(stream, "sha256").hexdigest() == digest
            except OSError as fault:
                raise DataError(f"{folder / name} cannot be read: {fault}") from fault
            other += [] if same else [name]
        if other:
            raise UsageError(
                f"{join_words(other)} in {folder} is not the text of this study (its SHA-256 differs); {self.advice}"
            )

    def require(self, folder: str | None) -> None:
        """Raise UsageError where the study needs text and no folder is given."""
        if self.files and folder is None:
            raise UsageError(f"this study needs text that does not come with Clockhands; {self.advice}")

    @property
    def advice(self) -> str:
        """What the user can do about it."""
        return (
            f"get {join_words(self.files)} from {self.source} and name their folder with --text; to compare on your "
            "own text, use clockhands compare"
        )


def read_given_text(tables: Mapping[str, object], source: str) -> GivenText:
    """Return what ``[text]`` of a study's file says. Raises ConfigError for other keys."""
    if tables and set(tables) != {"source", "files"}:
        raise ConfigError(["[text] holds source and files, and nothing else"], source)
    return GivenText(**tables)  # type: ignore[arg-type]


RECIPES = "recipes"
"""Where the recipes of studies lie, in the folder of the studies."""
MINUTES_A_TRIAL = 0.1
"""On one core of an ordinary laptop, for the list alone; ``--dry-run`` measures."""


@dataclass(frozen=True)
class Conclusion:
    """A sentence of the answer: said where variants have the verdicts of ``when``, and ``ordered`` is reproduced."""

    when: Mapping[str, VerdictKind]
    say: str
    ordered: tuple[Ordering, ...] = ()


@dataclass(frozen=True)
class Ordering:
    """What is said of two variants, by the literature or a text: ``more`` has a higher value, or both are ``alike``.

    ``on``: the score, the loss on a split of longer text, (``SPLIT, growth``) its growth over the test split, or
    (``before: MEASURE``, ``after: MEASURE``) what was measured inside the model before or after training.
    ``in_every_seed``: all that is said is that it is so in each pair of seeds, whatever the interval of the mean.
    """

    claim: str = ""
    source: str = ""
    more: str = ""
    less: str = ""
    alike: tuple[str, ...] = ()
    on: str = "score"
    in_every_seed: bool = False

    @property
    def variants(self) -> tuple[str, str]:
        """The two, the one first that is said to have the higher value."""
        return (self.alike[0], self.alike[1]) if self.alike else (self.more, self.less)


@dataclass(frozen=True)
class Study:
    """A question that people ask, the plan that measures its answer, and the answer with slots for what is measured."""

    name: str
    question: str
    place: int
    claims: tuple[str, ...]
    design: str
    answer: str
    change: str
    plan: Mapping[str, Any]
    folder: Path
    unscored: bool = False
    readings: tuple[Conclusion, ...] = ()
    orderings: tuple[Ordering, ...] = ()
    figure: Mapping[str, Any] | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)
    text: GivenText = field(default_factory=GivenText)
    minutes_a_trial: float = MINUTES_A_TRIAL

    def make_plan(self, seeds: int | None = None, size: str = "cpu", text: Path | None = None) -> Plan:
        """Return the plan in a size of `SIZES`, with another number of seeds if one is given.

        ``text``: the folder of the text that the user gives. Raises ConfigError with its faults, and as ``GivenText``.
        """
        source = f"the study {self.name}"
        scaled = self.plan
        if size != "cpu":
            scaled = scale_plan(self.plan, self.sizes, size, self.folder, f"{source}, size {size}")
        tables = {**scaled, "title": self.question, **({} if seeds is None else {"seeds": seeds})}
        plan = make_plan_from_tables(tables, self.folder, source)
        return self.text.bind(plan, self.folder / RECIPES, text)

    @cached_property
    def planned(self) -> Plan:
        """The plan as it stands in the file, made once: every variant of it is checked."""
        return self.make_plan()

    @property
    def despite(self) -> Mapping[str, str]:
        """Why its task is used although something speaks against it, by what that is."""
        return self.plan.get("despite", {})

    @property
    def trials(self) -> int:
        """How many trainings it takes, counted without checking the plan."""
        grid = self.plan.get("vary", {}).values()
        variants = len(self.plan.get("variant", ())) + (math.prod(map(len, grid)) if grid else 0)
        return int(self.plan["seeds"]) * variants

    @property
    def minutes(self) -> int:
        """About how long it takes on one core, at least 1."""
        return max(1, round(self.trials * self.minutes_a_trial))


REQUIRED = ("question", "place", "claims", "design", "answer", "change", "plan")
KEYS = (*REQUIRED, "unscored", "minutes", "reading", "ordering", "figure", "size", "text")


def read_study(path: str | Path) -> Study:
    """Return the study in a file. Raises DataError if it cannot be read, ConfigError with the faults of its keys."""
    path = Path(path)
    tables = read_toml(path, "the study")
    faults = [describe_unknown("key", key, KEYS) for key in tables if key not in KEYS]
    faults += [f"{key} is missing" for key in REQUIRED if key not in tables]
    faults += [describe_unknown("size", size, SIZES) for size in tables.get("size", ()) if size not in SIZES]
    if "cpu" in tables.get("size", ()):
        faults.append("[size.cpu] changes nothing: that size is as planned, so write it into [plan]")
    kinds = [kind for reading in tables.get("reading", ()) for kind in reading["when"].values()]
    faults += [
        describe_unknown("verdict", kind, get_args(VerdictKind)) for kind in kinds if kind not in get_args(VerdictKind)
    ]
    if faults:
        raise ConfigError(faults, str(path))
    return Study(
        name=path.stem,
        folder=path.parent,
        claims=tuple(tables["claims"]),
        readings=tuple(
            Conclusion(**{**reading, "ordered": tuple(Ordering(**order) for order in reading.get("ordered", ()))})
            for reading in tables.get("reading", ())
        ),
        orderings=tuple(
            Ordering(**{**ordering, "alike": tuple(ordering.get("alike", ()))})
            for ordering in tables.get("ordering", ())
        ),
        sizes=tables.get("size", {}),
        text=read_given_text(tables.get("text", {}), str(path)),
        minutes_a_trial=tables.get("minutes", MINUTES_A_TRIAL),
        **{key: tables[key] for key in ("question", "place", "design", "answer", "change", "plan")},
        **{key: tables[key] for key in ("unscored", "figure") if key in tables},
    )
