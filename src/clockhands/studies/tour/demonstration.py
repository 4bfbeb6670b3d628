"""The tour: two studies of one seed, trained, measured and told on one page. Everything it says is a Finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from clockhands import __version__
from clockhands.files import lock_folder
from clockhands.findings import Finding, Findings, join_words
from clockhands.inspection import inspect
from clockhands.studies.tour.encoding_findings import find_encoding, find_loudness
from clockhands.studies.tour.result_findings import (
    find_attention,
    find_exact_match,
    find_examples,
    find_opening,
    find_roles,
    find_training_curves,
)
from clockhands.studies.tour.training import MAIN, TOUR, train_translators

CHOSEN = ("logits.layers", "heads.positional", "survival", "cause")
"""Those that every reader of a tour can follow; ``clockhands inspect`` has the others."""


COMMAND = "clockhands tour"
Say = Callable[[str], None]


def tour(
    out: str | Path = "runs/tour", *, overwrite: bool = False, show: bool = False, say: Say = lambda text: None
) -> Findings:
    """Train the translator of *numbers* into ``out``, and its variants into ``out/variants``; measure all.

    ``say`` is told what is being done; ``show`` draws the progress of every training. Raises UsageError if ``out``
    exists and ``overwrite`` is not given, BusyError if another process writes there.
    """
    with lock_folder(Path(out)):
        return _run_tour(Path(out), overwrite, show, say)


def _run_tour(out: Path, overwrite: bool, show: bool, say: Say) -> Findings:
    translators, comparisons = train_translators(out, overwrite=overwrite, show=show, say=say)
    say("measuring")
    main = translators[MAIN]
    # Those of ``clockhands inspect`` on the run, so that both pages say the same.
    inspected = inspect(main.run.path, command=f"clockhands inspect {main.run.path}")
    inside = [inspected[name] for name in CHOSEN]
    items: list[Finding] = [
        find_opening(translators),
        find_exact_match(TOUR["numbers"], comparisons["numbers"], translators),
        find_examples(translators),
        find_training_curves(translators),
        *find_encoding(main.run),
        find_loudness(translators),
        *(replace(finding, details={**finding.details, "group": "Inside the encoder"}) for finding in inside),
        find_roles(TOUR["roles"], comparisons["roles"], translators),
        find_attention(main.run, main.pairs[0]),
    ]
    record, training, config = main.run.record, main.run.recipe.training, main.run.recipe.model
    layers = " + ".join(str(config.count_layers(side)) for side in config.stack_sides)
    schemes = join_words(dict.fromkeys(config.get_position_config(side).name for side in config.stack_sides))
    return Findings(
        title="What word order is worth: a tour",
        items=tuple(items),
        facts={
            "model": f"Transformer, {config.architecture}, {layers} layers, d_model {config.d_model}, "
            f"{schemes} encoding",
            "parameters": record["parameters"],
            "trained on": f"numbers: German number words to English, {training.max_steps} steps of "
            f"{main.run.recipe.batches.size} pairs",
            "versions": f"clockhands {__version__}, torch {record['torch']}, transformers {record['transformers']}",
        },
        signature=f"tour|steps:{training.max_steps}|seed:{training.seed}|v:{__version__}",
        command=COMMAND,
        opening=("tour.exact", "tour.roles", "loudness.scale"),
    )
