"""The tour: train, translate, measure. Everything it says is a Finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clockhands import __version__
from clockhands.data import Pair
from clockhands.findings import Finding, Findings
from clockhands.generation import Evaluation, evaluate
from clockhands.locking import hold
from clockhands.runs import Run, open_run
from clockhands.runs.recipe import combine
from clockhands.studies.tour import encoding_findings, inspection_findings, loudness_findings, result_findings
from clockhands.studies.tour.variants import MAIN, TRIALS, Trial
from clockhands.training import Material, prepare, train

COMMAND = "clockhands tour"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """One trained variant: its run, its model and how it did on the test split."""

    trial: Trial
    run: Run
    opened: Run
    evaluation: Evaluation
    pairs: list[Pair]

    @property
    def exact(self) -> float:
        """Exact match in percent."""
        return next(score.value for score in self.evaluation.scores if score.name == "exact")

    @property
    def interval(self) -> tuple[float, float]:
        """Of exact match, 95 %."""
        found = next(score for score in self.evaluation.scores if score.name == "exact")
        return found.low, found.high


def run_tour(
    out: str | Path = "runs/tour", *, overwrite: bool = False, show: bool = False, say: Say = lambda text: None
) -> Findings:
    """Train the translator of *numbers* into ``out``, and its variants into ``out/variants``; measure all.

    ``say`` is told what is being done; ``show`` draws the progress of every training. Raises UsageError if ``out``
    exists and ``overwrite`` is not given, BusyError if another process writes there.
    """
    with hold(Path(out)):
        return _tour(Path(out), overwrite, show, say)


def _tour(out: Path, overwrite: bool, show: bool, say: Say) -> Findings:
    results = _train(out, overwrite, show, say)
    say("measuring")
    main = results[MAIN.name]
    items: list[Finding] = [
        result_findings.translates(results),
        result_findings.examples(results),
        result_findings.curves(results),
        *encoding_findings.findings(main.opened),
        *loudness_findings.findings(results),
        *inspection_findings.findings(main.run.path),
        result_findings.roles(results),
        result_findings.attention(main.opened, main.pairs[0]),
    ]
    steps = main.run.recipe.training.max_steps
    return Findings(
        title="What word order is worth: a tour",
        items=tuple(items),
        facts={
            "model": "Transformer, encoder-decoder, 2 + 2 layers, d_model 64, sinusoidal encoding",
            "parameters": main.run.record["parameters"],
            "trained on": f"numbers: German number words to English, {steps} steps of 64 pairs",
            "versions": f"clockhands {__version__}, torch {main.run.record['torch']}, "
            f"transformers {main.run.record['transformers']}",
        },
        signature=f"tour|steps:{steps}|seed:{main.run.recipe.training.seed}|v:{__version__}",
        command=COMMAND,
    )


def _train(out: Path, overwrite: bool, show: bool, say: Say) -> dict[str, Result]:
    materials: dict[str, Material] = {}
    results: dict[str, Result] = {}
    for number, trial in enumerate(TRIALS, 1):
        say(f"training {number} of {len(TRIALS)}: {trial.label}")
        recipe = combine(dict(trial.recipe), trial.changes)
        if recipe.corpus not in materials:
            materials[recipe.corpus] = prepare(recipe)
        material = materials[recipe.corpus]
        folder = out / "variants" / trial.name if trial.name else out
        run = train(recipe, folder, overwrite=overwrite, material=material, progress=show)
        pairs = material.corpus.pairs("test")
        opened = open_run(run)
        results[trial.name] = Result(trial, run, opened, evaluate(opened, pairs), pairs)
    return results
