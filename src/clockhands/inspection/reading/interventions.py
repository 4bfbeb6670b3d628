"""Interventions: what a model's output does when positions, or the order of the tokens, are changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional as F

from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.subject.subject import Subject
from clockhands.shapes import Float, Int, Tensor

INTERVENTIONS = (
    " Shifted: every position k later (where the table ends before that, in windows cut by as much, at most by half). "
    "Mean row: every position row replaced by the mean of the rows in use, a neutral baseline (row 0 is not: it is an "
    "outlier in most trained models). Permuted: the same tokens in another order. Others permuted: every eighth token "
    "stays where it is and the others change places; those that stay are measured. Interval: texts resampled."
)
"""For the method of every measure that uses them."""
STEPS = (1, 4, 16, 64)
"""Places by which all positions are moved."""
MOST_TEXTS = 24
STAYING = 8
"""One token in so many stays where it is while the others are permuted."""
CHANGED = 1e-6
"""Squared changes below this part of a distance are rounding."""

PERMUTED, OTHERS, MEAN_ROW, ANOTHER = (
    "tokens permuted",
    "other tokens permuted",
    "position rows replaced by their mean",
    "another text",
)


@dataclass(frozen=True)
class Effect:
    """One intervention: relative squared change per text of a token's state and of the texts' mean state.

    ``cosine`` is that of the mean states before and after. ``pooled_N`` is None where only some tokens are compared.
    """

    name: str
    tokens_N: Float[Tensor, " N"]
    pooled_N: Float[Tensor, " N"] | None
    cosine: float | None = None

    @property
    def tokens(self) -> float:
        """The change of a token's state."""
        return float(self.tokens_N.mean())

    @property
    def pooled(self) -> float | None:
        """The change of a text's mean state."""
        return None if self.pooled_N is None else float(self.pooled_N.mean())


Run = Callable[..., tuple[Tensor, ...] | None]


def last_states(run: Run, capture: Capture, ids_NT: Int[Tensor, "N T"]) -> Float[Tensor, "N t D"] | None:
    """Compute the last states of the tokens that count; None if ``run`` cannot. Windows may be cut."""
    batches, ordinary_T = [], capture.ordinary_T[: ids_NT.shape[1]]
    for rows in torch.arange(len(ids_NT)).split(8):
        states = run(ids_NT[rows], **capture.forward_options(rows))
        if states is None:
            return None
        batches.append(states[-1].float().cpu()[:, ordinary_T])
    return torch.cat(batches)


def squared_distance(rows_ND: Float[Tensor, "N D"]) -> float:
    """Return the mean squared distance of two different rows; 0 where they differ by rounding only."""
    centred = rows_ND.double() - rows_ND.double().mean(0)
    between = 2 * float(centred.square().sum()) / max(len(rows_ND) - 1, 1)
    return between if between > 1e-9 * float(rows_ND.double().square().sum(-1).mean()) else 0.0


def relative_change(change_N: Float[Tensor, " N"], distance: float) -> Float[Tensor, " N"]:
    """Return changes as parts of a distance; 0 where there is no distance, so that nothing can be told."""
    return change_N / distance if distance > 0 else torch.zeros_like(change_N)


def compare_states(name: str, before_NtD: Tensor, after_NtD: Tensor) -> Effect:
    """Compare the states of every token, and their means, before and after: both N × t × D, the same tokens."""
    tokens = (after_NtD - before_NtD).square().sum(-1).mean(1)
    first, second = before_NtD.mean(1), after_NtD.mean(1)
    pooled = (second - first).square().sum(-1)
    return Effect(
        name,
        relative_change(tokens, squared_distance(before_NtD.flatten(0, 1))),
        relative_change(pooled, squared_distance(first)),
        float(F.cosine_similarity(first, second, dim=-1).mean()),
    )


@dataclass(frozen=True)
class Interventions:
    """The effects of all interventions that the model allows, by name."""

    effects: tuple[Effect, ...]

    def __getitem__(self, name: str) -> Effect:
        return next(effect for effect in self.effects if effect.name == name)

    def get(self, name: str) -> Effect | None:
        """Return the effect of an intervention; None where the model does not allow it."""
        return next((effect for effect in self.effects if effect.name == name), None)

    @property
    def shifts(self) -> dict[int, Effect]:
        """The effects of shifting all positions, by how far; empty where they cannot be shifted."""
        effects = {step: self.get(f"shifted by {step}") for step in STEPS}
        return {step: effect for step, effect in effects.items() if effect is not None}

    @property
    def order_matters(self) -> bool:
        """Whether order changes anything in the output."""
        permuted = self[PERMUTED]
        return max(permuted.tokens, permuted.pooled or 0.0, self[OTHERS].tokens) > CHANGED


def intervene(subject: Subject, capture: Capture) -> Interventions:
    """Run every intervention that this model allows."""
    ids = capture.ids_NT[:MOST_TEXTS]
    before = last_states(subject.forward, capture, ids)
    assert before is not None
    found = [_shifted(subject, capture, ids, step, before) for step in STEPS]
    if subject.read_tables() is not None:
        with subject.without_positions(capture.length):
            after = last_states(subject.forward, capture, ids)
        assert after is not None
        found.append(compare_states(MEAN_ROW, before, after))
    generator = torch.Generator().manual_seed(0)
    found.append(_permuted(subject, capture, ids, before, generator))
    found.append(_others_permuted(subject, capture, ids, before, generator))
    found.append(compare_states(ANOTHER, before, before.roll(1, dims=0)))
    return Interventions(tuple(effect for effect in found if effect is not None))


def draw_orders(count: int, texts: int, generator: torch.Generator) -> Int[Tensor, "N t"]:
    """One random order of ``count`` tokens for every text."""
    return torch.stack([torch.randperm(count, generator=generator) for _ in range(texts)])


def _permuted(
    subject: Subject, capture: Capture, ids_NT: Tensor, before_NtD: Tensor, generator: torch.Generator
) -> Effect:
    """All tokens in another order, each followed to its new place."""
    kept = capture.ordinary_T
    order_Nt = draw_orders(int(kept.sum()), len(ids_NT), generator)
    permuted = ids_NT.clone()
    permuted[:, kept] = ids_NT[:, kept].gather(1, order_Nt)
    after = last_states(subject.forward, capture, permuted)
    assert after is not None
    moved = before_NtD.gather(1, order_Nt[:, :, None].expand_as(before_NtD))
    return compare_states(PERMUTED, moved, after)


def _others_permuted(
    subject: Subject, capture: Capture, ids_NT: Tensor, before_NtD: Tensor, generator: torch.Generator
) -> Effect:
    """Every eighth token stays and the others change places; what happens to those that stay."""
    places = capture.ordinary_T.nonzero().flatten()
    stays = torch.arange(len(places)) % STAYING == min(STAYING, len(places)) // 2
    moving = places[~stays]
    permuted = ids_NT.clone()
    permuted[:, moving] = ids_NT[:, moving].gather(1, draw_orders(len(moving), len(ids_NT), generator))
    after = last_states(subject.forward, capture, permuted)
    assert after is not None
    change = (after - before_NtD)[:, stays].square().sum(-1).mean(1)
    return Effect(OTHERS, relative_change(change, squared_distance(before_NtD.flatten(0, 1))), None)


def _shifted(subject: Subject, capture: Capture, ids_NT: Tensor, step: int, before_NtD: Tensor) -> Effect | None:
    """All positions ``step`` later, in windows short enough for the rows that there are; None if that is too short."""
    length = ids_NT.shape[1]
    room = length if subject.max_length is None else min(length, subject.max_length - step)
    if room < length / 2:
        return None
    after = last_states(partial(subject.run_shifted, step=step), capture, ids_NT[:, :room])
    if after is None:
        return None
    unmoved = before_NtD if room == length else last_states(subject.forward, capture, ids_NT[:, :room])
    assert unmoved is not None
    return compare_states(f"shifted by {step}", unmoved, after)
