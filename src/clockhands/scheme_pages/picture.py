"""Make the figure of a scheme: its vectors, or what it does to queries and keys by distance and by position."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from clockhands.findings import Figure, Mark, Panel
from clockhands.scheme_pages.effect import (
    DISTANCES,
    PICTURE_SIZES,
    SMALLEST_CHANGE,
    Effect,
    compute_effect,
    make_positions,
)
from clockhands.scheme_pages.variants import complete_options
from clockhands.schemes import CATALOGUE
from clockhands.schemes.catalogue import build
from clockhands.schemes.scheme import Scheme
from clockhands.shapes import Float, Tensor

ROWS = 32
DRAWN_WITH: dict[str, dict[str, Any]] = {
    "rerope": {"window": 16},
    "self-extend": {"window": 12, "group": 8},
    "dual-chunk": {"original_length": 24},
    "temperature": {"length": 8},
    "window": {"left": 11},
    "chunks": {"size": 12},
    "composition": {"schemes": ["rope", {"scheme": "window", "left": 11}]},
}
"""Options of the picture of a scheme that at its usual ones acts only far from what a picture shows."""
STARTS_AT_ZERO = {"cope": 0.02}
"""Schemes that do nothing before they have learned, and the deviation of the numbers that are drawn in place of 0."""


def make_figure(name: str, overrides: Mapping[str, Any] | None = None) -> Figure:
    """Make the figure: the encoding as a heatmap with its similarity by distance, or the effect on each head."""
    torch.manual_seed(0)
    options = complete_options(name, overrides or DRAWN_WITH.get(name, {}))
    scheme = build(CATALOGUE, name, PICTURE_SIZES, options).eval()
    said = f"{name}{' with ' if options else ''}{', '.join(f'{key}={value}' for key, value in options.items())}"
    start = "as it starts"
    if name in STARTS_AT_ZERO:
        for parameter in scheme.parameters():
            torch.nn.init.normal_(parameter, std=STARTS_AT_ZERO[name])
        start = f"drawn from N(0, {STARTS_AT_ZERO[name]}²) where it starts at 0"
    said += f", {start}, with {PICTURE_SIZES.num_heads} heads of {PICTURE_SIZES.head_dim}"
    axes = scheme.declares.axes or 1
    along = f"; positions go along the last of {axes} axes" if axes > 1 else ""
    if adds_vectors(scheme):
        drawn = f"the vectors of the first {ROWS} positions, and the cosine of two by their distance"
        return Figure((make_encoding_panel(scheme), _make_similarity_panel(scheme)), f"{said}: {drawn}{along}")
    effect = compute_effect(scheme)
    drawn = f"{effect.quantity.caption}; hatched: later keys{' and those that are hidden' if effect.hides else ''}"
    return Figure((_make_curve_panel(effect), _make_place_panel(effect)), f"{said}: {drawn}{along}")


def adds_vectors(scheme: Scheme) -> bool:
    """Tell whether a scheme adds vectors at the embedding."""
    return "encode" in scheme.active_hooks()


@torch.no_grad()
def _compute_encoding(scheme: Scheme, length: int = ROWS) -> Float[Tensor, "S P"]:
    """Return the vectors of the first positions: [S, P]. Raises ValueError for a scheme that adds none."""
    vectors = scheme.encode(make_positions(scheme, 1, min(length, scheme.declares.max_length or length)))
    if vectors is None:
        raise ValueError(f"{type(scheme).__name__} adds no vectors, of which a picture was asked for")
    return vectors[0]


def make_encoding_panel(scheme: Scheme) -> Panel:
    """Make the heatmap of the vectors: rows are positions, columns are channels."""
    rows = tuple(tuple(row) for row in _compute_encoding(scheme).tolist())
    mark = Mark("heatmap", z=rows, diverging=min(map(min, rows)) < 0)
    return Panel((mark,), title="what is added", xlabel="channel", ylabel="position")


def _make_similarity_panel(scheme: Scheme) -> Panel:
    """Plot the cosine between the vectors of position 0 and of position r."""
    vectors = _compute_encoding(scheme, DISTANCES)
    cosine = torch.nn.functional.cosine_similarity(vectors[:1], vectors, dim=-1)
    if not bool(vectors[0].any()):
        cosine = torch.nn.functional.cosine_similarity(vectors[-1:], vectors.flip(0), dim=-1)
    line = Mark("line", x=tuple(range(len(cosine))), y=tuple(cosine.tolist()), emphasis="main")
    return Panel((line,), title="how alike positions are", xlabel="distance", ylabel="cosine")


def _make_curve_panel(effect: Effect) -> Panel:
    """Plot a line for each head by distance, or by the query's position where that alone decides."""
    curve_HR = effect.compute_curve()
    hidden_R = curve_HR.isnan().all(0)
    same = bool((curve_HR - curve_HR[:1]).nan_to_num().abs().max() < SMALLEST_CHANGE)
    chosen = curve_HR[:1] if same else curve_HR
    label = ["all heads"] if same else [f"head {head + 1}" for head in range(len(chosen))]
    span = tuple(range(curve_HR.shape[1]))
    marks = [Mark("line", said, x=span, y=_to_row(y)) for said, y in zip(label, chosen, strict=True)]
    if bool(hidden_R.any()):
        # A band over the distances that are hidden, as high as the lines, or of 1 where these are flat.
        seen = curve_HR[~curve_HR.isnan()]
        low, high = float(seen.min()), float(seen.max())
        low, high = (low - 0.5, high + 0.5) if high - low < SMALLEST_CHANGE else (low, high)
        lower, upper = [tuple(edge if hidden else math.nan for hidden in hidden_R.tolist()) for edge in (low, high)]
        marks.append(Mark("band", "hidden keys", x=span, low=lower, high=upper, emphasis="reference"))
    across = "position of the query" if effect.by_query else f"distance from the query at position {span[-1]}"
    quantity = effect.quantity
    return Panel(
        tuple(marks), quantity.title, xlabel=across, ylabel=quantity.in_all if effect.by_query else quantity.axis
    )


def _make_place_panel(effect: Effect) -> Panel:
    """Make the heatmap of the first head: rows are queries, columns keys, with no value where a key is hidden.

    What depends on distance alone is the same along every diagonal.
    """
    values_SS = effect.values_HSS[0, :ROWS, :ROWS]
    both_signs = bool((values_SS < -SMALLEST_CHANGE).any() and (values_SS > SMALLEST_CHANGE).any())
    mark = Mark("heatmap", z=tuple(map(_to_row, values_SS)), diverging=both_signs)
    what = effect.quantity.axis if effect.by_query else "the same"
    return Panel((mark,), title=f"{what} by position, head 1", xlabel="key", ylabel="query")


def _to_row(values: Tensor) -> tuple[float | None, ...]:
    """Return numbers, and None for NaN."""
    return tuple(None if math.isnan(value) else value for value in values.tolist())
