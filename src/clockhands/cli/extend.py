"""``clockhands extend``: how far a model can read, and how it is made to read further."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.cli.common import add_device, number, prepare, seed, telling_new_folder, whole
from clockhands.cli.positions import add_opening, open_model
from clockhands.errors import UsageError

if TYPE_CHECKING:
    from clockhands.extension import Choice, Measurement
    from clockhands.findings import Findings
    from clockhands.runs import LanguageModel

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "clockhands extend runs/stdlib --only measure --to 2x --text my.txt --texts 8 --items 10 --out measured",
    "clockhands extend llama --only measure --to 2x --text my.txt --texts 8 --items 10 --trained 64 --json",
    "clockhands extend llama --to 2x --text my.txt --texts 8 --items 10 --trained 64 --evaluations 4 --out longer",
)


MEASURED = ".measured.json"
"""Where the results of a choice are kept until it is done, so that it goes on where it was stopped."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", metavar="MODEL", help="a run that continues text, or any causal Hugging Face model")
    parser.add_argument("--to", default="8x", metavar="LENGTH",
                        help="the longest text: tokens, or 2x the trained (default: %(default)s)")  # fmt: skip
    parser.add_argument("--only", choices=("measure",), help="say how far the model reads as it is, and stop")
    parser.add_argument("--evaluations", type=whole, default=64, metavar="N",
                        help="factors that the search tries; 0 searches none (default: %(default)s)")  # fmt: skip
    parser.add_argument("--text", nargs="+", metavar="FILE",
                        help="what it reads (default: the run's own corpus, or Python's library)")  # fmt: skip
    parser.add_argument("--texts", type=whole, default=48, help="texts whose loss is measured (default: %(default)s)")
    parser.add_argument("--items", type=whole, default=60, help="questions of each task (default: %(default)s)")
    parser.add_argument("--margin", type=number, default=0.05,
                        help="nats per token that a length may cost (default: %(default)s)")  # fmt: skip
    parser.add_argument("--trained", type=whole, metavar="TOKENS",
                        help="the trained length, where the model does not say it or says it wrongly")  # fmt: skip
    parser.add_argument("--seed", type=seed, default=0, help="of the questions (default: %(default)s)")
    parser.add_argument("--out", metavar="FOLDER", default="extended",
                        help="where the model and the page go (default: %(default)s)")  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="print the findings as JSON; with --only measure, instead of writing a page"
    )
    add_opening(parser)
    add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Measure how far a model reads; unless that is all, choose what makes it read further and write it."""
    _check(options)
    prepare(options)
    from clockhands.extension import (
        Archive,
        choose_lengths,
        choose_method,
        encode_text,
        list_methods,
        measure,
        split_stream,
    )
    from clockhands.generation import to_language_model
    from clockhands.progress import ProgressCounter

    model = to_language_model(open_model(options, {}), "extend")
    trained = _find_trained(model, options)
    longest = _find_longest(options.to, trained)
    choosing = options.only is None
    if choosing:
        if longest == trained:
            raise UsageError(f"--to {options.to} is the trained length; give more, or --only measure")
        list_methods(model, trained, longest)  # a model that cannot be extended is refused before minutes are spent
    documents, text = _read_text(model, options)
    stream = encode_text(model, documents)
    with ProgressCounter() as progress:
        measurement = measure(
            model, stream, choose_lengths(trained, longest), trained, texts=options.texts, items=options.items,
            seed=options.seed, margin=options.margin, progress=progress,
        )  # fmt: skip
        choice = None
        if choosing:
            searched, judged = split_stream(stream, 2)
            archive = Archive(Path(options.out) / MEASURED, _write_signature(options, stream))
            choice = choose_method(
                model, searched, judged, trained, longest, texts=options.texts, items=options.items,
                evaluations=options.evaluations, learned=measurement.usable.learned, seed=options.seed, archive=archive,
                progress=progress,
            )  # fmt: skip
    return _finish(model, measurement, choice, text, options)


def _finish(
    model: LanguageModel, measurement: Measurement, choice: Choice | None, text: str, options: argparse.Namespace
) -> int:
    """Write the chosen model, if there is one, and show the findings."""
    from clockhands import __version__
    from clockhands.extension import make_choice_findings, make_measure_findings, write_card, write_extended
    from clockhands.extension.card import make_engine_finding
    from clockhands.findings import Findings
    from clockhands.runs import is_run

    command, basis = _write_command(options), {"text": text}
    items = list(make_measure_findings(measurement, margin=options.margin, command=command, basis=basis))
    facts = {"model": model.source, "trained length": f"{measurement.trained:,} tokens", "text": text,
             "version": __version__}  # fmt: skip
    folder = Path(options.out)
    if choice is not None:
        items += make_choice_findings(choice, command=command, basis=basis)
        if choice.chosen is not choice.judged[0]:
            error = write_extended(model, choice.chosen.method, choice.trained, choice.longest, folder)
            facts["written"] = f"{folder}; logits differ by at most {error:.1g} from those that were judged"
            items += [] if is_run(model.source) else [make_engine_finding(folder, command=command)]
    findings = Findings(f"How far {model.source} reads", tuple(items), facts, command=command)
    if choice is not None and "written" in facts:
        write_card(findings, choice, model.source, folder)
        (folder / MEASURED).unlink(missing_ok=True)
    return _show(findings, options)


def _write_signature(options: argparse.Namespace, stream: Any) -> str:
    """Return what everything that is measured depends on; another one begins again."""
    import zlib

    return f"{options.run} {options.trained} {options.seed} {zlib.crc32(stream.tobytes())} {options.dtype}"


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for numbers from which nothing could be concluded."""
    for name, least in (("texts", 8), ("items", 10)):
        if getattr(options, name) < least:
            raise UsageError(f"--{name} is {getattr(options, name)}; at least {least} are needed for an interval")
    if options.evaluations < 0:
        raise UsageError(f"--evaluations is {options.evaluations}; give 0 for no search, or more")
    if options.only is None:
        from clockhands.extension.write import refuse_taken

        refuse_taken(Path(options.out))
    if not options.margin > 0:
        raise UsageError(f"--margin is {options.margin}; give a number of nats above 0")


def _find_trained(model: LanguageModel, options: argparse.Namespace) -> int:
    """Return the trained length. Raises UsageError where nobody says it."""
    trained = options.trained or model.trained_length
    if trained is None:
        raise UsageError(f"{model.source} does not say how long its trained texts were; give --trained TOKENS")
    return trained


def _find_longest(to: str, trained: int) -> int:
    """Return the longest length in tokens. Raises UsageError for what is no length, and for one below the trained."""
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


def _read_text(model: LanguageModel, options: argparse.Namespace) -> tuple[Sequence[str], str]:
    """Return the documents that are read, and what they are."""
    from clockhands.data import open_corpus
    from clockhands.data.readers import read_documents
    from clockhands.runs import Run, is_run

    if options.text:
        return [read_documents(file, "file")[0] for file in options.text], f"the text of {', '.join(options.text)}"
    if is_run(options.run):
        recipe = Run.from_folder(options.run).recipe
        corpus = open_corpus(recipe.corpus, **recipe.corpus_options)
        split = next(name for name in ("test", "validation", "train") if name in corpus)
        return corpus.documents(split), f"split {split} of {corpus.description or corpus.name}"
    corpus = open_corpus("stdlib")
    return corpus.documents("test"), corpus.description


def _write_command(options: argparse.Namespace) -> str:
    """Return the command that measures this again."""
    words = ["clockhands", "extend", options.run, "--to", options.to]
    words += ["--only", options.only] if options.only else []
    words += ["--text", *options.text] if options.text else []
    usual = {"texts": 48, "items": 60, "margin": 0.05, "seed": 0, "trained": None, "evaluations": 64}
    for name, value in usual.items():
        if getattr(options, name) != value:
            words += [f"--{name}", str(getattr(options, name))]
    return shlex.join(words)


def _show(findings: Findings, options: argparse.Namespace) -> int:
    """Write the page, and print the verdicts or everything as JSON."""
    from clockhands.report import show, write

    folder = Path(options.out) if options.only else Path(options.out) / "report"
    if options.json:
        print(findings.to_json())
        if options.only:
            return 0
    with telling_new_folder(folder, quiet=options.json):
        paths = write(findings, folder)
    if not options.json:
        show(findings)
        print(f"\n{paths[0]}")
    return 0
