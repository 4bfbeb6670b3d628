"""The most that a model can get right that sees which words a text has and not their order."""

from collections import Counter, defaultdict
from collections.abc import Sequence


def compute(pairs: Sequence[tuple[Sequence[str], str]]) -> float:
    answers: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for words, target in pairs:
        answers[tuple(sorted(words))][target] += 1
    # All texts of one bag get the same answer: at best the one that is right most often.
    return sum(max(targets.values()) for targets in answers.values()) / len(pairs)
