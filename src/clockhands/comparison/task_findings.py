"""Whether a task can tell variants apart: how much of it is done without order, and who knows the text well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from clockhands.comparison.plan import Plan
from clockhands.comparison.results import Comparison
from clockhands.comparison.trial_runner import load_material
from clockhands.data import CORPORA, Ceiling
from clockhands.data.bounds import MARGIN, Floor
from clockhands.findings import Finding, Reference, Table, join_words


def find_plan_ceiling(plan: Plan) -> Ceiling:
    """Return the order-blind ceiling of the task of the baseline."""
    return load_material(plan.get_recipe(plan.baseline, plan.seeds[0])).find_ceiling()


def describe_ceiling(ceiling: Ceiling, despite: Mapping[str, str] | None = None) -> Finding:
    """Return the ceiling as a finding, with the reasons why the task is used ``despite`` something."""
    return Finding(
        name="compare.ceiling",
        question="Can the task be done without order?",
        verdict=" ".join([ceiling.sentence, *(despite or {}).values()]),
        value=100 * ceiling.share,
        unit="%",
        interval=None if ceiling.low == ceiling.high else (100 * ceiling.low, 100 * ceiling.high),
        method=(
            "All sources with the same bag of tokens get one answer, the one that is right most often; the share that "
            "is then right, over the population from which the corpus draws."
        ),
    )


def find_plan_floor(plan: Plan) -> Floor | None:
    """Return the floor of the baseline's text; None for a corpus that is generated, and for a masked model.

    In a generated corpus every answer is right or wrong; a masked model predicts no next token. Where each seed trains
    on a draw of the text of its own, each of these texts has a trigram, and the floor is of their mean.
    """
    seeds = plan.seeds if plan.redraw_text else plan.seeds[:1]
    recipes = [plan.get_recipe(plan.baseline, seed) for seed in seeds]
    # Asked before the text is read, which takes long for some.
    if CORPORA[recipes[0].corpus].one_answer:
        return None
    floors = [load_material(recipe).find_floor() for recipe in recipes]
    known = [floor for floor in floors if floor is not None]
    if len(known) < len(floors):
        return None
    return replace(known[-1], trigram=float(np.mean([floor.trigram for floor in known])), texts=len(known))


def list_above(floor: Floor, comparison: Comparison) -> dict[str, float]:
    """Return the variants whose mean loss over seeds is not below the floor, with that loss."""
    return {name: loss for name, loss in _average_losses(comparison).items() if loss >= floor.bound}


def _average_losses(comparison: Comparison) -> dict[str, float]:
    """Return the mean loss over seeds of each variant of which a trial has one."""
    losses = {
        variant.name: [trial.scores["loss"] for trial in comparison.get_trials(variant.name) if "loss" in trial.scores]
        for variant in comparison.plan.variants
    }
    return {name: float(np.mean(values)) for name, values in losses.items() if values}


def describe_floor(floor: Floor, comparison: Comparison) -> Finding:
    """Return the floor as a finding: which variants may be judged on longer text, and of which no loss is known yet."""
    above, known = list_above(floor, comparison), _average_losses(comparison)
    unknown = [variant.name for variant in comparison.plan.variants if variant.name not in known]
    sentences = [floor.sentence]
    if above:
        named = join_words(f"{name} ({loss:.2f})" for name, loss in above.items())
        sentences.append(f"No claim about length is made of {named}.")
    elif known:
        sentences.append("All others are below it." if unknown else "All variants are below it.")
    if unknown:
        sentences.append(f"No loss is known of {join_words(unknown)}.")
    return Finding(
        name="compare.floor",
        question="Do they know the text well enough to be judged on longer text?",
        verdict=" ".join(sentences),
        value=floor.bound,
        unit="nats per token",
        references=(Reference("trigram", floor.trigram),),
        light="warn" if above else "good" if known else "info",
        table=Table.of(("variant above the floor", "loss"), list(above.items())),
        method=(
            f"Trigram of each training text with Witten-Bell smoothing, interpolated, on the same held-out tokens; the "
            f"floor is {MARGIN} nats per token below. A model that knows little more than three tokens has no use for "
            "longer text, so that its loss there says nothing about positions."
        ),
    )
