"""Oracles of the schemes that turn queries and keys."""

from __future__ import annotations

import math

import torch

from tests.schemes.oracles.registry import Case, Expected, oracle


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
