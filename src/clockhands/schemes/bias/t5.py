"""T5's bias: a learned number for each head and each bucket of distances, fine nearby and coarse far away."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Literal, final

import torch
from torch import nn

from clockhands.errors import refuse_faults
from clockhands.schemes.distance import Curves, DistanceBias, Distances
from clockhands.schemes.position_checks import check_integer
from clockhands.schemes.scheme import Declares
from clockhands.shapes import Int, Num, Tensor


def list_bucket_starts(buckets: int, max_distance: int) -> list[int]:
    """Return the smallest distance of each bucket but the first.

    They go one by one up to half of the buckets, then evenly in the logarithm.
    Past E = buckets/2 bucket E + b begins at the smallest n with log(n/E) / log(max_distance/E)·(buckets - E) >= b
    (Raffel et al. 2020, section 2.1, code). Integer powers decide it, so that no rounded logarithm can.
    """
    exact = buckets // 2
    rest = buckets - exact
    starts, farther = list(range(1, exact + 1)), range(exact, max(exact, max_distance) + 1)
    for step in range(1, rest):
        bound = max_distance**step * exact ** (rest - step)
        starts.append(farther[bisect_left(farther, bound, key=lambda distance: distance**rest)])
    return starts


@final
class T5Bias(DistanceBias):
    """T5's relative position buckets (Raffel et al. 2020, section 2.1), one table shared by all layers.

    Args:
        num_heads: H.
        d_model: its -1/2 power is the standard deviation of the table at the start, as in T5.
        causal: whether keys to the right of the query are masked.
        num_buckets: of which both directions take half each.
        max_distance: everything further shares the last bucket.
        bidirectional: whether left and right have buckets of their own; None: unless the mask is causal.
        logit_scale: ``sqrt`` divides q·k by √d_head; ``none`` does not, as in T5, whose initialisation makes up for it.
        bias_scale: factor on the table (x-transformers sets it to √d_head); T5 has none.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import T5Bias
        >>> T5Bias(num_heads=1, d_model=8).bucket(torch.tensor([0, 1, 16, 20, 500]))
        tensor([ 0,  1, 16, 17, 31])
    """

    equation = r"\ell_{ij} = q_i \cdot k_j + b_h[\mathrm{bucket}(j - i)]"
    source = "Raffel et al. 2020, section 2.1"
    peers = ("transformers T5Attention", "x-transformers RelativePositionBias")
    models = ("T5", "mT5", "LongT5", "MPNet")

    def __init__(
        self,
        num_heads: int,
        d_model: int,
        causal: bool = True,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool | None = None,
        logit_scale: Literal["sqrt", "none"] = "sqrt",
        bias_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.bidirectional = not causal if bidirectional is None else bidirectional
        self.one_side = num_buckets // 2 if self.bidirectional else num_buckets
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.logit_scale, self.bias_scale = logit_scale, bias_scale
        self._check()
        self.d_model = d_model
        self.table_HN = nn.Parameter(torch.empty(num_heads, num_buckets))
        self.starts_N: Tensor
        # Saved: transformers builds on the meta device and resets no module whose parameters it has loaded.
        self.register_buffer("starts_N", torch.empty(self.one_side - 1, dtype=torch.long))
        self.reset_parameters()

    def _check(self) -> None:
        refuse_faults(
            (
                self.num_buckets < 4 or (self.bidirectional and self.num_buckets % 2),
                f"num_buckets is {self.num_buckets}; it must be at least 4, and even for both directions",
            ),
            (
                self.max_distance <= self.one_side // 2,
                f"max_distance is {self.max_distance}; it must exceed the {self.one_side // 2} exact buckets",
            ),
        )

    def reset_parameters(self) -> None:
        """Draw the table from N(0, 1/d_model) and lay the bucket boundaries."""
        nn.init.normal_(self.table_HN, std=self.d_model**-0.5)
        starts = list_bucket_starts(self.one_side, self.max_distance)
        self.starts_N.copy_(torch.tensor(starts, dtype=torch.long))

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True, causal_only=not self.bidirectional)

    def scale(self, head_dim: int) -> float:
        """Return the factor on q·k: 1 where ``logit_scale`` is ``none``, as in T5, else 1/√d_head."""
        return 1.0 if self.logit_scale == "none" else 1 / math.sqrt(head_dim)

    def bucket(self, distance_R: Num[Tensor, "*R"]) -> Int[Tensor, "*R"]:
        """Return the bucket of each distance i - j; those of keys to the right come after those of keys to the left."""
        # right=True: a distance that begins a bucket belongs to it.
        if not self.bidirectional:
            return torch.bucketize(distance_R.clamp(min=0).contiguous(), self.starts_N, right=True)
        one_side_R = torch.bucketize(distance_R.abs().contiguous(), self.starts_N, right=True)
        return one_side_R + (distance_R < 0) * self.one_side

    def compute_curve(self, distance_R: Distances) -> Curves:
        check_integer(distance_R, "t5")
        return self.table_HN.float()[:, self.bucket(distance_R)] * self.bias_scale

    def to_hf_config(self) -> dict[str, int]:
        return {
            "relative_attention_num_buckets": self.num_buckets,
            "relative_attention_max_distance": self.max_distance,
        }
