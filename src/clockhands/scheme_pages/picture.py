"""Make the figure of a scheme: its vectors, or the logits of equal contents at growing distance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from clockhands import positions
from clockhands.attention import attend_reference
from clockhands.errors import PositionError
from clockhands.findings import Figure, Mark, Panel
from clockhands.schemes import CATALOGUE
from clockhands.schemes.catalogue import Sizes, build
from clockhands.schemes.scheme import Scheme
from clockhands.shapes import Float, Tensor

PICTURE_SIZES = Sizes(width=64, d_model=64, num_heads=8, head_dim=32, num_layers=2, causal=True)
DISTANCES, DRAWS, ROWS = 64, 32, 32
DRAWN_WITH: dict[str, dict[str, Any]] = {
    "rerope": {"window": 16},
    "self-extend": {"window": 12, "group": 8},
    "dual-chunk": {"original_length": 24},
    "temperature": {"length": 8},
    "chunks": {"size": 12},
}
"""Options of the picture of a scheme that at its usual ones acts only far from what a picture shows."""


def make_figure(name: str, overrides: Mapping[str, Any] | None = None) -> Figure:
    """Make the figure: the encoding as a heatmap with its similarity by distance, or the logits of each head."""
    torch.manual_seed(0)
    options = overrides or DRAWN_WITH.get(name, {})
    scheme = build(CATALOGUE, name, PICTURE_SIZES, options).eval()
    said = f"{name}{' with ' if options else ''}{', '.join(f'{key}={value}' for key, value in options.items())}"
    panels = (
        (make_encoding_panel(scheme), make_similarity_panel(scheme))
        if adds_vectors(scheme)
        else (make_logit_panel(scheme), make_place_panel(scheme))
    )
    return Figure(
        panels, caption=f"{said}, as it starts, with {PICTURE_SIZES.num_heads} heads of {PICTURE_SIZES.head_dim}"
    )


def adds_vectors(scheme: Scheme) -> bool:
    """Tell whether a scheme adds vectors at the embedding."""
    return "encode" in scheme.active_hooks()


def make_positions(scheme: Scheme, batch: int, length: int) -> Tensor:
    """Return positions for a picture: those of a text, or a line along the last of several axes."""
    pos_BS = positions.count_up(batch, length)
    axes = scheme.declares.axes
    if axes in (None, 1):
        return pos_BS
    return torch.stack([torch.zeros_like(pos_BS)] * (axes - 1) + [pos_BS], dim=-1)


@torch.no_grad()
def compute_encoding(scheme: Scheme, length: int = ROWS) -> Float[Tensor, "S P"]:
    """Return the vectors of the first positions: [S, P]. Raises ValueError for a scheme that adds none."""
    vectors = scheme.encode(make_positions(scheme, 1, min(length, scheme.declares.max_length or length)))
    if vectors is None:
        raise ValueError(f"{type(scheme).__name__} adds no vectors, of which a picture was asked for")
    return vectors[0]


def make_encoding_panel(scheme: Scheme) -> Panel:
    """Make the heatmap of the vectors: rows are positions, columns are channels."""
    rows = tuple(tuple(row) for row in compute_encoding(scheme).tolist())
    mark = Mark("heatmap", z=rows, diverging=min(map(min, rows)) < 0)
    return Panel((mark,), title="what is added", xlabel="channel", ylabel="position")


def make_similarity_panel(scheme: Scheme) -> Panel:
    """Plot the cosine between the vectors of position 0 and of position r."""
    vectors = compute_encoding(scheme, DISTANCES)
    cosine = torch.nn.functional.cosine_similarity(vectors[:1], vectors, dim=-1)
    if not bool(vectors[0].any()):
        cosine = torch.nn.functional.cosine_similarity(vectors[-1:], vectors.flip(0), dim=-1)
    line = Mark("line", x=tuple(range(len(cosine))), y=tuple(cosine.tolist()), emphasis="main")
    return Panel((line,), title="how alike positions are", xlabel="distance", ylabel="cosine")


def make_logit_panel(scheme: Scheme) -> Panel:
    """Plot a line for each head: the logit of equal contents at distance r less that at distance 0."""
    curve_HR = compute_logits_by_distance(scheme)
    span = tuple(range(curve_HR.shape[1]))
    same = bool((curve_HR - curve_HR[:1]).abs().max() < 1e-6)
    chosen = curve_HR[:1] if same else curve_HR
    label = ["all heads"] if same else [f"head {head + 1}" for head in range(len(chosen))]
    marks = (Mark("line", said, x=span, y=tuple(y)) for said, y in zip(label, chosen.tolist(), strict=True))
    return Panel(tuple(marks), title="the logit of equal content", xlabel="distance", ylabel="logit, less that at 0")


def make_place_panel(scheme: Scheme) -> Panel:
    """Make the heatmap of the logits of equal contents in the first head: rows are queries, columns earlier keys.

    What depends on distance alone is the same along every diagonal.
    """
    logits_SS = compute_logits_by_place(scheme)
    rows = tuple(tuple(row) for row in logits_SS.tolist())
    mark = Mark("heatmap", z=rows, diverging=bool((logits_SS < 0).any() and (logits_SS > 0).any()))
    return Panel((mark,), title="the same by position, head 1", xlabel="key", ylabel="query")


@torch.no_grad()
def compute_logits_by_place(scheme: Scheme, length: int = ROWS) -> Float[Tensor, "S S"]:
    """Return the mean over random contents of head 1's logits, less that of each token with itself: [S, S].

    Later keys have the least of them.
    """
    length = min(length, scheme.declares.max_length or length)
    try:
        logits_SS = _compute_equal_logits(scheme, length)[:, 0].mean(0)
    except PositionError:
        return compute_logits_by_place(scheme, length // 2)
    logits_SS = logits_SS - logits_SS.diagonal()[:, None]
    before_SS = torch.ones_like(logits_SS, dtype=torch.bool).tril() & logits_SS.isfinite()
    return logits_SS.where(before_SS, logits_SS[before_SS].min())


@torch.no_grad()
def compute_logits_by_distance(scheme: Scheme, length: int = DISTANCES) -> Float[Tensor, "H R"]:
    """Return the mean over random contents of the last query's logits, all keys having its content: [H, R].

    Where a table is shorter than ``length``, half of that is tried, and so on.
    """
    length = min(length, scheme.declares.max_length or length)
    try:
        return _logits_by_distance(scheme, length)
    except PositionError:
        return compute_logits_by_distance(scheme, length // 2)


def _logits_by_distance(scheme: Scheme, length: int) -> Float[Tensor, "H R"]:
    curve_HR = _compute_equal_logits(scheme, length)[:, :, -1].mean(0).flip(-1)
    return (curve_HR - curve_HR[:, :1]).nan_to_num(neginf=float(curve_HR[curve_HR.isfinite()].min()) - 1)


def _compute_equal_logits(scheme: Scheme, length: int) -> Float[Tensor, "B H S S"]:
    """Compute the logits of texts in which every token has the same content."""
    generator = torch.Generator().manual_seed(0)
    content = torch.randn(DRAWS, PICTURE_SIZES.num_heads, 1, PICTURE_SIZES.head_dim, generator=generator)
    same = content.expand(-1, -1, length, -1)
    x_BSD = torch.randn(DRAWS, 1, PICTURE_SIZES.d_model, generator=generator).expand(-1, length, -1)
    pos = make_positions(scheme, DRAWS, length)
    located = scheme.locate(x_BSD, pos, None)
    pos = pos if located is None else located
    return attend_reference(scheme, same, same, same, pos, pos, causal=True).logits_BHST
