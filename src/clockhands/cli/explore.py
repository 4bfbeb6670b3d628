"""``clockhands explore``: a page in which trained models run, and their positions can be changed."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clockhands.cli.common import DeviceOptions, check_file, prepare
from clockhands.cli.flags import POSITIONAL, REPEATED, write_command

EXAMPLES = (
    "clockhands explore --out explore.html",
    "clockhands explore runs/tour --out tour.html",
    'clockhands explore ./llama --text "The cat sat." --out llama.html',
)


@dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """Which models are on the page, and where it goes.

    Args:
        models: folders of runs or checkpoints, or hub names (default: the models of the tour)
        text: a sentence whose attention is recorded of a model that the page cannot run; a live model is given it to
            begin with; once for each sentence
        out: the page to write
        overwrite: replace the page if it exists
        tour: the folder of the tour; if it does not exist, the tour is run
        quiet: show no progress
    """

    models: Annotated[tuple[str, ...], "MODEL", POSITIONAL] = ()
    text: Annotated[tuple[str, ...], "TEXT", REPEATED] = ()
    out: Annotated[str, "FILE"] = "explore.html"
    overwrite: bool = False
    tour: Annotated[str, "FOLDER"] = "runs/tour"
    quiet: bool = False


def run(options: Options) -> int:
    """Write the page and print where it is."""
    check_file("--out", options.out, overwrite=options.overwrite, suffix=".html")
    prepare(options)
    from clockhands.exploring import explore, find_tour_models
    from clockhands.progress import ProgressCounter, ignore_count

    def say(text: str) -> None:
        if not options.quiet:
            print(text, file=sys.stderr, flush=True)

    runs = {} if options.models else find_tour_models(Path(options.tour), show=not options.quiet, say=say)
    sources = options.models or [run.path for run in runs.values()]
    command = write_command("explore", options, ("out", "overwrite", "tour", "quiet", "device", "threads"))
    with nullcontext(ignore_count) if options.quiet else ProgressCounter() as progress:
        page, models = explore(
            sources, options.out, texts=options.text, device=options.device, labels=list(runs), say=say,
            progress=progress, command=command,
        )  # fmt: skip
    live = sum(model.is_live for model in models)
    counts = [(live, "live model"), (len(models) - live, "recorded model")]
    summary = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count)
    print(f"The page: {page}  ({page.stat().st_size / 1e6:.2f} MB, {summary})")
    return 0
