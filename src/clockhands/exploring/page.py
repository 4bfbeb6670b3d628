"""From runs to the page: one file that holds the models, and asks for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from clockhands import __version__
from clockhands.data import Pair, open_corpus
from clockhands.errors import UsageError
from clockhands.exploring.measuring import measure
from clockhands.exploring.model_data import ExplorerModel, describe_model
from clockhands.exploring.story import compose_findings
from clockhands.exploring.support import check_support
from clockhands.report.explorer_page import make_explorer_page
from clockhands.runs import Run
from clockhands.studies.measured import read_answers

__all__ = ["HELD_OUT", "make_page", "name_models", "prepare_model"]

HELD_OUT = 200
"""The most held-out sentences that stand in a page."""


def name_models(runs: Sequence[Run]) -> list[str]:
    """Return a key for each run: the name of its folder; a number is added where two have one name."""
    names: list[str] = []
    for run in runs:
        base = "".join(letter if letter.isalnum() else "-" for letter in run.path.resolve().name) or "model"
        same = sum(name == base or name.startswith(f"{base}-") for name in names)
        names.append(f"{base}-{same + 1}" if same else base)
    return names


def prepare_model(run: Run, name: str, label: str) -> ExplorerModel:
    """Describe the model of a run and count what the controls do to it.

    Raises UsageError if it does not run in a page or its corpus holds nothing to translate.
    """
    check_support(run)
    task, pairs = _read_held_out(run)
    model = describe_model(run, name, label, task, pairs)
    model.data["measured"] = measure(run, pairs)
    return model


def _read_held_out(run: Run) -> tuple[str, list[Pair]]:
    """Return what the corpus of a run is, and its first held-out pairs."""
    recipe = run.recipe
    corpus = open_corpus(recipe.corpus, **recipe.corpus_options)
    split = next((name for name in ("test", "validation") if name in corpus), None)
    if split is None:
        raise UsageError(
            f"the corpus {corpus.name!r} of {run.path} has no split test or validation, and a page counts over "
            "held-out sentences"
        )
    return corpus.description or corpus.name, corpus.pairs(split)[:HELD_OUT]


def make_page(models: Sequence[ExplorerModel], command: str) -> str:
    """Return the page of these models, as text; ``command`` is what wrote it."""
    findings = compose_findings(models, command)
    data = {"version": __version__, "command": command, "models": [model.data for model in models]}
    data["findings"] = [
        {"name": finding.name, "question": finding.question, "verdict": finding.verdict, "command": command}
        for finding in findings
    ]
    weights = {model.data["weights"]["element"]: model.weights for model in models}
    return make_explorer_page(
        findings, read_answers(), data, weights, script=_read_bundle("explorer.js"), style=_read_bundle("explorer.css")
    )


def _read_bundle(name: str) -> str:
    return files("clockhands.exploring").joinpath("bundle", name).read_text(encoding="utf8")
