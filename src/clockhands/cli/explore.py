"""``clockhands explore``: a page in which trained models run, and their positions can be changed."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from clockhands.cli.common import add_device, check_file, prepare
from clockhands.files import write_text

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "clockhands explore --out explore.html",
    "clockhands explore runs/tour --out tour.html",
    'clockhands explore ./llama --text "The cat sat." --out llama.html',
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="folders of runs or checkpoints, or hub names "
                        "(default: the models of the tour)")  # fmt: skip
    parser.add_argument(
        "--text",
        action="append",
        metavar="TEXT",
        help="a sentence whose attention is recorded of a model that the page cannot run; a live model is given it to "
        "begin with; once for each sentence",
    )
    parser.add_argument(
        "--out", default="explore.html", metavar="FILE", help="the page to write (default: %(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the page if it exists")
    parser.add_argument(
        "--tour",
        default="runs/tour",
        metavar="FOLDER",
        help="the folder of the tour; if it does not exist, the tour is run (default: %(default)s)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Write the page and print where it is."""
    check_file("--out", options.out, overwrite=options.overwrite, suffix=".html")
    prepare(options)
    from clockhands.exploring import make_page, prepare_checkpoint

    texts = options.text or []
    models = []
    for (name, label), source in _find_sources(options).items():
        _say(options, f"measuring {label}")
        models.append(prepare_checkpoint(source, name, label, texts, device=options.device))
    command = shlex.join(
        ["clockhands", "explore", *options.models, *(part for text in texts for part in ("--text", text))]
    )
    page = write_text(options.out, make_page(models, command))
    live = sum(model.is_live for model in models)
    counts = [(live, "live model"), (len(models) - live, "recorded model")]
    summary = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count)
    print(f"The page: {page}  ({page.stat().st_size / 1e6:.2f} MB, {summary})")
    return 0


def _find_sources(options: argparse.Namespace) -> dict[tuple[str, str], str]:
    """Return folders or hub names by key and label: those that are named, or those of the tour."""
    from clockhands.exploring import find_tour_models, name_models

    if not options.models:
        runs = find_tour_models(Path(options.tour), show=not options.quiet, say=lambda text: _say(options, text))
        return {key: str(run.path) for key, run in runs.items()}
    return {(name, name): source for name, source in zip(name_models(options.models), options.models, strict=True)}


def _say(options: argparse.Namespace, text: str) -> None:
    if not options.quiet:
        print(text, file=sys.stderr, flush=True)
