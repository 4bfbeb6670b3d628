"""Settings of a plan besides its variants, read and checked: seeds, budget, metric, measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clockhands.data import CORPORA
from clockhands.errors import describe_unknown, show_value
from clockhands.findings import Number
from clockhands.options import LARGEST_SEED, check_value, fits
from clockhands.runs.recipe import Recipe

METRICS = {"exact": "exact match %", "bleu": "BLEU", "chrf": "chrF of a sentence", "loss": "loss, nats per token"}
"""What variants are judged by: the name in a plan, and on pages."""
MARGINS = {"exact": 1.0, "bleu": 0.3, "chrf": 0.3, "loss": 0.01}
"""Smaller differences count as equal, unless the plan sets another margin: in points, or nats per token."""
MATCHES = ("width", "parameters", "compute")
"""What all variants can have alike besides their budget."""
BUDGETS = ("steps", "tokens", "seconds")
"""What the training of every variant can be limited by."""
MOST_SEEDS = 1000
"""The most seeds of a plan."""
MEASURES = (
    "loudness", "channels", "participation", "directions", "recovery", "louder", "shift", "survival", "terms", "mixing",
)  # fmt: skip
"""What can be measured inside the models: names in ``inside = [...]`` of a plan."""


def read_seeds(seeds: int | Sequence[int], faults: list[str]) -> tuple[int, ...]:
    """Return the seeds that a count (1 to it) or a list means. Faults are added to the list."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if seeds < 1:
            faults.append(f"seeds is {show_value(seeds)}; one at least (and 5 for a verdict)")
        if seeds > MOST_SEEDS:
            faults.append(f"seeds is {show_value(seeds)}; at most {MOST_SEEDS:,} are trained")
        return tuple(range(1, min(seeds, MOST_SEEDS) + 1))
    numbers = list(seeds) if isinstance(seeds, (list, tuple)) else []
    right = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= LARGEST_SEED]
    if not numbers or len(right) < len(numbers) or len(set(right)) < len(numbers):
        faults.append(
            f"seeds is {show_value(seeds)}, but must be a count or a list of different whole numbers "
            f"(0 to {LARGEST_SEED})"
        )
        return ()
    return tuple(right)


def read_budget(budget: Mapping[str, Number] | None, recipe: Recipe, faults: list[str]) -> tuple[str, Number]:
    """Return kind and amount of the budget, by default the recipe's steps. Faults are added to the list."""
    if budget is None:
        steps = recipe.training.max_steps
        if steps is None:
            faults.append("the recipe counts epochs; say what all variants get: a budget of steps, tokens or seconds")
        return "steps", steps or 0
    if not isinstance(budget, Mapping) or len(budget) != 1 or next(iter(budget)) not in BUDGETS:
        faults.append(f"budget is {show_value(budget)}, but must be one of steps, tokens, seconds with its amount")
        return "steps", 0
    kind, amount = next(iter(budget.items()))
    if not fits(amount, float) or amount <= 0:
        faults.append(f"the budget of {kind} is {show_value(amount)}, but must be a finite number above 0")
        return kind, 0
    return kind, amount


def check_scores(margin: Number | None, learned: Number | None) -> list[str]:
    """Return the faults of a margin, and of the score from which a seed has learned."""
    faults = check_value("margin", margin, float | None) + check_value("learned", learned, float | None)
    if not faults and margin is not None and margin <= 0:
        faults.append(f"margin is {show_value(margin)}, but must be above 0: differences below it count as equal")
    return faults


def choose_metric(recipe: Recipe) -> str:
    """Return the metric of the recipe's task."""
    if recipe.task == "language modelling":
        return "loss"
    return "exact" if CORPORA[recipe.corpus].one_answer else "chrf"


def check_architecture(recipe: Recipe, metric: str) -> list[str]:
    """Return what cannot be compared with the recipe's architecture."""
    if recipe.model.architecture == "encoder":
        return ["a masked language model writes nothing that could be scored; compare translators or language models"]
    if recipe.model.architecture == "decoder" and metric != "loss":
        return [f"metric is {metric!r}, which scores translations; a language model has 'loss'"]
    return []


EXCEPTIONS = {
    "ceiling": "much of the task can be done without order",
    "baseline": "the baseline gets nearly everything right",
    "floor": "the baseline knows its text too little to be judged on longer text",
}
"""What can speak against a task, and against its use in a study."""


def check_despite(despite: Mapping[str, str] | None) -> list[str]:
    """Return a fault for everything that is no exception, and for every exception without a reason."""
    if despite is None:
        return []
    faults = [describe_unknown("exception in despite", name, EXCEPTIONS) for name in despite if name not in EXCEPTIONS]
    empty = [name for name in despite if name in EXCEPTIONS and not str(despite[name]).strip()]
    return faults + [f"despite.{name} is empty, but must say why, although {EXCEPTIONS[name]}" for name in empty]


def format_margin(margin: float, unit: str) -> str:
    """Return a margin with its unit, which is in the singular after 1.

    >>> format_margin(1.0, "points of BLEU")
    '1 point of BLEU'
    """
    return f"{margin:g} {unit.replace('points', 'point').replace('nats', 'nat') if margin == 1 else unit}"
