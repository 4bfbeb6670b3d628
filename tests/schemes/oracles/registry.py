"""The oracles: slow Python loops over i and j in float64 that cite the paper. They define what a scheme must compute.

An oracle takes a ``Case`` and returns what the paper says: ``encode`` schemes give the vectors [S, P]; all others give
the logits [H, S, T] before the mask, and, where softmax alone does not make the output of them, ``out`` [H, S, K] too.
``VARIANTS`` lists the options under which each scheme is compared; parameters are read from the scheme itself.

Slow is what every pair is computed in by itself. What is the same for many pairs is computed once (``cache``), and
numbers are taken out of tensors together: thousands of tests ask these loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from clockhands.scheme_pages.variants import complete_options


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

    def coordinates(self, pos: Tensor) -> list[float]:
        """The coordinates of one token: all, or the one that the option ``axis`` names."""
        whole: list[float] = pos.reshape(-1).tolist()
        axis = self.options.get("axis")
        return whole if axis is None else [whole[axis]]

    @cached_property
    def offsets(self) -> list[list[Any]]:
        """How far query i stands behind key j, [i][j]: a number, or of several coordinates one for each."""
        return (self.qpos_S[:, None] - self.kpos_T[None]).tolist()

    def add(self, term: Callable[[int, int, int], float]) -> Expected:
        """The plain scores plus ``term(head, i, j)`` for each pair that is visible."""
        scores = self.scores()
        heads, queries, keys = map(range, scores.shape)

        def seen(h: int, i: int, j: int) -> float:
            return term(h, i, j) if not self.causal or j <= i else 0.0

        terms = [[[seen(h, i, j) for j in keys] for i in queries] for h in heads]
        return Expected(logits_HST=scores + torch.tensor(terms, dtype=scores.dtype))


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


def oracle(name: str, *variants: dict[str, Any], trained: int = 512) -> Callable[[Oracle], Oracle]:
    """Register the oracle of a scheme with the options under which it is compared (the defaults always).

    ``trained``: the trained length of a scheme that needs one and is not given its window.
    """

    def register(function: Oracle) -> Oracle:
        ORACLES[name] = function
        VARIANTS[name] = [complete_options(name, options, trained) for options in ({}, *variants)]
        return function

    return register


def causal_mask(queries: int, keys: int) -> Tensor:
    """True where query s (the last S of T tokens) may look."""
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def weights(logits_HST: Tensor, causal: bool) -> Tensor:
    """Softmax over the visible keys; a query that sees none has weights of zero."""
    if causal:
        logits_HST = logits_HST.masked_fill(~causal_mask(*logits_HST.shape[-2:]), -math.inf)
    blind = (logits_HST == -math.inf).all(dim=-1, keepdim=True)
    return torch.softmax(logits_HST.masked_fill(blind, 0.0), dim=-1).masked_fill(blind, 0.0)
