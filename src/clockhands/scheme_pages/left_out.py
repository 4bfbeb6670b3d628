"""What the catalogue does not have, and why: the interface does not carry it honestly, or nobody can say what it is."""

from __future__ import annotations

LEFT_OUT: dict[str, str] = {
    "TAPE": "its position tensors are rewritten by every layer; a scheme has no state that travels through the stack",
    "GRAPE-AP and additive GRAPE": "the additive form has ALiBi and forgetting as its members, which are here; the "
    "path-dependent form sums a product over every stretch of the path for each pair, and its cache would grow with it",
    "DAPE v2": "its convolution runs along the keys, so that a logit depends on which keys stand beside it in memory; "
    "left padding and a cache would change the answer",
    "FLOATER": "the encoding is the solution of a differential equation and its code could not be checked",
    "Complex-order embeddings": "every word has frequencies of its own, which are a token embedding and not a scheme",
    "Wavelet relative encoding": "no official code was found to settle the scales and shifts that the paper leaves",
    "SeqPE, PJ-RoPE, RoPE-ID, HARoPE, Circle-RoPE, VRoPE, DoPE, CLEX, TAPA, BAM": "read as abstracts, with nothing to "
    "be exact to",
    "mTAN's attention over time": "it replaces self-attention by attention from reference times; its time embeddings "
    "are here, as time2vec and as a sinusoid of base 10",
    "LOOPE and Hilbert orders": "an order of patches, which is data: pass the order's number as the position",
}
