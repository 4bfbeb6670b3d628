"""The oracles: slow Python loops over i and j in float64 that cite the paper. They define what is right."""

from tests.schemes.oracles import absolute, bias, composition, content, rotary
from tests.schemes.oracles.registry import ORACLES, VARIANTS, Case, Expected, causal_mask, oracle, weights

__all__ = [
    "ORACLES", "VARIANTS", "Case", "Expected", "absolute", "bias", "causal_mask", "composition", "content", "oracle",
    "rotary", "weights",
]  # fmt: skip
