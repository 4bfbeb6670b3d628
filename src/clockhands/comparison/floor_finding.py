"""Whether the models of a comparison know their text well enough to be compared on longer text: a finding."""

from __future__ import annotations

import numpy as np

from clockhands.comparison.plan import Plan
from clockhands.comparison.results import Comparison
from clockhands.comparison.trial_runner import load_material
from clockhands.data import CORPORA, WindowDataset
from clockhands.data.trigram import MARGIN, Floor, find_floor
from clockhands.findings import Finding, Reference, Table


def find_plan_floor(plan: Plan) -> Floor | None:
    """Return the floor of the text of the baseline; None where it is made, so that every answer is exact or wrong.

    A masked model predicts no next token, and has none either.
    """
    recipe = plan.recipe_of(plan.baseline, plan.seeds[0])
    if CORPORA[recipe.corpus].one_answer or recipe.model.kind == "encoder":
        return None
    material = load_material(recipe)
    window = material.train.length if isinstance(material.train, WindowDataset) else 0
    return find_floor(material.corpus, material.tokenizers, window)


def list_above(floor: Floor, comparison: Comparison) -> dict[str, float]:
    """Return the variants whose mean loss over seeds is not below the floor, with that loss."""
    losses = {
        variant.name: [trial.scores["loss"] for trial in comparison.trials_of(variant.name) if "loss" in trial.scores]
        for variant in comparison.plan.variants
    }
    means = {name: float(np.mean(values)) for name, values in losses.items() if values}
    return {name: mean for name, mean in means.items() if mean >= floor.bound}


def describe_floor(floor: Floor, comparison: Comparison) -> Finding:
    """Return the floor as a finding: which variants may be judged on longer text."""
    above = list_above(floor, comparison)
    named = ", ".join(f"{name} ({loss:.2f})" for name, loss in above.items())
    said = f"No claim about length is made of {named}." if above else "All variants are below it."
    return Finding(
        name="compare.floor",
        question="Do they know the text well enough to be judged on longer text?",
        verdict=f"{floor.sentence} {said}",
        value=floor.bound,
        unit="nats per token",
        references=(Reference("trigram", floor.trigram),),
        light="warn" if above else "good",
        table=Table.of(("variant above the floor", "loss"), list(above.items())),
        method=(
            f"Trigram of the training text with Witten-Bell smoothing, interpolated, on the same held-out tokens; the "
            f"floor is {MARGIN} nats per token below. A model that knows little more than three tokens has no use for "
            "longer text, so that its loss there says nothing about positions."
        ),
    )
