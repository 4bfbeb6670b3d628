"""How many of 30,000 words stay nearest to themselves after one of 512 positions was added, by width."""

from __future__ import annotations

import math

import torch

from exact.added import Numbers, make_rows

WORDS, PLACES, ASKED = 30_000, 512, 500


def measure_crowd() -> Numbers:
    """Return the share of words that the sum is nearest to, in percent, by width and loudness of the positions.

    Words are N(0, 1) in every channel, as N(0, 1/d) times √d begins; ``ASKED`` of them are put at places drawn at
    random. That √d makes a word √2 times as long as a position holds at every width.
    """
    return {
        f"kept {width}, {times} times": _keep(width, times)
        for width, times in ((32, 1), (64, 1), (384, 1), (768, 1), (32, 2), (128, 2))
    }


def _keep(width: int, times: int) -> float:
    generator = torch.Generator().manual_seed(0)
    words = torch.randn(WORDS, width, generator=generator)
    places = torch.randint(PLACES, (ASKED,), generator=generator)
    sums = words[:ASKED] + times * make_rows(width, PLACES)[places].float()
    # The nearest word by distance: |s − w|² = |s|² − 2 s·w + |w|², of which the first is the same for every word.
    nearest = (words.square().sum(1) / 2 - sums @ words.T).argmin(1)
    return 100 * math.fsum((nearest == torch.arange(ASKED)).tolist()) / ASKED
