"""Interventions: what a model's output does when positions, or the order of the tokens, are changed.

In names of tensors ``N`` are texts, ``t`` their ordinary tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from clockhands.inspection.reading.capture import BATCH, Capture
from clockhands.models.input_table import Forward
from clockhands.models.subject import Subject
from clockhands.shapes import Float, Int, Tensor

INTERVENTIONS_NOTE = (
    " Shifted: every position k later (where the model has too few positions for that, in windows shortened by as many "
    "tokens as positions are missing, if at least half a window is left). Mean row: every position row replaced by the "
    "mean of the rows in use, a neutral baseline (row 0 is not: it is an outlier in most trained models). Permuted: "
    "the same tokens in another order. Others permuted: every eighth token stays where it is and the others change "
    "places; those that stay are measured. Interval: texts resampled."
)
"""What the interventions are, for the ``method`` of the measures that use them."""
STEPS = (1, 4, 16, 64)
"""How far all positions are shifted: a number of positions for each intervention."""
MOST_TEXTS = 24
"""Texts on which interventions are made."""
STAYING_EVERY = 8
"""One token in this many keeps its position while the others are permuted."""
LEAST_CHANGE = 1e-6
"""Relative squared changes below this are rounding."""

PERMUTED, OTHERS_PERMUTED, MEAN_ROW, ANOTHER_TEXT = (
    "tokens permuted",
    "other tokens permuted",
    "position rows replaced by their mean",
    "another text",
)
"""The names of interventions in tables; the last is no intervention (see ``Interventions``)."""


@dataclass(frozen=True)
class Effect:
    """What one intervention changes in the last states, text by text.

    ``token_change_N``: the mean squared change of a token's state, relative to the mean squared distance of the states
    of two tokens. ``mean_state_change_N``: the same for the mean state of a text; None where only some tokens are
    compared. ``cosine``: the cosine of the mean states before and after.
    """

    name: str
    token_change_N: Float[Tensor, " N"]
    mean_state_change_N: Float[Tensor, " N"] | None
    cosine: float | None = None

    @property
    def token_change(self) -> float:
        """The mean of ``token_change_N``."""
        return float(self.token_change_N.mean())

    @property
    def mean_state_change(self) -> float | None:
        """The mean of ``mean_state_change_N``; None where that is."""
        return None if self.mean_state_change_N is None else float(self.mean_state_change_N.mean())


def _run_last_states(run: Forward, capture: Capture, ids_NT: Int[Tensor, "N T"]) -> Float[Tensor, "N t D"]:
    """Return the last states of the ordinary tokens (t of T) of texts that may be shorter than those of ``capture``."""
    batches, ordinary_T = [], capture.ordinary_T[: ids_NT.shape[1]]
    for rows in torch.arange(len(ids_NT)).split(BATCH):
        states = run(ids_NT[rows], **capture.make_forward_options(rows))
        batches.append(states[-1].float().cpu()[:, ordinary_T])
    return torch.cat(batches)


def measure_squared_distance(rows_ND: Float[Tensor, "N D"]) -> float:
    """Return the mean squared distance of two different rows; 0 where they differ by rounding only."""
    centred = rows_ND.double() - rows_ND.double().mean(0)
    between = 2 * float(centred.square().sum()) / max(len(rows_ND) - 1, 1)
    return between if between > 1e-9 * float(rows_ND.double().square().sum(-1).mean()) else 0.0


def divide_by_distance(change_N: Float[Tensor, " N"], distance: float) -> Float[Tensor, " N"]:
    """Return squared changes relative to a squared distance; 0 where the distance is 0."""
    return change_N / distance if distance > 0 else torch.zeros_like(change_N)


def _compare_states(name: str, before_NtD: Tensor, after_NtD: Tensor) -> Effect:
    """Compare the states of every token, and their means over a text, before and after an intervention.

    Both are N × t × D, at the same tokens.
    """
    token_change_N = (after_NtD - before_NtD).square().sum(-1).mean(1)
    first, second = before_NtD.mean(1), after_NtD.mean(1)
    mean_state_change_N = (second - first).square().sum(-1)
    return Effect(
        name,
        divide_by_distance(token_change_N, measure_squared_distance(before_NtD.flatten(0, 1))),
        divide_by_distance(mean_state_change_N, measure_squared_distance(first)),
        float(F.cosine_similarity(first, second, dim=-1).mean()),
    )


@dataclass(frozen=True)
class Interventions:
    """The effects of all interventions that the model allows, by name.

    ``ANOTHER_TEXT`` among them is a reference, no intervention: each text against the one before it, the first against
    the last. ``token_distance`` is the mean squared distance of the last states of two tokens, ``text_distance`` that
    of the mean states of two texts; each is 0 where these are all equal, and changes cannot be measured by it.
    """

    effects: tuple[Effect, ...]
    token_distance: float
    text_distance: float

    def __getitem__(self, name: str) -> Effect:
        """Return the effect of an intervention that every model allows."""
        return next(effect for effect in self.effects if effect.name == name)

    @property
    def shifts(self) -> dict[int, Effect]:
        """The effects of shifting all positions, by how far; empty where they cannot be shifted."""
        steps = {f"shifted by {step}": step for step in STEPS}
        return {steps[effect.name]: effect for effect in self.effects if effect.name in steps}

    @property
    def order_matters(self) -> bool:
        """Whether the order of the tokens changes anything in the output."""
        permuted = self[PERMUTED]
        return (
            max(permuted.token_change, permuted.mean_state_change or 0.0, self[OTHERS_PERMUTED].token_change)
            > LEAST_CHANGE
        )


def draw_orders(count: int, texts: int, generator: torch.Generator) -> Int[Tensor, "N t"]:
    """Return a random order of ``count`` tokens for every text."""
    return torch.stack([torch.randperm(count, generator=generator) for _ in range(texts)])


def intervene(subject: Subject, capture: Capture) -> Interventions:
    """Run every intervention that this model allows."""
    ids_NT, ordinary_T = capture.ids_NT[:MOST_TEXTS], capture.ordinary_T
    before_NtD = _run_last_states(subject.forward, capture, ids_NT)
    token_distance = measure_squared_distance(before_NtD.flatten(0, 1))
    effects, length = [], ids_NT.shape[1]
    for step in STEPS:
        # Windows are cut so that no position is beyond the last that the model has, to half their length at most.
        cut = length if subject.max_length is None else min(length, subject.max_length - step)
        options = capture.make_forward_options(slice(1))
        if cut < length / 2 or subject.run_shifted(ids_NT[:1, :cut], step, **options) is None:
            continue
        shift: Any = partial(subject.run_shifted, step=step)  # it was just seen to shift so far
        after_NtD = _run_last_states(shift, capture, ids_NT[:, :cut])
        unshifted = before_NtD if cut == length else _run_last_states(subject.forward, capture, ids_NT[:, :cut])
        effects.append(_compare_states(f"shifted by {step}", unshifted, after_NtD))
    if subject.read_tables() is not None:
        with subject.average_positions(capture.length):
            after_NtD = _run_last_states(subject.forward, capture, ids_NT)
        effects.append(_compare_states(MEAN_ROW, before_NtD, after_NtD))

    # The ordinary tokens change places: each state is compared with that of its token at its new position.
    generator = torch.Generator().manual_seed(0)
    order_Nt = draw_orders(int(ordinary_T.sum()), len(ids_NT), generator)
    permuted_NT = ids_NT.clone()
    permuted_NT[:, ordinary_T] = ids_NT[:, ordinary_T].gather(1, order_Nt)
    moved_NtD = before_NtD.gather(1, order_Nt[:, :, None].expand_as(before_NtD))
    effects.append(_compare_states(PERMUTED, moved_NtD, _run_last_states(subject.forward, capture, permuted_NT)))

    # All but every eighth change places, the middle one of eight, so that also in fewer than eight tokens one stays.
    positions = ordinary_T.nonzero().flatten()
    stays = torch.arange(len(positions)) % STAYING_EVERY == min(STAYING_EVERY, len(positions)) // 2
    moving = positions[~stays]
    permuted_NT = ids_NT.clone()
    permuted_NT[:, moving] = ids_NT[:, moving].gather(1, draw_orders(len(moving), len(ids_NT), generator))
    after_NtD = _run_last_states(subject.forward, capture, permuted_NT)
    change_N = (after_NtD - before_NtD)[:, stays].square().sum(-1).mean(1)
    effects.append(Effect(OTHERS_PERMUTED, divide_by_distance(change_N, token_distance), None))
    effects.append(_compare_states(ANOTHER_TEXT, before_NtD, before_NtD.roll(1, dims=0)))
    return Interventions(tuple(effects), token_distance, measure_squared_distance(before_NtD.mean(1)))
