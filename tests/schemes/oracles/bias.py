"""Oracles of the schemes that add a bias to the logits."""

from __future__ import annotations

import math
from functools import cache

import torch

from tests.schemes.oracles.registry import Case, Expected, oracle


@oracle(
    "alibi", {"form": "causal"}, {"form": "symmetric"}, {"form": "asymmetric"}, {"form": "two-sided"},
    {"form": "broken"}, {"slopes": "geometric", "form": "symmetric"}, {"learned": True},
)  # fmt: skip
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
        left, right = (case.scheme.slopes_OH[side].abs().tolist() for side in (0, -1))

    def term(h: int, i: int, j: int) -> float:
        r = float(case.offsets[i][j])
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
    table = (case.scheme.table_HN.detach().double() * options.get("bias_scale", 1.0)).tolist()

    def term(h: int, i: int, j: int) -> float:
        offset = -int(case.offsets[i][j])
        return table[h][t5_bucket(offset, both, options.get("num_buckets", 32), options.get("max_distance", 128))]

    expected = case.add(term)
    if options.get("logit_scale") == "none":
        expected.logits_HST = expected.logits_HST + case.scores() * (math.sqrt(case.q_HSK.shape[-1]) - 1)
    return expected


def perceptron(mlp: torch.nn.Module, numbers: list[float], activation: str) -> list[float]:
    """A network written out: weighted sums and an activation between the layers, in float64."""
    values = numbers
    for at, layer in enumerate(mlp.layers):
        if at and activation == "relu":
            values = [max(value, 0.0) for value in values]
        elif at:
            values = [value / (1 + math.exp(-value)) if value > -700 else 0.0 for value in values]
        rows = layer.weight.detach().double().tolist()
        starts = [0.0] * len(rows) if layer.bias is None else layer.bias.detach().double().tolist()
        values = [
            start + sum(a * b for a, b in zip(row, values, strict=True))
            for row, start in zip(rows, starts, strict=True)
        ]
    return values


@oracle("kerple", {"form": "power"})
def kerple(case: Case) -> Expected:
    """Chi et al. 2022, equations 6 and 7, with the authors' bounds on the parameters."""
    power = case.options.get("form") == "power"
    size = [max(value, 0.01) for value in case.scheme.size_H.tolist()]
    shape = [min(max(value, 0.01), 2.0 if power else math.inf) for value in case.scheme.shape_H.tolist()]

    def term(h: int, i: int, j: int) -> float:
        far = abs(float(case.offsets[i][j]))
        return -size[h] * (far ** shape[h] if power else math.log(1 + shape[h] * far))

    return case.add(term)


@oracle("sandwich", {"size": 16, "base": 50.0})
def sandwich(case: Case) -> Expected:
    """Chi et al. 2023, appendix E: inner products of sinusoidal vectors over the compression ratio 8h/H."""
    size, base, heads = case.options.get("size", 128), case.options.get("base", 10_000.0), case.q_HSK.shape[0]

    @cache
    def vector(p: float) -> list[float]:
        angles = [p / base ** (2 * c / size) for c in range(size // 2)]
        return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]

    @cache
    def inner(m: float, n: float) -> float:
        return sum(a * b for a, b in zip(vector(m), vector(n), strict=True))

    asked, found = case.qpos_S.tolist(), case.kpos_T.tolist()
    return case.add(lambda h, i, j: inner(float(asked[i]), float(found[j])) / (8 * (h + 1) / heads))


@oracle("window", {"left": 2}, {"left": 3, "right": 0}, {"left": 2, "axis": 0}, {"left": 1, "axis": 1})
def window(case: Case) -> Expected:
    """Beltagy et al. 2020, section 3.1, along each coordinate (Ramachandran et al. 2019): nothing outside is seen."""
    left = case.options.get("left", 127)
    right = case.options.get("right", left)

    asked, found = ([case.coordinates(place) for place in pos] for pos in (case.qpos_S, case.kpos_T))

    def term(h: int, i: int, j: int) -> float:
        pairs = zip(asked[i], found[j], strict=True)
        return 0.0 if all(-right <= q - k <= left for q, k in pairs) else -math.inf

    return case.add(term)


@oracle("dynamic", {"depth": 1, "hidden": 5}, {"log_distance": True, "depth": 3})
def dynamic(case: Case) -> Expected:
    """CrossFormer, section 3.3, in one dimension: the network's answer for i - j or its signed logarithm."""

    @cache
    def answer(r: float) -> list[float]:
        if case.options.get("log_distance"):
            r = math.copysign(math.log(1 + abs(r)), r)
        return perceptron(case.scheme.mlp, [r], "silu")

    return case.add(lambda h, i, j: answer(float(case.offsets[i][j]))[h])


@oracle("fire", {"length": 4.0, "c": 0.7}, {"length": 8.0, "threshold": "halved"})
def fire(case: Case) -> Expected:
    """Li et al. 2024, equation 18 and the code of appendix E."""
    c = float(case.scheme.c)
    length = case.options.get("length", 512.0) / (2 if case.options.get("threshold") == "halved" else 1)
    limit = abs(float(case.scheme.factor) * length)

    def psi(x: float) -> float:
        return math.log(abs(c * x) + 1)

    @cache
    def answer(here: float, there: float) -> list[float]:
        share = psi(here - there) / (psi(max(here, limit)) + 1e-6)
        return perceptron(case.scheme.mlp, [share], "relu")

    asked, found = case.qpos_S.tolist(), case.kpos_T.tolist()
    return case.add(lambda h, i, j: answer(float(asked[i]), float(found[j]))[h])


@oracle("swin", {"rows": 4, "columns": 5})
def swin(case: Case) -> Expected:
    """Liu et al. 2021, equation 4: B[row offset + M - 1, column offset + M - 1]."""
    rows = case.options.get("rows", 7)
    columns = case.options.get("columns", rows)
    table = case.scheme.table_RH.detach().double().view(2 * rows - 1, 2 * columns - 1, -1).tolist()

    def term(h: int, i: int, j: int) -> float:
        down, right = (int(offset) for offset in case.offsets[i][j][:2])
        return table[down + rows - 1][right + columns - 1][h]

    return case.add(term)


@oracle("log-cpb", {"rows": 3, "columns": 6, "hidden": 9})
def log_cpb(case: Case) -> Expected:
    """Liu et al. 2022, equations 4 and 5, and the scaling of the authors' code."""
    rows = case.options.get("rows", 8)
    reach = (rows - 1, case.options.get("columns", rows) - 1)

    def spaced(offset: float, side: int) -> float:
        scaled = offset / reach[side] * 8
        return math.copysign(math.log2(abs(scaled) + 1) / math.log2(8), scaled)

    @cache
    def answer(down: float, right: float) -> list[float]:
        return perceptron(case.scheme.mlp, [spaced(down, 0), spaced(right, 1)], "relu")

    return case.add(lambda h, i, j: 16 / (1 + math.exp(-answer(*map(float, case.offsets[i][j][:2]))[h])))


@oracle("alibi-axes", {"norm": "manhattan"})
def alibi_axes(case: Case) -> Expected:
    """Fuller et al. 2023: slopes for six heads, those of four and every other one of eight, times the distance."""
    slopes = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]

    def term(h: int, i: int, j: int) -> float:
        apart = [abs(float(offset)) for offset in case.offsets[i][j]]
        return -slopes[h] * (sum(apart) if case.options.get("norm") == "manhattan" else math.hypot(*apart))

    return case.add(term)


@oracle("diet", {"rank": 3}, {"form": "relative", "max_length": 12})
def diet(case: Case) -> Expected:
    """Chen et al. 2021: P_Q[i]·P_K[j], or R[i - j], not scaled."""
    scheme, asked, found = case.scheme, case.qpos_S.tolist(), case.kpos_T.tolist()

    def term(h: int, i: int, j: int) -> float:
        m, n = int(asked[i]), int(found[j])
        if case.options.get("form") == "relative":
            return float(scheme.table_HR[h, m - n + 11])
        return float(scheme.query_HPR[h, m].double() @ scheme.key_HPR[h, n].double())

    return case.add(term)
