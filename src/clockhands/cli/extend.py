"""``clockhands extend``: how far a model can read, and how it is made to read further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from clockhands.cli.common import (
    DeviceOptions,
    Opening,
    name_texts,
    open_model,
    parse_length,
    prepare,
    report_new_folder,
)
from clockhands.cli.flags import POSITIONAL, list_given, write_command
from clockhands.errors import UsageError
from clockhands.options import Count, Positive, Range, Seed

if TYPE_CHECKING:
    from clockhands.extension import ExtensionPlan, Tuning
    from clockhands.findings import Findings
    from clockhands.models import LanguageModel


@dataclass(frozen=True, kw_only=True)
class Options(Opening, DeviceOptions):
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


def make_tuning(options: Options) -> Tuning | None:
    """Return how to train, or None. Raises UsageError for options of a training that is not asked for."""
    if options.train is None:
        if said := list_given(options, ("windows", "learning_rate")):
            verb = "says" if len(said) == 1 else "say"
            raise UsageError(f"{' and '.join(said)} {verb} how to train; give --train STEPS beside")
        return None
    if options.only:
        raise UsageError("--only measure stops before training; leave out --train")
    from clockhands.extension import Tuning

    return Tuning(options.train, options.windows or "skip", learning_rate=options.learning_rate, seed=options.seed)


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
    from clockhands.extension.write import REPORT, refuse_taken

    folder = Path(options.out)
    if options.only is None:
        refuse_taken(folder, options.run)
    elif said := list_given(options, ("evaluations",)):
        raise UsageError(f"--only measure stops before the search; leave out {said[0]}")
    make_tuning(options)
    prepare(options)
    from clockhands.extension import extend, measure_only
    from clockhands.files import lock_folder
    from clockhands.progress import ProgressCounter
    from clockhands.report import show, write

    place = folder if options.only else folder / REPORT  # beside the model that is written, or alone

    def write_page(made: Findings) -> Path:
        with report_new_folder(place, quiet=options.json):
            return write(made, place)[0]

    page = place / "index.html"
    if options.only:
        model, plan = _open(options)
        with ProgressCounter() as progress:
            findings = measure_only(model, plan, progress)
        if not options.json:
            page = write_page(findings)
    else:
        with lock_folder(folder), ProgressCounter() as progress:
            refuse_taken(folder, options.run)  # another process may have written it while this one waited
            model, plan = _open(options)
            if plan.longest == plan.trained:
                raise UsageError(f"--to {options.to} is the trained length; give more, or --only measure")
            findings = extend(model, plan, folder, write_page=write_page, progress=progress)
    if options.json:
        print(findings.to_json())
    else:
        show(findings)
        print(f"\n{page}")
    return 0


def _open(options: Options) -> tuple[LanguageModel, ExtensionPlan]:
    from clockhands.extension import ExtensionPlan
    from clockhands.models import to_language_model

    model = to_language_model(open_model(options, {}, masked=True), "extend", masked=True)
    trained = model.trained_length if options.trained is None else options.trained
    if trained is None:
        raise UsageError(f"{model.source} does not say how long its trained texts were; give --trained TOKENS")
    longest = parse_length("--to", options.to, trained, "")
    if longest < trained:
        raise UsageError(
            f"--to {options.to} is {longest:,} tokens, less than the {trained:,} that the model was trained on; give a "
            "factor of 1 or more"
        )
    documents, text = _read_text(model, options)
    plan = ExtensionPlan(
        documents, text, trained, longest, options.texts, options.items, options.evaluations, options.margin,
        options.seed, make_tuning(options), write_command("extend", options, UNTOLD),
    )  # fmt: skip
    return model, plan


def _read_text(model: LanguageModel, options: Options) -> tuple[Sequence[str], str]:
    from clockhands.data import open_corpus
    from clockhands.data.readers import read_documents
    from clockhands.models import is_run
    from clockhands.runs import Run

    if options.text:
        return [read_documents(file, "file")[0] for file in options.text], name_texts(options.text)
    if is_run(options.run):
        recipe = Run.from_folder(options.run).recipe
        corpus = open_corpus(recipe.corpus, **recipe.corpus_options)
        split = next(name for name in ("test", "validation", "train") if name in corpus)
        return corpus.documents(split), f"split {split} of {corpus.description or corpus.name}"
    corpus = open_corpus("stdlib")
    return corpus.documents("test"), corpus.description
