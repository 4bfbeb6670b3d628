"""What a scheme does to every query and earlier key, in the quantity that shows it: logits, weights or a factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from clockhands import positions
from clockhands.attention import RecordedAttention, attend_reference
from clockhands.errors import PositionError
from clockhands.schemes import NoPosition
from clockhands.schemes.catalogue import Sizes
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
class Effect:
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
def compute_effect(scheme: Scheme, length: int = DISTANCES) -> Effect:
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


def _choose_effect(scheme: Scheme, length: int) -> Effect:
    """Return weights if the scheme makes them; else the logits, or what is seen where those of equal content agree."""
    if "weigh" in scheme.active_hooks():
        scored = _attend_equal(scheme, length, score=1.0)
        return Effect(WEIGHT, _hide(scored.weights_BHST.mean(0), scored))
    equal = _attend_equal(scheme, length)
    logits = Effect(LOGIT, _subtract_own(equal))
    if logits.hides or bool(logits.values_HSS.nan_to_num().abs().max() > SMALLEST_CHANGE):
        return logits
    if "locate" in scheme.active_hooks():
        return Effect(PLACED_LOGIT, _subtract_own(_attend_equal(scheme, length, texts=1, alike=False)))
    plain = _attend_equal(NoPosition(), length)
    factor_HSS = (equal.logits_BHST / plain.logits_BHST).mean(0)
    if bool((factor_HSS - 1).abs().max() < SMALLEST_CHANGE):
        return logits
    return Effect(FACTOR, _hide(factor_HSS, equal))


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
