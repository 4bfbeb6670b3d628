"""The letters that stand for the axes of tensors, in names and annotations.

======  =====================================================================
``B``   batch
``S``   query length: the tokens that attend
``T``   key length: the tokens that are attended to (cached ones included)
``D``   model width, d_model
``H``   heads
``K``   width of one head: ``head_dim``, d_head in formulas
``E``   width of the token embedding, d_t, before it is projected or joined to an encoding
``P``   width of an encoding, d_p; or positions of a table
``A``   coordinates of one position (1 is written by leaving the axis out)
``R``   distances r = query position - key position; or the rank of a product of two matrices (DIET)
``J``   offsets j = key position - query position, as a reader of text counts: -1 is the token before
``V``   vocabulary
``L``   layers
``F``   frequencies, the hands of the clock
``G``   heads of keys and values, each for a group of the query heads; or numbers that a token mixes (DAPE, Inkling)
``M``   keys that a mask is over: those of the cache and the new ones
``N``   items of a list: texts, rows, labels, new tokens, buckets, blocks of channels
``W``   hypotheses of a beam; or taps of a convolution
``C``   channels of a block
``O I`` rows and columns of a matrix: outputs and inputs; ``O`` alone is also the sides of ALiBi's slopes
``Kr``  width of a head after ``rotate``
``Kv``  width of the values of a head
``Kp``  width of a cached key, with the channels that store its position
======  =====================================================================

A tensor carries its axes in its name: ``q_BHSK``. A digit is an axis of that size, or beside a letter (``K2``) an axis
whose size follows from the letter's. A lower-case letter is an axis of one module, whose docstring says which: often
some of the items of the capital one, such as ``n`` of ``N``.

Annotations use the same letters through jaxtyping; ``make check-shapes`` runs the tests with every annotation checked.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Num", "Tensor"]
