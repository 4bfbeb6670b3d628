"""Which columns of a table of sinusoids are the sine and the cosine of one frequency."""

from __future__ import annotations


def list_pairings(width: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the two ways in which tables of sinusoids pair their columns.

    They are neighbours, (2i, 2i+1), as in Vaswani et al. 2017, section 3.5, and columns half the width apart,
    (i, i + width/2), as in tensor2tensor. Of an odd width the last column has no partner.
    """
    half = width // 2
    return [(2 * i, 2 * i + 1) for i in range(half)], [(i, i + half) for i in range(half)]
