"""``clockhands evaluate``: scores of translations, or the loss of a language model, with intervals and by length."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from clockhands.cli.common import (
    DeviceOptions,
    Opening,
    PositionOptions,
    Searching,
    import_engine,
    name_texts,
    open_model,
    parse_length,
    prepare,
    read_positions,
)
from clockhands.cli.flags import POSITIONAL, list_given, refuse_several
from clockhands.errors import CheckpointError, UsageError, explain_overflow
from clockhands.options import options_of

if TYPE_CHECKING:
    from clockhands.data import Pair
    from clockhands.generation import Evaluation, Search
    from clockhands.models import LanguageModel
    from clockhands.progress import CountProgress
    from clockhands.runs import Run
    from clockhands.runs.opening import PlainRun

EXAMPLES = (
    "clockhands evaluate runs/tour",
    "clockhands evaluate runs/tour --split longer-7",
    "clockhands evaluate runs/mine --source test.de --target test.en --beam 5",
    "clockhands evaluate runs/shakespeare --length 1x,2x,4x",
    "clockhands evaluate runs/rope --length 2x,4x --position.spectrum yarn --factor 4",
    "clockhands evaluate llama --text my.txt --length 0.5x,1x --stride 32",
    "clockhands evaluate llama --text my.txt --length 2x --position.spectrum yarn --factor 4",
)
Results: TypeAlias = "tuple[str, dict[int | None, Evaluation], int]"
"""What was read, its evaluation by the length of the windows, and the size of the vocabulary."""


@dataclass(frozen=True, kw_only=True)
class _OfTranslation:
    """Options of a run that translates.

    Args:
        source: translate this file, one sentence a line, not the corpus
        target: the correct translations of --source, line by line
        tokenize: how sacreBLEU splits texts into words; none if they are split already
        lowercase: ignore upper and lower case when scoring
    """

    GROUP = "for a run that translates"
    source: Annotated[str | None, "FILE"] = None
    target: Annotated[str | None, "FILE"] = None
    tokenize: Annotated[str, "NAME"] = "13a"
    lowercase: bool = False


@dataclass(frozen=True, kw_only=True)
class _OfLanguageModel:
    """Options of a language model.

    Args:
        text: measure the loss on plain text, not on the corpus
        unit: what is one document of --text; with five documents or more, intervals are over documents (default: file)
        length: lengths of the windows in which the text is read: in tokens, or 2x for twice the trained length
            (default: 1x)
        stride: begin a window every N tokens: every token is scored once, and has at least length - N tokens before it,
            except in the first window (default: as far apart as possible)
    """

    GROUP = "for a language model"
    text: Annotated[tuple[str, ...], "FILE"] = ()
    unit: Literal["file", "paragraph", "line"] | None = None
    length: Annotated[str | None, "L,L"] = None
    stride: Annotated[int | None, "N"] = None


@dataclass(frozen=True, kw_only=True)
class Options(PositionOptions, Opening, DeviceOptions, _OfTranslation, Searching, _OfLanguageModel):
    """What to evaluate, and on what.

    Args:
        run: the folder of a trained run, or the folder or hub name of any causal Hugging Face model
        split: evaluate on this split of the run's own corpus (default: test, or validation if there is no test split)
        batch: translate N sentences, or read N windows, at a time (default: 64 sentences; as many windows as fit into
            the memory, at most 32)
        json: print everything as one JSON document
    """

    run: Annotated[str, POSITIONAL]
    split: Annotated[str | None, "NAME"] = None
    batch: Annotated[int | None, "N"] = None
    json: bool = False


def run(options: Options) -> int:
    """Evaluate the model, and print its scores and the table by length."""
    if bool(options.source) != bool(options.target):
        raise UsageError("--source and --target go together: what is translated, and what it is compared with")
    refuse_several(options, ("source", "text", "split"), "what to evaluate on")
    if options.unit and not options.text:
        raise UsageError("--unit says how the files of --text are divided into documents; give --text, or leave it out")
    search = options.make_search(options.batch)
    prepare(options)
    from clockhands.models import is_run, read_checked_config
    from clockhands.progress import ProgressCounter
    from clockhands.runs import Run
    from clockhands.runs.opening import PlainRun

    if not (is_run(options.run) or options.text):
        read_checked_config(options.run, trust_remote_code=True)  # which says where there is no model at all
        raise UsageError(f"{options.run} is no run, so it has no corpus of its own; give --text FILE")
    import_engine()
    from clockhands.generation.translate import open_quickly

    position = read_positions(options)
    # A translator is opened in the quickest way where the options ask for nothing else.
    is_usual = not position and not list_given(options, (*options_of(Opening), "device", "text"))
    opened: Run | PlainRun | LanguageModel | None = open_quickly(Path(options.run), search) if is_usual else None
    opened = opened or open_model(options, position)
    with ProgressCounter() as progress:
        if isinstance(opened, PlainRun) or (isinstance(opened, Run) and opened.architecture == "encoder-decoder"):
            what, results, vocabulary = _evaluate_translator(opened, options, search, progress)
        else:
            what, results, vocabulary = _evaluate_language_model(opened, options, progress)
    if not all(math.isfinite(result.loss.mean) for result in results.values()):
        raise CheckpointError(explain_overflow(options.run))
    if options.json:
        rows = [
            {
                "text": what,
                "length": length,
                "resampled": result.resampled,
                "scores": [vars(score) for score in result.scores],
                "by_length": {"columns": result.by_length.columns, "rows": result.by_length.rows},
            }
            for length, result in results.items()
        ]
        print(json.dumps(rows, indent=1))
        return 0
    print(what)
    for length, result in results.items():
        _print_result(length, result, vocabulary)
    return 0


def _evaluate_translator(opened: Run | PlainRun, options: Options, search: Search, progress: CountProgress) -> Results:
    from clockhands.generation import evaluate

    if options.length is not None or options.stride is not None:
        from clockhands.data import open_corpus
        from clockhands.runs import Run

        recipe = Run.from_folder(opened.path).recipe
        corpus = open_corpus(recipe.corpus, **recipe.corpus_options)
        longer = [split for split in corpus if split.startswith("longer")]
        own = f"--split {' or '.join(longer)}, or " if longer else ""
        raise UsageError(
            f"--length cuts the windows of a language model, and {opened.path} translates sentence by sentence; test "
            f"it on longer ones with {own}--source and --target (its table is by length)"
        )
    text, what = _read_text(options)
    result = evaluate(
        opened, text, search=search, tokenize=options.tokenize, lowercase=options.lowercase, progress=progress
    )
    return what, {None: result}, len(opened.tokenizers.target)


def _evaluate_language_model(opened: Run | LanguageModel, options: Options, progress: CountProgress) -> Results:
    from clockhands.generation import evaluate
    from clockhands.models import to_language_model

    if used := list_given(options, (*options_of(Searching), "tokenize", "lowercase", "source")):
        said = f"its loss is measured, and {', '.join(used)} is for translations"
        raise UsageError(f"{options.run} is a language model: {said}")
    model = to_language_model(opened, "evaluate continuations")
    text, what = _read_text(options)
    results: dict[int | None, Evaluation] = {}
    unknown = f"{options.run} does not say how long its trained texts were; give --length in tokens"
    for word in (options.length or "1x").split(","):
        length = parse_length(f"--length {options.length}", word, model.trained_length, unknown)
        if length < 2:
            raise UsageError(f"--length {options.length}: a window needs 2 tokens or more, and {word!r} is {length}")
        results[length] = evaluate(
            model, text, length=length, stride=options.stride, batch=options.batch, progress=progress
        )
    return what, results, len(model.tokenizer)


def _read_text(options: Options) -> tuple[Sequence[Pair] | Sequence[str], str]:
    from clockhands.data import open_corpus
    from clockhands.data.readers import read_documents, read_parallel
    from clockhands.runs import Run

    if options.source and options.target:
        pairs = list(read_parallel(options.source, options.target))
        return pairs, f"{len(pairs):,} pair{'s' * (len(pairs) != 1)} of {options.source} and {options.target}"
    if options.text:
        documents = [document for file in options.text for document in read_documents(file, options.unit or "file")]
        return documents, name_texts(options.text)
    recipe = Run.from_folder(options.run).recipe
    corpus = open_corpus(recipe.corpus, **recipe.corpus_options)
    split = options.split or ("validation" if "test" not in corpus and "validation" in corpus else "test")
    text = corpus.pairs(split) if corpus.task == "translation" else corpus.documents(split)
    instead = "; there is no test split" if split != (options.split or "test") else ""
    items = corpus.items.removesuffix("s" * (len(text) == 1))
    return text, f"split {split} ({len(text):,} {items} of {corpus.description or corpus.name}{instead})"


def _print_result(length: int | None, result: Evaluation, tokens: int) -> None:
    from clockhands.generation.score import describe_uniform_guess

    if length is not None:
        print(f"windows of {length} tokens")
    for score in result.scores:
        print(score)
    if result.resampled:
        print(f"(intervals: over {result.resampled})")
    print(f"(loss: lower is better; {describe_uniform_guess(tokens)})")
    table = result.by_length
    cells = [table.columns, *([f"{c:.3f}" if isinstance(c, float) else str(c) for c in row] for row in table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    rows = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    print("", *rows, "", sep="\n")
