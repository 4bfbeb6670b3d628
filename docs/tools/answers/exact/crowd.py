"""How many of 30,000 words stay nearest to themselves after one of 512 positions was added, by width."""

from __future__ import annotations

import math

import torch

from exact.added import Numbers, make_rows

WORDS, PLACES, ASKED = 30_000, 512, 500
WIDTHS, LOUDNESS = (32, 64, 128, 256, 512, 1024), (1, 2, 4, 16)


def measure_crowd() -> Numbers:
    """Return the share of words that the sum is nearest to, in percent, by width and loudness of the positions.

    Words are N(0, 1) in every channel, as N(0, 1/d) times √d begins; ``ASKED`` of them are put at places drawn at
    random. That √d makes a word √2 times as long as a position holds at every width.
    """
    values: Numbers = {}
    for width in (*WIDTHS, 384, 768):
        generator = torch.Generator().manual_seed(0)
        words = torch.randn(WORDS, width, generator=generator)
        rows = make_rows(width, PLACES)[torch.randint(PLACES, (ASKED,), generator=generator)].float()
        for times in LOUDNESS if width in WIDTHS else LOUDNESS[:1]:
            # The nearest word by distance: |s − w|² = |s|² − 2 s·w + |w|², the first the same for all words.
            nearest = (words.square().sum(1) / 2 - (words[:ASKED] + times * rows) @ words.T).argmin(1)
            kept = math.fsum((nearest == torch.arange(ASKED)).tolist())
            values[f"kept {width}, {times} times"] = 100 * kept / ASKED
    return values
