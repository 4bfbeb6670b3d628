"""How much of the hidden state is position?"""

from __future__ import annotations

import math

import torch

from clockhands.findings import Figure, Finding, Panel, Table
from clockhands.inspection.drawing import mark, percent, untrained_as
from clockhands.inspection.reading.capture import WITHOUT_FIRST, Capture
from clockhands.shapes import Float, Tensor

METHOD = (
    "Two-way analysis of variance without approximation: h(text, t) = μ + pos_t + rest. The share is (SS_pos − "
    "(T−1)·MS_rest) / SS_total, from which the part that chance puts into SS_pos is already taken; without that a"
    " model with no position at all would score one over the number of texts. Interval: jackknife over the "
    "texts (Efron & Stein 1981). Untrained: fresh weights." + WITHOUT_FIRST
)


def unbiased_share(states_NTD: Float[Tensor, "N T D"]) -> float:
    """The share of variance due to the place, corrected for chance; 0 on average where there is none."""
    states = states_NTD.double()
    count, length, _ = states.shape
    mean = states.mean((0, 1))
    place = states.mean(0)
    total = float((states - mean).square().sum())
    between = count * float((place - mean).square().sum())
    noise = (total - between) / (length * (count - 1))
    return (between - (length - 1) * noise) / max(total, 1e-30)


def jackknife(states_NTD: Float[Tensor, "N T D"]) -> tuple[float, float]:
    """The 95 % interval of ``unbiased_share``, from the share without each of the N ≥ 3 texts in turn."""
    states = states_NTD.double()
    count, length, _ = states.shape
    left, places_TD, squares = count - 1, states.sum(0), states.square().sum()
    shares = []
    for text_TD in states:
        place_TD = (places_TD - text_TD) / left
        constant = length * place_TD.mean(0).square().sum()
        total = float(squares - text_TD.square().sum() - left * constant)
        between = float(left * (place_TD.square().sum() - constant))
        noise = (total - between) / (length * (left - 1))
        shares.append((between - (length - 1) * noise) / max(total, 1e-30))
    without = torch.tensor(shares, dtype=torch.float64)
    reach = 1.96 * math.sqrt(left / count * float((without - without.mean()).square().sum()))
    value = unbiased_share(states_NTD)
    return value - reach, value + reach


def stable_rank(states_NTD: Float[Tensor, "N T D"]) -> float:
    """Σσ² / σ₁² of the mean positions: how many directions they use."""
    place = states_NTD.double().mean(0)
    values = torch.linalg.svdvals(place - place.mean(0)).square()
    return float(values.sum() / values[0].clamp_min(1e-30))


def _shares(capture: Capture) -> list[tuple[float, float]]:
    kept = capture.counted_T
    return [(unbiased_share(states[:, kept]), stable_rank(states[:, kept])) for states in capture.hidden]


def share(capture: Capture, control: Capture | None = None) -> Finding:
    """The share of position in the hidden states of every layer."""
    found = _shares(capture)
    fresh = [value for value, _ in _shares(control)] if control else None
    along = [value for value, _ in found]
    peak = max(range(len(along)), key=along.__getitem__)
    untrained = f" (untrained {percent(fresh[0])} and {percent(fresh[-1])})" if fresh else ""
    x = list(range(len(along)))
    marks = [mark("line", x, torch.tensor(along), label="this model", emphasis="main")]
    if fresh is not None:
        marks.append(mark("line", x, torch.tensor(fresh), label="untrained", emphasis="null"))
    return Finding(
        name="survival.share",
        question="How much of the hidden state is position?",
        verdict=(
            f"{percent(along[0])} of the variance behind the embedding and {percent(along[-1])} behind the last "
            f"layer is due "
            f"to the place{untrained}; the most, {percent(along[peak])}, {_where(peak)}."
        ),
        value=along[-1],
        interval=jackknife(capture.hidden[-1][:, capture.counted_T]),
        references=untrained_as(fresh[-1] if fresh is not None else None),
        light="info",
        table=Table.of(
            ("layer", "share", "stable rank of the mean positions", "untrained"),
            [(i, value, rank, fresh[i] if fresh else None) for i, (value, rank) in enumerate(found)],
        ),
        figure=Figure((Panel(tuple(marks), xlabel="layer (0: embedding)", ylabel="share of variance"),)),
        method=METHOD,
        source="Song & Zhong 2023, with the bias removed",
    )


def _where(layer: int) -> str:
    return "behind the embedding" if layer == 0 else f"behind layer {layer}"
