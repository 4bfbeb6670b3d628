"""What training gave, as a finding: the loss by length before and after, and what it costs on short text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from clockhands.comparison.simultaneous import compare_with_baseline
from clockhands.comparison.statistics import Difference
from clockhands.extension.choose import Choice
from clockhands.extension.drift import Drift, measure_drift, measure_losses
from clockhands.extension.judge import GUARD, Judged
from clockhands.extension.methods import read_by_cache
from clockhands.extension.text import Stream, cut_texts
from clockhands.extension.tuning import Tuning
from clockhands.findings import Figure, Finding, Mark, Panel, Reference, Table
from clockhands.models import LanguageModel
from clockhands.shapes import Float

__all__ = ["Tuned", "compare_tuned", "make_tuning_finding", "measure_short"]


@dataclass(frozen=True)
class Tuned:
    """A trained model against the same before training, on the text of the judgement.

    Args:
        drift: the loss of the last tokens after training, of N texts by length.
        cached: the same by a cache, where that changes it.
        before_NR: the same before training, with the same method.
        changes: of each length, the paired difference.
        cost: on texts of the trained length, against the model as it was, without the method; paired.
        short_loss: the loss of the latter there.
        steps_S: the loss of every step of the training.
    """

    drift: Drift
    cached: Drift | None
    before_NR: Float[np.ndarray, "N R"]
    changes: tuple[Difference, ...]
    cost: Difference
    short_loss: float
    steps_S: tuple[float, ...]


def measure_short(model: LanguageModel, stream: Stream, trained: int, texts: int) -> Float[np.ndarray, " N"]:
    """Measure the loss of texts of the trained length, all their tokens but the first."""
    return measure_losses(model, cut_texts(stream, trained, trained - 1, 4 * texts, model.start_ids), trained - 1)


def compare_tuned(
    tuned: LanguageModel, chosen: Judged, short_N: Float[np.ndarray, " N"], stream: Stream, choice: Choice,
    steps: list[float], texts: int,
) -> Tuned:  # fmt: skip
    """Measure a trained model as the chosen method was judged; ``short_N``: ``measure_short`` before it was changed."""

    def measure() -> Drift:
        count = len(chosen.drift.losses_NR)
        return measure_drift(tuned, stream, chosen.drift.lengths, tail=chosen.drift.tail, texts=count)

    drift, cached = measure(), None
    if chosen.cached is not None:
        with read_by_cache(tuned, chosen.method, choice.trained):
            cached = measure()
    places = range(len(drift.lengths))
    before_NR = chosen.drift.losses_NR
    changes = compare_with_baseline(
        [drift.losses_NR[:, [place]] for place in places], [before_NR[:, [place]] for place in places]
    )
    after_N = measure_short(tuned, stream, choice.trained, texts)
    (cost,) = compare_with_baseline([after_N[:, None]], [short_N[:, None]])
    return Tuned(drift, cached, before_NR, tuple(changes), cost, float(short_N.mean()), tuple(steps))


def make_tuning_finding(tuned: Tuned, tuning: Tuning, *, command: str, basis: Mapping[str, str]) -> Finding:
    """Return the finding of a training."""
    last = tuned.changes[-1]
    word = "falls" if last.high < 0 else "rises" if last.low > 0 else "is not shown to change"
    low, high = (100 * bound / tuned.short_loss for bound in (tuned.cost.low, tuned.cost.high))
    price = 100 * tuned.cost.value / tuned.short_loss
    kept = tuned.cost.inner[1] < GUARD * tuned.short_loss
    guard = f"shown to be below the guard of {GUARD:.0%}" if kept else f"not shown to be below {GUARD:.0%}"
    longest = tuned.drift.lengths[-1]
    verdict = (
        f"At {longest:,} tokens the loss {word}: {last.value:+.3f} nats [{last.low:+.3f}, {last.high:+.3f}]. "
        f"On texts of the trained length training and method cost {price:+.2f} % [{low:+.2f}, {high:+.2f}], {guard}."
    )
    before, after = tuned.before_NR.mean(0), tuned.drift.losses_NR.mean(0)
    rows = [(length, before[place], after[place], change.value, change.low, change.high)
            for place, (length, change) in enumerate(zip(tuned.drift.lengths, tuned.changes, strict=True))]  # fmt: skip
    windows = {"skip": "skip-wise, in windows of the trained length", "full": "in windows of the new length"}
    return Finding(
        "extend.trained",
        f"What did {tuning.steps:,} steps of training give?",
        verdict,
        last.value,
        "nats per token",
        (last.low, last.high),
        references=(Reference("before training", 0.0),),
        light="good" if last.high < 0 and kept else "warn",
        table=Table.of(["tokens", "before", "after", "change", "low", "high"], rows),
        figure=_draw_losses(tuned),
        method=f"Trained {windows[tuning.windows]}, on text that the judgement does not read. Paired by text.",
        source="PoSE (Zhu et al. 2024)" if tuning.windows == "skip" else "",
        command=command,
        details={"group": "What training gives"},
        basis=basis,
    )


def _draw_losses(tuned: Tuned) -> Figure:
    """Draw the losses by length before and after training, and the loss of every step."""
    before, after = tuned.before_NR.mean(0), tuned.drift.losses_NR.mean(0)
    names = tuple(f"{length:,}" for length in tuned.drift.lengths)
    lines = (
        Mark("line", "before training", x=names, y=tuple(map(float, before)), emphasis="reference"),
        Mark("line", "after", x=names, y=tuple(map(float, after)), emphasis="main"),
    )
    steps = Mark("line", "training", x=tuple(range(1, len(tuned.steps_S) + 1)), y=tuned.steps_S)
    panels = (
        Panel(lines, "Loss of the same last tokens", "tokens of text", "nats per token"),
        Panel((steps,), "Training", "step", "nats per token"),
    )
    return Figure(panels, columns=2, title="Before and after training, and the loss of its steps")
