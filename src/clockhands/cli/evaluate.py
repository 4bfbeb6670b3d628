"""``clockhands evaluate``: scores with intervals, and the loss by length."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.cli.common import add_device, add_search, number, prepare, search_of
from clockhands.errors import UsageError

if TYPE_CHECKING:
    from clockhands.data import Pair
    from clockhands.findings import Table
    from clockhands.generation import Evaluation
    from clockhands.runs import Run

__all__ = ["EXAMPLES", "OF_TRANSLATION", "SCALINGS", "arguments", "run"]

EXAMPLES = (
    "clockhands evaluate runs/tour",
    "clockhands evaluate runs/tour --split longer-7",
    "clockhands evaluate runs/mine --source test.de --target test.en --beam 5",
    "clockhands evaluate runs/shakespeare --length 1x,2x,4x",
    "clockhands evaluate runs/rope --length 2x,4x --position.spectrum yarn --factor 4",
)
OF_TRANSLATION = ("beam", "length_penalty", "batch", "max_length", "max_source", "engine", "compute_type")
SCALINGS = ("linear", "ntk", "dynamic", "yarn")
"""RoPE scalings that change nothing with a factor of 1, their default."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", help="folder of a trained run")
    parser.add_argument("--split", help="of the run's own corpus (default: test, or validation where there is none)")
    parser.add_argument("--source", metavar="FILE", help="sentences to translate, one a line, instead of the corpus")
    parser.add_argument("--target", metavar="FILE", help="their references, line by line")
    parser.add_argument("--text", metavar="FILE", help="plain text, for a language model")
    parser.add_argument("--length", metavar="L,L", help="windows of a language model: tokens, or 2x the trained length")
    parser.add_argument("--position.spectrum", dest="spectrum", metavar="NAME",
                        help="apply RoPE scaling for this evaluation: linear, ntk, dynamic or yarn")  # fmt: skip
    parser.add_argument("--factor", type=number, help="how many times longer, for --position.spectrum")
    parser.add_argument("--set", nargs="+", default=[], dest="overrides", metavar="position.KEY=VALUE",
                        help="any option of the model's schemes, for this evaluation")  # fmt: skip
    parser.add_argument("--tokenize", default="13a", help="sacreBLEU's; none for tokenised text (default: 13a)")
    parser.add_argument("--lowercase", action="store_true", help="score without regard to case")
    parser.add_argument("--json", action="store_true", help="everything as one JSON document")
    add_search(parser)
    add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Evaluate the run, and print the scores and the table of losses by length."""
    if bool(options.source) != bool(options.target):
        raise UsageError("--source and --target go together: what is translated, and what it is compared with")
    named = [f"--{name}" for name in ("source", "text", "split") if getattr(options, name)]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} each say what to evaluate on; give one of them")
    search = search_of(options)
    prepare(options)
    from clockhands.generation import evaluate
    from clockhands.progress import ProgressCounter
    from clockhands.runs import open_run

    opened = open_run(options.run, device=options.device, position=_position(options))
    if opened.architecture != "encoder-decoder":
        _refuse_translation(options)
    text, what = _text(opened, options)
    lengths = list(_lengths(opened, options))
    with ProgressCounter() as progress:
        results = {
            length: evaluate(
                opened,
                text,
                search=search,
                tokenize=options.tokenize,
                lowercase=options.lowercase,
                length=length,
                progress=progress,
            )
            for length in lengths
        }
    if options.json:
        print(json.dumps([{"text": what, **_plain(length, result)} for length, result in results.items()], indent=1))
        return 0
    print(what)
    for length, result in results.items():
        _show(length, result, len(opened.tokenizers.target))
    return 0


def _refuse_translation(options: argparse.Namespace) -> None:
    """Raise UsageError for options of translation, which a language model has no use for."""
    from clockhands.generation import Search

    usual = {"tokenize": "13a", "lowercase": False, **vars(Search())}
    used = [name for name in (*OF_TRANSLATION, "tokenize", "lowercase") if getattr(options, name) != usual[name]]
    if used:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in used)
        raise UsageError(f"{options.run} is a language model: its loss is measured, and {names} is for translations")


def _position(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the schemes that the command line overrides."""
    from clockhands.options import parse, read_assignments

    overrides: dict[str, Any] = {}
    for key, value in read_assignments(options.overrides).items():
        if not key.startswith("position."):
            raise UsageError(f"--set {key}={value}: write position.OPTION=VALUE, such as position.base=500000")
        overrides[key.removeprefix("position.")] = parse(value)
    named = {"spectrum": options.spectrum, "factor": options.factor}
    overrides |= {key: value for key, value in named.items() if value is not None}
    spectrum = overrides.get("spectrum")
    if spectrum in SCALINGS and overrides.get("factor") is None:
        raise UsageError(
            f"--position.spectrum {spectrum} needs --factor, how many times longer than trained the text is"
        )
    return {key: value for key, value in overrides.items() if value is not None}


def _trained_window(run: Path) -> int:
    """Return how many tokens the windows had on which a language model was trained."""
    from clockhands.runs import Run

    return Run.from_folder(run).recipe.batches.window


def _text(opened: Run, options: argparse.Namespace) -> tuple[Sequence[Pair] | Sequence[str], str]:
    """The text to score, and one line that says which it is."""
    from clockhands.data import open_corpus
    from clockhands.data.readers import read_documents, read_parallel
    from clockhands.runs import Run

    if options.source:
        pairs = list(read_parallel(options.source, options.target))
        return pairs, f"{len(pairs):,} pairs of {options.source} and {options.target}"
    if options.text:
        return read_documents(options.text, "file"), f"the text of {options.text}"
    recipe = Run.from_folder(opened.path).recipe
    corpus = open_corpus(recipe.corpus, **recipe.corpus_options)
    split = options.split or ("validation" if "test" not in corpus and "validation" in corpus else "test")
    text = corpus.pairs(split) if corpus.task == "translation" else corpus.documents(split)
    instead = "; there is no test split" if split != (options.split or "test") else ""
    return text, f"split {split} ({len(text):,} {corpus.items} of {corpus.description or corpus.name}{instead})"


def _lengths(opened: Run, options: argparse.Namespace) -> Iterator[int | None]:
    """Yield the lengths of the windows that ``--length`` names, in tokens; None for a translator, which has none."""
    if options.length is None:
        yield None if opened.architecture == "encoder-decoder" else _trained_window(opened.path)
        return
    if opened.architecture == "encoder-decoder":
        raise UsageError(_no_windows(opened))
    trained = _trained_window(opened.path)
    for word in options.length.split(","):
        number = word.strip().removesuffix("x")
        try:
            length = int(float(number) * trained) if word.strip().endswith("x") else int(number)
        except (ValueError, OverflowError):
            raise UsageError(
                f"--length {options.length}: {word!r} is neither a number nor a multiple like 2x"
            ) from None
        if length < 2:
            raise UsageError(f"--length {options.length}: a window needs 2 tokens or more, and {word!r} is {length}")
        yield length


def _no_windows(opened: Run) -> str:
    """Why a translator has no windows, and what of its own corpus is longer than what it was trained on."""
    from clockhands.data import open_corpus
    from clockhands.runs import Run

    recipe = Run.from_folder(opened.path).recipe
    longer = [split for split in open_corpus(recipe.corpus, **recipe.corpus_options) if split.startswith("longer")]
    own = f"--split {' or '.join(longer)}, or " if longer else ""
    return (
        f"--length cuts the windows of a language model, and {opened.path} translates sentence by sentence; test it "
        f"on longer ones with {own}--source and --target (its table is by length)"
    )


def _plain(length: int | None, result: Evaluation) -> dict[str, Any]:
    return {
        "length": length,
        "scores": [vars(score) for score in result.scores],
        "by_length": {"columns": result.by_length.columns, "rows": result.by_length.rows},
    }


def _show(length: int | None, result: Evaluation, tokens: int) -> None:
    from clockhands.generation.score import describe_uniform_guess

    if length is not None:
        print(f"windows of {length} tokens")
    for score in result.scores:
        print(score)
    print(f"(loss: lower is better; {describe_uniform_guess(tokens)})")
    _print_table(result.by_length)


def _print_table(table: Table) -> None:
    cells = [table.columns, *([f"{c:.3f}" if isinstance(c, float) else str(c) for c in row] for row in table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    print()
    for row in cells:
        print("  ".join(str(cell).rjust(width) for cell, width in zip(row, widths, strict=True)))
    print()
