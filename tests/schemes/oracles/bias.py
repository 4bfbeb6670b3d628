"""Oracles of the schemes that add a bias to the logits."""

from __future__ import annotations

import math

from tests.schemes.oracles.registry import Case, Expected, oracle


@oracle(
    "alibi",
    {"form": "causal"},
    {"form": "symmetric"},
    {"form": "asymmetric"},
    {"form": "two-sided"},
    {"form": "broken"},
    {"slopes": "geometric", "form": "symmetric"},
    {"learned": True},
)
def alibi(case: Case) -> Expected:
    """Press et al. 2022, section 3, the authors' ``get_slopes`` and, for both directions, issue 5 of their code."""
    form = case.options.get("form", "causal" if case.causal else "symmetric")
    heads = case.q_HSK.shape[0]

    def slopes(count: int) -> list[float]:
        if case.options.get("slopes") == "geometric":
            return [2 ** (-8 * (h + 1) / count) for h in range(count)]
        if math.log2(count).is_integer():
            start = 2 ** (-(2 ** -(math.log2(count) - 3)))
            return [start * start**i for i in range(count)]
        closest = 2 ** math.floor(math.log2(count))
        return slopes(closest) + slopes(2 * closest)[0::2][: count - closest]

    slope = slopes(heads // 2) * 2 if form == "asymmetric" else slopes(heads)
    left, right = slope, slope
    if case.options.get("learned") or form == "two-sided":
        left, right = case.scheme.slopes_OH[0].tolist(), case.scheme.slopes_OH[-1].tolist()

    def term(h: int, i: int, j: int) -> float:
        r = float(case.qpos_S[i] - case.kpos_T[j])
        if form == "causal":
            return -left[h] * r
        if form == "asymmetric" and (r < 0 if h < heads // 2 else r > 0):
            return -math.inf
        if r > 0:
            return -left[h] * (r - (0.5 if form == "broken" else 0.0))
        return -right[h] * -r

    return case.add(term)


def t5_bucket(j_minus_i: int, bidirectional: bool, buckets: int, max_distance: int) -> int:
    """Mesh TensorFlow's ``_relative_position_bucket``, with the logarithm in float64 nudged off rounding."""
    offset, n = 0, -j_minus_i
    if bidirectional:
        buckets //= 2
        offset, n = (buckets, -n) if n < 0 else (0, n)
    n = max(n, 0)
    exact = buckets // 2
    if n < exact:
        return offset + n
    share = math.log(n / exact) / math.log(max_distance / exact)
    return offset + min(exact + math.floor(share * (buckets - exact) + 1e-12), buckets - 1)


@oracle(
    "t5",
    {"num_buckets": 8, "max_distance": 6},
    {"logit_scale": "none", "bias_scale": 2.0},
    {"bidirectional": True, "num_buckets": 12, "max_distance": 7},
)
def t5(case: Case) -> Expected:
    """Raffel et al. 2020, section 2.1: q·k, unscaled in T5 itself, plus the number of the bucket of j - i."""
    options = case.options
    both = options.get("bidirectional", not case.causal)
    table = case.scheme.table_HN.detach().double() * options.get("bias_scale", 1.0)

    def term(h: int, i: int, j: int) -> float:
        offset = int(case.kpos_T[j] - case.qpos_S[i])
        return float(
            table[h, t5_bucket(offset, both, options.get("num_buckets", 32), options.get("max_distance", 128))]
        )

    expected = case.add(term)
    if options.get("logit_scale") == "none":
        expected.logits_HST = expected.logits_HST + case.scores() * (math.sqrt(case.q_HSK.shape[-1]) - 1)
    return expected
