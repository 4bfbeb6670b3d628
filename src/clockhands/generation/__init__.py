"""Using a trained run: translate, continue, evaluate, and see which words were looked at.

::

    from clockhands.generation import evaluate, generate, translate

    [translation.text for translation in translate("runs/tour", ["zweihundertdrei"])]
    generate("runs/shakespeare", "ROMEO:", tokens=100)
    evaluate("runs/mine", [Pair("ein Hund", "a dog")]).scores
"""

from clockhands.generation.attention import attention_figure, cross_attention
from clockhands.generation.decode import Decoder, Written
from clockhands.generation.evaluate import Evaluation, Loss, evaluate, pair_loss
from clockhands.generation.generate import generate
from clockhands.generation.score import Score, exact_match, score_translations
from clockhands.generation.translate import Search, Translation, translate

__all__ = [
    "Decoder",
    "Evaluation",
    "Loss",
    "Score",
    "Search",
    "Translation",
    "Written",
    "attention_figure",
    "cross_attention",
    "evaluate",
    "exact_match",
    "generate",
    "pair_loss",
    "score_translations",
    "translate",
]
