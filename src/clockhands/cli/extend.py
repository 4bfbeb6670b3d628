"""``clockhands extend``: how far a model can read, and how it is made to read further."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.cli.common import add_device, as_float, as_int, as_seed, prepare, report_new_folder
from clockhands.cli.positions import add_opening, open_model
from clockhands.errors import UsageError

if TYPE_CHECKING:
    from clockhands.extension import Plan, Tuning
    from clockhands.findings import Findings
    from clockhands.runs import LanguageModel

__all__ = ["EXAMPLES", "arguments", "run"]

MOST_PICTURES = 512
"""Pictures that are read at most, evenly over the files."""

EXAMPLES = (
    "clockhands extend runs/stdlib --only measure --to 2x --text my.txt --texts 8 --items 10 --out measured",
    "clockhands extend llama --only measure --to 2x --text my.txt --texts 8 --items 10 --trained 64 --json",
    "clockhands extend llama --to 2x --text my.txt --texts 8 --items 10 --trained 64 --evaluations 4 --out longer",
    "clockhands extend llama --to 2x --text my.txt --texts 8 --items 10 --trained 64 --evaluations 0 --train 3 "
    "--out tuned",
    "clockhands extend vit --to 2x --pictures photographs --out sharper",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", metavar="MODEL",
                        help="a run or Hugging Face model that continues text or fills in masked tokens; with "
                        "--pictures one that names pictures")  # fmt: skip
    parser.add_argument("--to", default="8x", metavar="LENGTH",
                        help="the longest text: tokens, or 2x the trained; of pictures, pixels of a side "
                        "(default: %(default)s)")  # fmt: skip
    parser.add_argument("--only", choices=("measure",), help="say how far the model reads as it is, and stop")
    parser.add_argument("--evaluations", type=as_int, default=64, metavar="N",
                        help="factors that the search tries; 0 searches none (default: %(default)s)")  # fmt: skip
    parser.add_argument("--train", type=as_int, metavar="STEPS", help="train the chosen model so many steps")
    parser.add_argument("--windows", choices=("skip", "full"),
                        help="train in windows of the trained length with positions all over the new one (default), or "
                        "of the new length")  # fmt: skip
    parser.add_argument("--learning-rate", type=as_float, help="of the training (default: 0.1 / d_model)")
    parser.add_argument("--text", nargs="+", metavar="FILE",
                        help="what it reads (default: the run's own corpus, or Python's library)")  # fmt: skip
    parser.add_argument("--pictures", metavar="FOLDER",
                        help="make a grid of positions read larger pictures, judged by these: each class is a folder "
                        "with its name")  # fmt: skip
    parser.add_argument(
        "--texts",
        type=as_int,
        default=32,
        help="texts whose loss is measured; a choice reads more, if short (default: %(default)s)",
    )
    parser.add_argument(
        "--items", type=as_int, default=60, help="questions of each task at each length (default: %(default)s)"
    )
    parser.add_argument("--margin", type=as_float, default=0.05,
                        help="nats per token that a length may cost (default: %(default)s)")  # fmt: skip
    parser.add_argument("--trained", type=as_int, metavar="TOKENS",
                        help="the trained length, where the model does not say it or says it wrongly")  # fmt: skip
    parser.add_argument("--seed", type=as_seed, default=0, help="of the questions (default: %(default)s)")
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
    if options.only:
        return _measure(options)
    from clockhands.extension.write import refuse_taken
    from clockhands.locking import lock_folder

    with lock_folder(Path(options.out)):
        refuse_taken(Path(options.out))  # another process may have written it while this one waited
        return _extend_grid(options) if options.pictures else _extend(options)


def _measure(options: argparse.Namespace) -> int:
    """Measure a model as it is; write the page, or print the findings."""
    from clockhands.extension import measure_only
    from clockhands.progress import ProgressCounter

    model, plan = _open(options)
    with ProgressCounter() as progress:
        findings = measure_only(model, plan, progress)
    page = None if options.json else _write_page(findings, options)
    return _show(findings, page, options)


def _extend(options: argparse.Namespace) -> int:
    """Do all of it while the lock of the folder is held."""
    from clockhands.extension import extend
    from clockhands.progress import ProgressCounter

    model, plan = _open(options)
    if plan.longest == plan.trained:
        raise UsageError(f"--to {options.to} is the trained length; give more, or --only measure")
    with ProgressCounter() as progress:
        findings = extend(
            model, plan, Path(options.out), write_page=lambda findings: _write_page(findings, options),
            progress=progress,
        )  # fmt: skip
    return _show(findings, _place_page(options) / "index.html", options)


def _extend_grid(options: argparse.Namespace) -> int:
    """Make the grid of a model larger while the lock of the folder is held."""
    from clockhands.extension.pictures import PicturePlan, extend_grid, open_picture_model, read_pictures
    from clockhands.progress import ProgressCounter

    model = open_picture_model(options.run, device=options.device)
    longest = _find_longest(options.to, model.side, "pixels")
    if longest == model.side:
        raise UsageError(f"--to {options.to} is the {longest:,} pixels that it reads already; give more")
    plan = PicturePlan(
        read_pictures(options.pictures, model, MOST_PICTURES, largest=longest), longest, _write_command(options)
    )
    with ProgressCounter() as progress:
        findings = extend_grid(
            model, plan, Path(options.out), write_page=lambda findings: _write_page(findings, options),
            progress=progress,
        )  # fmt: skip
    return _show(findings, _place_page(options) / "index.html", options)


def _open(options: argparse.Namespace) -> tuple[LanguageModel, Plan]:
    """Open the model, and say what is to be found out about it."""
    from clockhands.extension import Plan
    from clockhands.generation import to_language_model

    model = to_language_model(open_model(options, {}, masked=True), "extend", masked=True)
    trained = _find_trained(model, options)
    longest = _find_longest(options.to, trained)
    documents, text = _read_text(model, options)
    plan = Plan(
        documents, text, trained, longest, options.texts, options.items, options.evaluations, options.margin,
        options.seed, _make_tuning(options), _write_command(options),
    )  # fmt: skip
    return model, plan


def _make_tuning(options: argparse.Namespace) -> Tuning | None:
    """Return how to train, or None. Raises UsageError for options of a training that is not asked for."""
    if options.train is None:
        said = [f"--{name.replace('_', '-')}" for name in ("windows", "learning_rate") if getattr(options, name)]
        if said:
            raise UsageError(f"{' and '.join(said)} say how to train; give --train STEPS beside")
        return None
    if options.only:
        raise UsageError("--only measure stops before training; leave out --train")
    from clockhands.extension import Tuning

    return Tuning(options.train, options.windows or "skip", learning_rate=options.learning_rate, seed=options.seed)


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
    _make_tuning(options)
    _check_pictures(options)
    if not options.margin > 0:
        raise UsageError(f"--margin is {options.margin}; give a number of nats above 0")


def _check_pictures(options: argparse.Namespace) -> None:
    """Raise UsageError for an option of texts beside pictures."""
    if not options.pictures:
        return
    names = ("only", "train", "text", "trained", "weights", "dtype", "trust_remote_code")
    said = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]
    if said:
        raise UsageError(
            f"--pictures and {said[0]} do not go together: a grid of positions is judged by pictures alone"
        )


def _find_trained(model: LanguageModel, options: argparse.Namespace) -> int:
    """Return the trained length. Raises UsageError where nobody says it."""
    trained = options.trained or model.trained_length
    if trained is None:
        raise UsageError(f"{model.source} does not say how long its trained texts were; give --trained TOKENS")
    return trained


def _find_longest(to: str, trained: int, unit: str = "tokens") -> int:
    """Return the longest length. Raises UsageError for what is no length, and for one below the trained."""
    word = to.strip()
    try:
        longest = int(float(word.removesuffix("x")) * trained) if word.endswith("x") else int(word)
    except (ValueError, OverflowError):
        raise UsageError(f"--to {to}: that is neither a number of {unit} nor a multiple like 8x") from None
    if longest < trained:
        raise UsageError(
            f"--to {to} is {longest:,} {unit}, less than the {trained:,} that the model was trained on; give a factor "
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
    words += ["--pictures", options.pictures] if options.pictures else []
    usual: dict[str, Any] = {"texts": 32, "items": 60, "margin": 0.05, "seed": 0, "evaluations": 64}
    usual |= dict.fromkeys(("trained", "train", "windows", "learning_rate", "dtype", "weights"))
    for name, value in usual.items():
        if getattr(options, name) != value:
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return shlex.join(words)


def _place_page(options: argparse.Namespace) -> Path:
    return Path(options.out) if options.only else Path(options.out) / "report"


def _write_page(findings: Findings, options: argparse.Namespace) -> Path:
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
