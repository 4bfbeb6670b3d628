"""A word and a position, added: how loud each is, where they meet, and what a concatenation would be."""

from __future__ import annotations

import math

import torch
from page_slots import share_scores

from clockhands.inspection.estimators.matrix_statistics import compute_participation
from clockhands.schemes.frequencies import compute_frequencies
from clockhands.shapes import Float, Tensor

Numbers = dict[str, float | int]
WIDTH = 512


def make_rows(width: int, length: int, base: float = 10_000.0) -> Float[Tensor, "N D"]:
    """Return the sinusoid of the paper at positions 0 to ``length`` − 1 in float64; models add it in float32."""
    angles_NF = torch.arange(length, dtype=torch.float64)[:, None] * compute_frequencies(width, base)
    return torch.stack([angles_NF.sin(), angles_NF.cos()], dim=-1).flatten(1)


def compute_score_shares() -> Numbers:
    """Return the length of a word over that of a position, and what positions alone have of a score, before training.

    A row of N(0, 1/d) has length 1, times √d with the factor; a row of the sinusoid has length √(d/2).
    """
    values: Numbers = {}
    for width in (64, 512):
        position = float(make_rows(width, 2)[1].norm())
        for name, word in (("with", math.sqrt(width)), ("without", 1.0)):
            values[f"ratio {name} {width}"] = word / position
            values[f"positions {name} {width}"] = 100 * share_scores(word / position)[2]
    return values


def measure_by_channel() -> Numbers:
    """Return how the change that positions bring is spread over the 512 channels of the sinusoid, in percent."""
    values: Numbers = {}
    for length in (50, 512):
        variance_D = make_rows(WIDTH, length).var(0, correction=0)
        values[f"first half {length}"] = 100 * float(variance_D[: WIDTH // 2].sum() / variance_D.sum())
        values[f"still channels {length}"] = int((variance_D.sqrt() < 0.1).sum())
    return values


def measure_directions() -> Numbers:
    """Return how near a right angle a random word and a position are, by width, and how many directions positions fill.

    The cosine of a fixed direction and a uniformly random one has mean 0 and standard deviation 1/√d. Participation
    ratio: (Σλ)²/Σλ² over the eigenvalues of a covariance, the number of directions that equal variance would fill.
    """
    values: Numbers = {f"cosine {width}": 1 / math.sqrt(width) for width in (64, 512)}
    rows, generator = make_rows(WIDTH, 512), torch.Generator().manual_seed(0)
    random = torch.randn(rows.shape, generator=generator, dtype=torch.float64)
    filled = {"filled 512": compute_participation(rows), "filled by random rows 512": compute_participation(random)}
    return {**values, "angle 512": math.degrees(math.asin(1 / math.sqrt(512))), **filled}


def compare_concatenation() -> Numbers:
    """Return how far a projection of [word; position] is from the sum of two, and what each takes in parameters.

    A concatenation of 384 + 128 channels is the sum of two vectors of 512 that are zero where the other is not; any
    projection W [x; p] equals W_x x + W_p p, where W_x and W_p are the columns of W.
    """
    generator = torch.Generator().manual_seed(0)
    word_width, vocabulary = 384, 32_000
    word, position = torch.randn(WIDTH, generator=generator, dtype=torch.float64).split(
        [word_width, WIDTH - word_width]
    )
    matrix = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    joined = torch.cat([word, position])
    padded = torch.nn.functional.pad(word, (0, WIDTH - word_width)) + torch.nn.functional.pad(position, (word_width, 0))
    apart = matrix[:, :word_width] @ word + matrix[:, word_width:] @ position
    return {
        "error of the sum": float((joined - padded).abs().max()),
        "error of the projection": float((matrix @ joined - apart).abs().max()),
        "embedding, sum": vocabulary * WIDTH,
        "embedding, concatenation": vocabulary * word_width,
    }
