"""Make the figure of a scheme: its vectors, or what it does to every query and earlier key.

That is shown in the quantity in which it can be seen: logits, weights or a factor, by distance and by position.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from clockhands import positions
from clockhands.attention import RecordedAttention, attend_reference
from clockhands.errors import PositionError
from clockhands.findings import Figure, Mark, Panel
from clockhands.scheme_pages.variants import complete_options
from clockhands.schemes import CATALOGUE, NoPosition
from clockhands.schemes.catalogue import Sizes, build
from clockhands.schemes.scheme import Scheme
from clockhands.shapes import Float, Tensor

PICTURE_SIZES = Sizes(width=64, d_model=64, num_heads=8, head_dim=32, num_layers=2, causal=True)
DISTANCES, DRAWS = 64, 32
SMALLEST_CHANGE = 1e-6
"""Values that differ by less are alike: their difference is rounding."""


class _Quantity(NamedTuple):
    """A number of every query and key: its name in the title of a picture, at its axis and in the caption.

    ``in_all`` is the name at the axis where the picture shows one number for each query.
    """

    title: str
    axis: str
    caption: str
    in_all: str = ""


_OWN = "the logit of a key that has the content of the query, less that of the query with itself"
LOGIT = _Quantity(
    "the logit of equal content", "logit, less that at 0", f"{_OWN}, in the mean of {DRAWS} random contents"
)
PLACED_LOGIT = _Quantity(
    "the logit of equal content, at the places of random tokens", "logit, less that at 0",
    f"{_OWN}, in one text of random tokens, which place themselves",
)  # fmt: skip
WEIGHT = _Quantity(
    "the attention weight, where every key scores 1", "attention weight",
    "attention weights, where q·k/√d is 1 for every key before positions enter", "weight of all keys together",
)  # fmt: skip
FACTOR = _Quantity(
    "what every logit is multiplied by", "factor", "the factor by which every logit of a query is multiplied", "factor"
)


@dataclass(frozen=True)
class _DrawnEffect:
    """A quantity of every head, query and key; NaN where the query may not attend to the key."""

    quantity: _Quantity
    values_HSS: Float[Tensor, "H S S"]

    @property
    def hides(self) -> bool:
        """Whether the scheme hides earlier keys from any query."""
        later_SS = torch.ones_like(self.values_HSS[0], dtype=torch.bool).triu(1)
        return bool((self.values_HSS.isnan() & ~later_SS).any())

    @property
    def by_query(self) -> bool:
        """Whether the quantity, a weight or a factor, is the same for all keys that a query sees."""
        spread_HSS = self.values_HSS - self.values_HSS[..., :1]
        same = bool(spread_HSS.nan_to_num().abs().max() < SMALLEST_CHANGE)
        return bool(self.quantity.in_all) and same and not self.hides

    def compute_curve(self) -> Float[Tensor, "H R"]:
        """Return the values of the last query at each distance, or one for each query where it alone decides."""
        if not self.by_query:
            return self.values_HSS[:, -1].flip(-1)
        return self.values_HSS.nansum(-1) if self.quantity is WEIGHT else self.values_HSS[..., 0]


def make_positions(scheme: Scheme, batch: int, length: int) -> Tensor:
    """Return positions for a picture: those of a text, or a line along the last of several axes."""
    pos_BS = positions.count_up(batch, length)
    axes = scheme.declares.axes
    if axes in (None, 1):
        return pos_BS
    return torch.stack([torch.zeros_like(pos_BS)] * (axes - 1) + [pos_BS], dim=-1)


@torch.no_grad()
def _compute_effect(scheme: Scheme, length: int = DISTANCES) -> _DrawnEffect:
    """Compute what a scheme does to texts of ``length`` tokens, in the quantity that shows it.

    Where a table is shorter than ``length``, half of that is tried, and so on.
    """
    length = min(length, scheme.declares.max_length or length)
    while True:
        try:
            return _choose_effect(scheme, length)
        except PositionError:
            if length < 2:
                raise
            length //= 2


def _choose_effect(scheme: Scheme, length: int) -> _DrawnEffect:
    """Return weights if the scheme makes them; else the logits, or what is seen where those of equal content agree."""
    if "weigh" in scheme.active_hooks():
        scored = _attend_equal(scheme, length, score=1.0)
        return _DrawnEffect(WEIGHT, _hide(scored.weights_BHST.mean(0), scored))
    equal = _attend_equal(scheme, length)
    logits = _DrawnEffect(LOGIT, _subtract_own(equal))
    if logits.hides or bool(logits.values_HSS.nan_to_num().abs().max() > SMALLEST_CHANGE):
        return logits
    if "locate" in scheme.active_hooks():
        return _DrawnEffect(PLACED_LOGIT, _subtract_own(_attend_equal(scheme, length, texts=1, alike=False)))
    plain = _attend_equal(NoPosition(), length)
    factor_HSS = (equal.logits_BHST / plain.logits_BHST).mean(0)
    if bool((factor_HSS - 1).abs().max() < SMALLEST_CHANGE):
        return logits
    return _DrawnEffect(FACTOR, _hide(factor_HSS, equal))


def _subtract_own(attended: RecordedAttention) -> Float[Tensor, "H S S"]:
    """Return the mean logits, less that of each query with its own token."""
    logits_HSS = attended.logits_BHST.mean(0)
    return _hide(logits_HSS - logits_HSS.diagonal(dim1=-2, dim2=-1)[..., None], attended)


def _hide(values_HSS: Float[Tensor, "H S S"], attended: RecordedAttention) -> Float[Tensor, "H S S"]:
    """Put NaN where a mask or a bias of -inf hides the key."""
    seen_HSS = (attended.mask_BHST & (attended.logits_BHST != -torch.inf)).any(0)
    return values_HSS.masked_fill(~seen_HSS, torch.nan)


def _attend_equal(
    scheme: Scheme, length: int, *, score: float | None = None, texts: int = DRAWS, alike: bool = True
) -> RecordedAttention:
    """Attend in texts of which every query and key has the same content.

    ``score``: the logit that this content has with itself before positions enter; None: that of random content.
    ``alike``: whether the tokens from which a scheme computes their places are the same throughout a text, too.
    """
    generator = torch.Generator().manual_seed(0)
    content = torch.randn(texts, PICTURE_SIZES.num_heads, 1, PICTURE_SIZES.head_dim, generator=generator)
    if score is not None:
        content = content * (score / (scheme.scale(content.shape[-1]) * content.square().sum(-1, keepdim=True))).sqrt()
    same = content.expand(-1, -1, length, -1)
    x_BSD = torch.randn(texts, 1 if alike else length, PICTURE_SIZES.d_model, generator=generator)
    pos = make_positions(scheme, texts, length)
    located = scheme.locate(x_BSD.expand(-1, length, -1), pos, None)
    pos = pos if located is None else located
    return attend_reference(scheme, same, same, same, pos, pos, causal=True)


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
    if "encode" in scheme.active_hooks():
        drawn = f"the vectors of the first {ROWS} positions, and the cosine of two by their distance"
        return Figure((_make_encoding_panel(scheme), _make_similarity_panel(scheme)), f"{said}: {drawn}{along}")
    effect = _compute_effect(scheme)
    drawn = f"{effect.quantity.caption}; hatched: later keys{' and those that are hidden' if effect.hides else ''}"
    return Figure((_make_curve_panel(effect), _make_place_panel(effect)), f"{said}: {drawn}{along}")


@torch.no_grad()
def _compute_encoding(scheme: Scheme, length: int = ROWS) -> Float[Tensor, "S P"]:
    """Return the vectors of the first positions: [S, P]. Raises ValueError for a scheme that adds none."""
    vectors = scheme.encode(make_positions(scheme, 1, min(length, scheme.declares.max_length or length)))
    if vectors is None:
        raise ValueError(f"{type(scheme).__name__} adds no vectors, of which a picture was asked for")
    return vectors[0]


def _make_encoding_panel(scheme: Scheme) -> Panel:
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


def _make_curve_panel(effect: _DrawnEffect) -> Panel:
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


def _make_place_panel(effect: _DrawnEffect) -> Panel:
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
