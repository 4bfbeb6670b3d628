"""What the tour trains, as two studies of one seed each, and the translators that come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from clockhands.catalogue import Catalogue
from clockhands.comparison import Comparison, Plan, Trial
from clockhands.comparison.trial_runner import find_groups, load_material, score_items
from clockhands.data import Pair
from clockhands.generation import Evaluation, Score, evaluate
from clockhands.generation.score import bound_share
from clockhands.runs import Run, open_run
from clockhands.studies.study import Study, read_study
from clockhands.training import train
from clockhands.training.schedule import export_last

HERE = Path(__file__).parent
TOUR: Catalogue[Study] = Catalogue(
    "study of the tour",
    {name: read_study(HERE / f"{name}.toml") for name in ("numbers", "roles")},
    describe=lambda study: study.question,
)
MAIN, NO_POSITION, NO_SCALE = "as in the paper", "no positions", "no √d scale"
ROLES, ROLES_BLIND = "roles, as in the paper", "roles, no positions"
FOLDERS = {
    MAIN: ".", NO_POSITION: "variants/no-position", NO_SCALE: "variants/no-scale",
    ROLES: "variants/roles", ROLES_BLIND: "variants/roles-no-position",
}  # fmt: skip
"""Where each variant is trained, beneath the folder of the tour: the main model is the run that the user keeps."""


@dataclass(frozen=True)
class Translator:
    """One trained variant: its run with the model, and what it wrote for the test split."""

    variant: str
    run: Run
    evaluation: Evaluation
    pairs: list[Pair]

    @property
    def exact(self) -> Score:
        """Exact match in percent, with its exact interval over the test items; those of one group count as one."""
        score = next(score for score in self.evaluation.scores if score.name == "exact")
        groups = find_groups(self.pairs) or tuple(range(len(self.pairs)))
        low, high = bound_share(score.value / 100, len(set(groups)))
        return replace(score, low=100 * low, high=100 * high)

    @property
    def trial(self) -> Trial:
        """The same as a trial of a comparison."""
        items = score_items(self.evaluation, self.pairs, "exact")
        seed, groups = self.run.recipe.training.seed, find_groups(self.pairs)
        return Trial(self.variant, seed, "finished", split="test", items=items, groups=groups)


Translators = Mapping[str, Translator]
"""By the name of their variant."""


def train_translators(
    out: Path, *, overwrite: bool, show: bool, say: Callable[[str], None]
) -> tuple[dict[str, Translator], dict[str, Comparison]]:
    """Train every variant of the tour's studies; return them, and a comparison for each study. Raises as ``train``."""
    plans = {name: study.make_plan() for name, study in TOUR.items()}
    total = sum(len(plan.trials) for plan in plans.values())
    translators: dict[str, Translator] = {}
    for plan in plans.values():
        for variant, seed in plan.trials:
            say(f"training {len(translators) + 1} of {total}: {variant}")
            translators[variant] = _train(plan, variant, seed, out, overwrite=overwrite, show=show)
    comparisons = {
        name: Comparison(plan, {}, tuple(translators[variant].trial for variant, _ in plan.trials))
        for name, plan in plans.items()
    }
    return translators, comparisons


def _train(plan: Plan, variant: str, seed: int, out: Path, *, overwrite: bool, show: bool) -> Translator:
    recipe = export_last(plan.get_recipe(variant, seed))
    material = load_material(recipe)
    run = open_run(train(recipe, out / FOLDERS[variant], overwrite=overwrite, material=material, progress=show))
    pairs = material.corpus.pairs("test")
    return Translator(variant, run, evaluate(run, pairs), pairs)
