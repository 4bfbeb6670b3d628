"""The oracles: slow Python loops over i and j in float64 that cite the paper. They define what a scheme must compute.

An oracle takes a ``Case`` and returns what the paper says: ``encode`` schemes give the vectors [S, P]; all others give
the logits [H, S, T] before the mask, and, where softmax alone does not make the output of them, ``out`` [H, S, K] too.
``VARIANTS`` lists the options under which each scheme is compared; parameters are read from the scheme itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class Case:
    """One row of a batch in float64: queries, keys and values before rotation, positions, and the layer's input."""

    scheme: Any
    options: dict[str, Any]
    q_HSK: Tensor
    k_HTK: Tensor
    v_HTK: Tensor
    qpos_S: Tensor
    kpos_T: Tensor
    x_TD: Tensor
    causal: bool
    width: int

    def scores(self) -> Tensor:
        """Plain q·k/√d, [H, S, T], for the oracles that add something to it."""
        return torch.einsum("hsk,htk->hst", self.q_HSK, self.k_HTK) / math.sqrt(self.q_HSK.shape[-1])

    def add(self, term: Callable[[int, int, int], float]) -> Expected:
        """The plain scores plus ``term(head, i, j)`` for each pair that is visible."""
        logits = self.scores()
        for h in range(logits.shape[0]):
            for i in range(logits.shape[1]):
                for j in range(logits.shape[2]):
                    if not self.causal or j <= i:
                        logits[h, i, j] += term(h, i, j)
        return Expected(logits_HST=logits)


@dataclass
class Expected:
    encode_SP: Tensor | None = None
    logits_HST: Tensor | None = None
    out_HSK: Tensor | None = None
    tolerance: float = 2e-5
    notes: str = ""


Oracle = Callable[[Case], Expected]
ORACLES: dict[str, Oracle] = {}
VARIANTS: dict[str, list[dict[str, Any]]] = {}


def oracle(name: str, *variants: dict[str, Any]) -> Callable[[Oracle], Oracle]:
    """Register the oracle of a scheme with the options under which it is compared (the defaults always)."""

    def register(function: Oracle) -> Oracle:
        ORACLES[name] = function
        VARIANTS[name] = [{}, *variants]
        return function

    return register


@oracle("none")
def no_position(case: Case) -> Expected:
    return Expected(logits_HST=case.scores())


@oracle(
    "sinusoidal",
    {"layout": "half"},
    {"exponent": "tensor2tensor", "layout": "half"},
    {"base": 100.0, "amplitude": 0.3},
    {"learned_amplitude": True, "amplitude": 2.0},
)
def sinusoidal(case: Case) -> Expected:
    """Vaswani et al. 2017, section 3.5; Tensor2Tensor ``get_timing_signal_1d`` for the other exponent."""
    d, base = case.width, case.options.get("base", 10_000.0)
    amplitude = case.options.get("amplitude", 1.0)
    table = torch.zeros(len(case.qpos_S), d, dtype=torch.float64)
    for s, p in enumerate(case.qpos_S.tolist()):
        for c in range(d // 2):
            power = 2 * c / d if case.options.get("exponent", "paper") == "paper" else c / (d / 2 - 1)
            angle = p / base**power
            sin_at, cos_at = (c, d // 2 + c) if case.options.get("layout") == "half" else (2 * c, 2 * c + 1)
            table[s, sin_at], table[s, cos_at] = amplitude * math.sin(angle), amplitude * math.cos(angle)
    return Expected(encode_SP=table)


@oracle("rope", {"layout": "interleaved"}, {"fraction": 0.5, "base": 500.0})
def rope(case: Case) -> Expected:
    """Su et al. 2021, equation 34, as complex products: Re Σ_c q_c k_c* e^{i(m-n)θ_c}."""
    width = case.q_HSK.shape[-1]
    turned = int(width * case.options.get("fraction", 1.0))
    base = case.options.get("base", 10_000.0)
    half = case.options.get("layout", "half") == "half"
    logits = torch.zeros(case.q_HSK.shape[0], len(case.qpos_S), len(case.kpos_T), dtype=torch.float64)
    for h in range(logits.shape[0]):
        for i, m in enumerate(case.qpos_S.tolist()):
            for j, n in enumerate(case.kpos_T.tolist()):
                q, k = case.q_HSK[h, i].tolist(), case.k_HTK[h, j].tolist()
                total = sum(a * b for a, b in zip(q[turned:], k[turned:], strict=True))
                for c in range(turned // 2):
                    a, b = (c, c + turned // 2) if half else (2 * c, 2 * c + 1)
                    theta = base ** (-2 * c / turned)
                    product = complex(q[a], q[b]) * complex(k[a], k[b]).conjugate()
                    angle = (m - n) * theta
                    total += (product * complex(math.cos(angle), math.sin(angle))).real
                logits[h, i, j] = total / math.sqrt(width)
    return Expected(logits_HST=logits)


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


@oracle("cope", {"max_position": 3})
def cope(case: Case) -> Expected:
    """Golovneva et al. 2024, equations 3 to 6, with the gates of the masked logits."""
    table = case.scheme.embedding_PK.detach().double()
    scores = case.scores()

    def term(h: int, i: int, j: int) -> float:
        p = sum(1 / (1 + math.exp(-float(scores[h, i, t]))) for t in range(j, i + 1))
        p = min(p, len(table) - 1)
        low, high = math.floor(p), math.ceil(p)
        at_low, at_high = (float(case.q_HSK[h, i] @ table[n]) for n in (low, high))
        return at_low if low == high else (1 - (p - low)) * at_low + (p - low) * at_high

    return case.add(term)


def causal_mask(queries: int, keys: int) -> Tensor:
    """True where query s (the last S of T tokens) may look."""
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def weights(logits_HST: Tensor, causal: bool) -> Tensor:
    """Softmax over the visible keys."""
    if causal:
        logits_HST = logits_HST.masked_fill(~causal_mask(*logits_HST.shape[-2:]), -math.inf)
    return torch.softmax(logits_HST, dim=-1)
