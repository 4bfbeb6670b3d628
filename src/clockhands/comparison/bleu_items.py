"""BLEU of a test set as a mean over its sentences, so that its intervals are those of any other metric.

BLEU is a function of sums over sentences: the n-grams that match, the n-grams that were written, the lengths. To first
order, sentence n moves it by the derivative for the weight of that sentence, which is 1. The values

    BLEU + N × ∂BLEU/∂w_n

have the corpus's BLEU as their mean, exactly (BLEU does not change if all weights grow alike, so that the derivatives
sum to 0), and their variance over N is the infinitesimal jackknife's (Jaeckel 1972; Efron & Tibshirani 1993, chapter
21). No sentence has a BLEU of its own here: a value can be below 0 or above 100.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clockhands.shapes import Float

TOKENIZATION = "13a"
"""How sacreBLEU splits the texts; one that is tokenised already is hardly changed by it."""


def linearise_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Float[np.ndarray, " N"]:
    """Return for each of N translations what it is to the BLEU of them all, in percent; their mean is that BLEU.

    Where no translation has an n-gram of some order, BLEU is 0, and so are all values.
    """
    from sacrebleu.metrics.bleu import BLEU

    whole = BLEU(tokenize=TOKENIZATION, force=True).corpus_score(list(hypotheses), [list(references)])
    if not whole.score:
        return np.zeros(len(hypotheses))
    single = BLEU(tokenize=TOKENIZATION, effective_order=True, force=True)
    parts = [single.sentence_score(text, [wanted]) for text, wanted in zip(hypotheses, references, strict=True)]
    right_N4, total_N4 = np.array([p.counts for p in parts], float), np.array([p.totals for p in parts], float)
    written_N, wanted_N = np.array([[p.sys_len, p.ref_len] for p in parts], float).T
    # An order without any match is smoothed by sacreBLEU to a constant over the total, which is shared by all alike.
    shares_N4 = np.where(right_N4.sum(0) > 0, right_N4 / np.maximum(right_N4.sum(0), 1), 1 / len(parts))
    slope_N = (shares_N4 - total_N4 / total_N4.sum(0)).mean(1)
    if written_N.sum() < wanted_N.sum():
        ratio = wanted_N.sum() / written_N.sum()
        slope_N += ratio * (written_N / written_N.sum() - wanted_N / wanted_N.sum())
    return whole.score * (1 + len(parts) * slope_N)
