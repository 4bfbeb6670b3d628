"""Translate, continue text, evaluate, and draw cross-attention, with a trained run or a causal model of transformers.

::

    from clockhands.data import Pair
    from clockhands.generation import evaluate, generate, translate

    [translation.text for translation in translate("runs/tour", ["zweihundertdrei"])]
    generate("runs/shakespeare", "ROMEO:", tokens=100)
    evaluate("runs/mine", [Pair("ein Hund", "a dog")]).scores
"""

from __future__ import annotations

from clockhands.generation.engines import ENGINES, DecodedSequence, Engine
from clockhands.generation.evaluate import evaluate, measure_pair_loss
from clockhands.generation.generate import generate
from clockhands.generation.score import (
    Evaluation,
    Loss,
    Score,
    compute_exact_match,
    evaluate_windows,
    score_translations,
)
from clockhands.generation.translate import (
    Search,
    Translation,
    compute_cross_attention,
    draw_cross_attention,
    translate,
)

__all__ = [
    "ENGINES",
    "DecodedSequence",
    "Engine",
    "Evaluation",
    "Loss",
    "Score",
    "Search",
    "Translation",
    "compute_cross_attention",
    "compute_exact_match",
    "draw_cross_attention",
    "evaluate",
    "evaluate_windows",
    "generate",
    "measure_pair_loss",
    "score_translations",
    "translate",
]
