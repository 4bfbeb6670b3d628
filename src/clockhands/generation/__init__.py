"""Use a trained run: translate, continue, evaluate, and draw its cross-attention.

::

    from clockhands.generation import evaluate, generate, translate

    [translation.text for translation in translate("runs/tour", ["zweihundertdrei"])]
    generate("runs/shakespeare", "ROMEO:", tokens=100)
    evaluate("runs/mine", [Pair("ein Hund", "a dog")]).scores
"""

from clockhands.generation.cross_attention import compute_cross_attention, draw_cross_attention
from clockhands.generation.engines import ENGINES, DecodedSequence, Decoding, Engine
from clockhands.generation.evaluate import Evaluation, Loss, evaluate, measure_pair_loss
from clockhands.generation.generate import generate
from clockhands.generation.score import Score, compute_exact_match, score_translations
from clockhands.generation.translate import Search, Translation, translate

__all__ = [
    "ENGINES",
    "DecodedSequence",
    "Decoding",
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
    "generate",
    "measure_pair_loss",
    "score_translations",
    "translate",
]
