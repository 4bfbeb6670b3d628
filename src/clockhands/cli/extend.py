"""``clockhands extend``: how far a model can read, and how it is made to read further."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from clockhands.cli.common import Device, Opening, open_model, prepare, report_new_folder
from clockhands.cli.flags import POSITIONAL, write_command
from clockhands.errors import UsageError
from clockhands.options import Count, Positive, Range, Seed, defaults_of, options_of

if TYPE_CHECKING:
    from clockhands.extension import Plan, Tuning
    from clockhands.findings import Findings
    from clockhands.models import LanguageModel


@dataclass(frozen=True, kw_only=True)
class Options(Opening, Device):
    """What is measured and made longer, and how.

    Args:
        run: a run or Hugging Face model that continues text or fills in masked tokens
        to: the longest text: tokens, or 2x the trained
        only: say how far the model reads as it is, and stop
        evaluations: factors that the search tries; 0 searches none
        train: train the chosen model so many steps
        windows: train in windows of the trained length with positions all over the new one (default), or of the new
            length
        learning_rate: of the training (default: 0.1 / d_model)
        text: what it reads (default: the run's own corpus, or Python's library)
        texts: texts whose loss is measured; a choice reads more, if short
        items: questions of each task at each length
        margin: nats per token that a length may cost
        trained: the trained length, where the model does not say it or says it wrongly
        seed: of the questions
        out: where the model and the page go
        json: print the findings as JSON; with --only measure, instead of writing a page
    """

    run: Annotated[str, "MODEL", POSITIONAL]
    to: Annotated[str, "LENGTH"] = "8x"
    only: Literal["measure"] | None = None
    evaluations: Annotated[int, Range(least=0), "N"] = 64
    train: Annotated[int | None, "STEPS"] = None
    windows: Literal["skip", "full"] | None = None
    learning_rate: Annotated[float | None, "RATE"] = None
    text: Annotated[tuple[str, ...], "FILE"] = ()
    texts: Annotated[int, Range(least=8), "N"] = 32
    items: Annotated[int, Range(least=10), "N"] = 60
    margin: Annotated[Positive, "NATS"] = 0.05
    trained: Annotated[Count | None, "TOKENS"] = None
    seed: Annotated[Seed, "N"] = 0
    out: Annotated[str, "FOLDER"] = "extended"
    json: bool = False


def validate(options: Options) -> None:
    """Raise UsageError for options that exclude each other, and for a folder that holds a model."""
    if options.only is None:
        from clockhands.extension.write import refuse_taken

        refuse_taken(Path(options.out))
    elif said := _list_said(options, ("evaluations",)):
        raise UsageError(f"--only measure stops before the search; leave out {said[0]}")
    make_tuning(options)


def _list_said(options: Options, names: Iterable[str]) -> list[str]:
    """Return those of some options whose values are not those that they have when nobody gives them."""
    usual = defaults_of(options_of(Options))
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) != usual[name]]


def make_tuning(options: Options) -> Tuning | None:
    """Return how to train, or None. Raises UsageError for options of a training that is not asked for."""
    if options.train is None:
        if said := _list_said(options, ("windows", "learning_rate")):
            verb = "says" if len(said) == 1 else "say"
            raise UsageError(f"{' and '.join(said)} {verb} how to train; give --train STEPS beside")
        return None
    if options.only:
        raise UsageError("--only measure stops before training; leave out --train")
    from clockhands.extension import Tuning

    return Tuning(options.train, options.windows or "skip", learning_rate=options.learning_rate, seed=options.seed)


def find_longest(to: str, trained: int) -> int:
    """Return the longest length. Raises UsageError for what is no length, and for one below the trained."""
    word = to.strip()
    try:
        longest = int(float(word.removesuffix("x")) * trained) if word.endswith("x") else int(word)
    except (ValueError, OverflowError):
        raise UsageError(f"--to {to}: that is neither a number of tokens nor a multiple like 8x") from None
    if longest < trained:
        raise UsageError(
            f"--to {to} is {longest:,} tokens, less than the {trained:,} that the model was trained on; give a factor "
            "of 1 or more"
        )
    return longest


UNTOLD = ("out", "json", "device", "threads", "trust_remote_code")
"""Options that the command beside the findings does not repeat."""
EXAMPLES = (
    "clockhands extend runs/stdlib --only measure --to 2x --text my.txt --texts 8 --items 10 --out measured",
    "clockhands extend llama --only measure --to 2x --text my.txt --texts 8 --items 10 --trained 64 --json",
    "clockhands extend llama --to 2x --text my.txt --texts 8 --items 10 --trained 64 --evaluations 4 --out longer",
    "clockhands extend llama --to 2x --text my.txt --texts 8 --items 10 --trained 64 --evaluations 0 --train 3 "
    "--out tuned",
)


def run(options: Options) -> int:
    """Measure how far a model reads; unless that is all, choose what makes it read further and write it."""
    validate(options)
    prepare(options)
    from clockhands.extension import extend, measure_only
    from clockhands.extension.write import refuse_taken
    from clockhands.files import lock_folder
    from clockhands.progress import ProgressCounter
    from clockhands.report import show

    page = None
    if options.only:
        model, plan = _open(options)
        with ProgressCounter() as progress:
            findings = measure_only(model, plan, progress)
        page = None if options.json else _write_page(findings, options)
    else:
        with lock_folder(Path(options.out)), ProgressCounter() as progress:
            refuse_taken(Path(options.out))  # another process may have written it while this one waited
            model, plan = _open(options)
            if plan.longest == plan.trained:
                raise UsageError(f"--to {options.to} is the trained length; give more, or --only measure")
            findings = extend(
                model, plan, Path(options.out), write_page=lambda made: _write_page(made, options), progress=progress
            )
            page = _place_page(options) / "index.html"
    if options.json:
        print(findings.to_json())
    else:
        show(findings)
        print(f"\n{page}")
    return 0


def _open(options: Options) -> tuple[LanguageModel, Plan]:
    """Open the model, and say what is to be found out about it."""
    from clockhands.extension import Plan
    from clockhands.models import to_language_model

    model = to_language_model(open_model(options, {}, masked=True), "extend", masked=True)
    trained = model.trained_length if options.trained is None else options.trained
    if trained is None:
        raise UsageError(f"{model.source} does not say how long its trained texts were; give --trained TOKENS")
    longest = find_longest(options.to, trained)
    documents, text = _read_text(model, options)
    plan = Plan(
        documents, text, trained, longest, options.texts, options.items, options.evaluations, options.margin,
        options.seed, make_tuning(options), write_command("extend", options, UNTOLD),
    )  # fmt: skip
    return model, plan


def _read_text(model: LanguageModel, options: Options) -> tuple[Sequence[str], str]:
    """Return the documents that are read, and what they are."""
    from clockhands.data import open_corpus
    from clockhands.data.readers import read_documents
    from clockhands.models import is_run
    from clockhands.runs import Run

    if options.text:
        return [read_documents(file, "file")[0] for file in options.text], f"the text of {', '.join(options.text)}"
    if is_run(options.run):
        recipe = Run.from_folder(options.run).recipe
        corpus = open_corpus(recipe.corpus, **recipe.corpus_options)
        split = next(name for name in ("test", "validation", "train") if name in corpus)
        return corpus.documents(split), f"split {split} of {corpus.description or corpus.name}"
    corpus = open_corpus("stdlib")
    return corpus.documents("test"), corpus.description


def _place_page(options: Options) -> Path:
    """Return the folder of the page: beside the model that is written, or alone."""
    from clockhands.extension.write import REPORT

    return Path(options.out) if options.only else Path(options.out) / REPORT


def _write_page(findings: Findings, options: Options) -> Path:
    """Write the page and return its path."""
    from clockhands.report import write

    folder = _place_page(options)
    with report_new_folder(folder, quiet=options.json):
        return write(findings, folder)[0]
