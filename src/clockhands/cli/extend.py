"""``clockhands extend``: how far a model can read, and how it is made to read further."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clockhands.cli.common import prepare, report_new_folder
from clockhands.cli.extend_options import arguments, find_longest, make_tuning, validate, write_command
from clockhands.cli.positions import open_model
from clockhands.errors import UsageError

if TYPE_CHECKING:
    from clockhands.extension import Plan
    from clockhands.findings import Findings
    from clockhands.models import LanguageModel
    from clockhands.progress import ProgressCounter

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "clockhands extend runs/stdlib --only measure --to 2x --text my.txt --texts 8 --items 10 --out measured",
    "clockhands extend llama --only measure --to 2x --text my.txt --texts 8 --items 10 --trained 64 --json",
    "clockhands extend llama --to 2x --text my.txt --texts 8 --items 10 --trained 64 --evaluations 4 --out longer",
    "clockhands extend llama --to 2x --text my.txt --texts 8 --items 10 --trained 64 --evaluations 0 --train 3 "
    "--out tuned",
)


def run(options: argparse.Namespace) -> int:
    """Measure how far a model reads; unless that is all, choose what makes it read further and write it."""
    validate(options)
    prepare(options)
    if options.only:
        return _measure(options)
    from clockhands.extension.write import refuse_taken
    from clockhands.locking import lock_folder
    from clockhands.progress import ProgressCounter

    with lock_folder(Path(options.out)), ProgressCounter() as progress:
        refuse_taken(Path(options.out))  # another process may have written it while this one waited
        findings = _extend(options, progress)
        return _show(findings, _place_page(options) / "index.html", options)


def _measure(options: argparse.Namespace) -> int:
    """Measure a model as it is; write the page, or print the findings."""
    from clockhands.extension import measure_only
    from clockhands.progress import ProgressCounter

    model, plan = _open(options)
    with ProgressCounter() as progress:
        findings = measure_only(model, plan, progress)
    page = None if options.json else _write_page(findings, options)
    return _show(findings, page, options)


def _extend(options: argparse.Namespace, progress: ProgressCounter) -> Findings:
    """Choose what makes a model of text read further, write it, and return what was found."""
    from clockhands.extension import extend

    model, plan = _open(options)
    if plan.longest == plan.trained:
        raise UsageError(f"--to {options.to} is the trained length; give more, or --only measure")
    return extend(
        model, plan, Path(options.out), write_page=lambda findings: _write_page(findings, options), progress=progress
    )


def _open(options: argparse.Namespace) -> tuple[LanguageModel, Plan]:
    """Open the model, and say what is to be found out about it."""
    from clockhands.extension import Plan
    from clockhands.generation import to_language_model

    model = to_language_model(open_model(options, {}, masked=True), "extend", masked=True)
    trained = _find_trained(model, options)
    longest = find_longest(options.to, trained)
    documents, text = _read_text(model, options)
    plan = Plan(
        documents, text, trained, longest, options.texts, options.items, options.evaluations, options.margin,
        options.seed, make_tuning(options), write_command(options),
    )  # fmt: skip
    return model, plan


def _find_trained(model: LanguageModel, options: argparse.Namespace) -> int:
    """Return the trained length. Raises UsageError where nobody says it."""
    trained = model.trained_length if options.trained is None else options.trained
    if trained is None:
        raise UsageError(f"{model.source} does not say how long its trained texts were; give --trained TOKENS")
    return trained


def _read_text(model: LanguageModel, options: argparse.Namespace) -> tuple[Sequence[str], str]:
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


def _place_page(options: argparse.Namespace) -> Path:
    """Return the folder of the page: beside the model that is written, or alone."""
    from clockhands.extension.write import REPORT

    return Path(options.out) if options.only else Path(options.out) / REPORT


def _write_page(findings: Findings, options: argparse.Namespace) -> Path:
    """Write the page and return its path."""
    from clockhands.report import write

    folder = _place_page(options)
    with report_new_folder(folder, quiet=options.json):
        return write(findings, folder)[0]


def _show(findings: Findings, page: Path | None, options: argparse.Namespace) -> int:
    """Print the verdicts and where the page is, or everything as JSON."""
    from clockhands.report import show

    if options.json:
        print(findings.to_json())
    else:
        show(findings)
        print(f"\n{page}")
    return 0
