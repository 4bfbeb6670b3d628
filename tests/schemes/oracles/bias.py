"""Oracles of the schemes that add a bias to the logits."""

from __future__ import annotations

import math

from tests.schemes.oracles.registry import Case, Expected, oracle


@oracle("alibi", {"form": "symmetric"}, {"form": "asymmetric"}, {"form": "causal"})
def alibi(case: Case) -> Expected:
    """Press et al. 2022, section 3 and the authors' ``get_slopes`` for other numbers of heads."""
    form = case.options.get("form", "causal" if case.causal else "symmetric")
    heads = case.q_HSK.shape[0]

    def slopes(count: int) -> list[float]:
        if math.log2(count).is_integer():
            start = 2 ** (-(2 ** -(math.log2(count) - 3)))
            return [start * start**i for i in range(count)]
        closest = 2 ** math.floor(math.log2(count))
        return slopes(closest) + slopes(2 * closest)[0::2][: count - closest]

    slope = slopes(heads)

    def term(h: int, i: int, j: int) -> float:
        r = float(case.qpos_S[i] - case.kpos_T[j])
        if form == "causal":
            return -slope[h] * r
        if form == "asymmetric" and (r < 0 if h % 2 == 0 else r > 0):
            return -math.inf
        return -slope[h] * abs(r)

    return case.add(term)
