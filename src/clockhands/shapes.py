"""The axis letters of every tensor name and annotation, in one place.

======  =====================================================================
``B``   batch
``S``   query length: the tokens that attend
``T``   key length: the tokens that are attended to (cached ones included)
``D``   model width, d_model
``H``   heads
``K``   width of one head, d_head
``E``   width of a token vector before it is projected or joined to another
``P``   width of a position vector, d_p
``A``   coordinates of one position (1 is written by leaving the axis out)
``R``   distances r = query position - key position
``J``   offsets j = key position - query position, as a reader of text counts: -1 is the token before
``V``   vocabulary
``L``   layers
``F``   frequencies, the hands of the clock
``G``   heads of keys and values, each for a group of the query heads
``M``   keys that a mask is over: those of the cache and the new ones
``N``   items of a list: rows, labels, new tokens
``W``   hypotheses of a beam
``E``   width of the token embedding, d_t
``O I`` rows and columns of a matrix: outputs and inputs
``Kr``  width of a head after ``rotate``
``Kv``  width of the values of a head
``Kp``  width of a cached key, with the channels that store its position
======  =====================================================================

A tensor carries its axes in its name: ``q_BHSK``. Annotations use the same letters through jaxtyping and are
checked while the tests run, so that no shape comment can lie.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Num", "Tensor"]
