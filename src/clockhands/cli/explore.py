"""``clockhands explore``: a page in which trained models run, and their positions can be changed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from clockhands.cli.common import add_device, check_file, prepare
from clockhands.files import write_text

if TYPE_CHECKING:
    from clockhands.runs import Run

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = (
    "clockhands explore --out explore.html",
    "clockhands explore runs/tour --out tour.html",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("runs", nargs="*", metavar="RUN", help="the folders of trained "
                        "translators (default: the models of the tour)")  # fmt: skip
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
    from clockhands.exploring import make_page, prepare_model
    from clockhands.runs import open_run

    models = []
    for (name, label), trained in _find_runs(options).items():
        _say(options, f"measuring {label}")
        models.append(prepare_model(open_run(trained, device=options.device), name, label))
    command = " ".join(["clockhands explore", *options.runs])
    page = write_text(options.out, make_page(models, command))
    live = "1 live model" if len(models) == 1 else f"{len(models)} live models"
    print(f"The page: {page}  ({page.stat().st_size / 1e6:.2f} MB, {live})")
    return 0


def _find_runs(options: argparse.Namespace) -> dict[tuple[str, str], Run]:
    """Return the runs by key and label: those that are named, or those of the tour."""
    from clockhands.exploring import find_tour_models, name_models
    from clockhands.runs import Run

    if not options.runs:
        return find_tour_models(Path(options.tour), show=not options.quiet, say=lambda text: _say(options, text))
    runs = [Run(Path(path)) for path in options.runs]
    return {(name, name): run for name, run in zip(name_models(runs), runs, strict=True)}


def _say(options: argparse.Namespace, text: str) -> None:
    if not options.quiet:
        print(text, file=sys.stderr, flush=True)
