"""Strings that the programs of the length-generalisation tasks' authors drew, with the answers that they gave.

Drawn on 2026-11-27 by tasks/ of google-deepmind/neural_networks_chomsky_hierarchy (Apache-2.0; commits 2b8eb4b and
8084451, with the options of experiments/constants.py; with JAX 0.10.2 where it draws), and those of ``recall`` by
zoology/data/multiquery_ar.py of HazyResearch/zoology (commit dbcb60d, with a vocabulary of 64). Their token ids are
written in our symbols: of the cycle 0, 1, 2 are left, stay, right; the token between two numbers is + or ×. The token
of padding and what follows a token of termination are left out, as are Zoology's random tokens between the queries.
"""

from __future__ import annotations

__all__ = ["WORDS", "samples"]

WORDS = ("cycle-navigation", "stack-manipulation", "recall")
"""Tasks whose symbols are longer than a letter."""

_SAMPLES = """
even-pairs | 110110110 | 1
even-pairs | 000010011 | 1
even-pairs | 001100001 | 1
even-pairs | 101011000111001010000001 | 0
even-pairs | 110001001101001000001101 | 0
parity | 010010110 | 0
parity | 100111100 | 1
parity | 011010100 | 0
parity | 101000010101111110110001 | 1
parity | 110010100001100010100000 | 0
modular-arithmetic | 1*0*0-0+3 | 3
modular-arithmetic | 4-1*0+4+3 | 1
modular-arithmetic | 3*3-4*1+4 | 4
modular-arithmetic | 0+2*1+0-4-2-0*4-4*1-2-4 | 1
modular-arithmetic | 1+1*0*2+1*0*3*0+1-2+3+3 | 1
cycle-navigation | stay right right left right left left left stay | 4
cycle-navigation | left stay stay right right right right left left | 1
cycle-navigation | left stay right left stay right right stay right | 2
cycle-navigation | stay left left stay left left right right left | 2
cycle-navigation | stay stay right left left left left stay right | 3
stack-manipulation | 1 push1 push0 push1 push0 | 0 1 0 1 1 end
stack-manipulation | 0 0 push0 pop push1 push1 push0 push0 push1 | 1 0 0 1 1 0 0 end
stack-manipulation | 1 0 0 0 1 1 1 pop push0 | 0 1 1 0 0 0 1 end
stack-manipulation | 0 1 1 pop push0 push1 push0 pop push0 pop push1 pop pop pop | 1 0 end
stack-manipulation | 1 0 1 1 push1 push1 push0 pop push1 push1 push1 push0 pop | 1 1 1 1 1 1 1 0 1 end
reverse | 001010100 | 001010100
reverse | 010010010 | 010010010
reverse | 101110110 | 011011101
reverse | 100000001101100100000110 | 011000001001101100000001
reverse | 011101001000001100100111 | 111001001100000100101110
modular-arithmetic-brackets | (1-4) | 2
modular-arithmetic-brackets | ((3)+(0)) | 3
modular-arithmetic-brackets | ((1*4)+3) | 2
modular-arithmetic-brackets | ((-3-2)*(0+4)) | 0
modular-arithmetic-brackets | ((-0*((-3-(2))+-2))-(3)) | 2
solve-equation | (x)=4 | 4
solve-equation | ((x)-4)=4 | 3
solve-equation | ((1)+x)=0 | 4
solve-equation | ((1-(0))--x)=0 | 4
solve-equation | (-x-((-1)-((-3-2)+2)))=4 | 4
duplicate | 011010011 | 011010011011010011
duplicate | 111010101 | 111010101111010101
duplicate | 111010011 | 111010011111010011
duplicate | 010001000001000011110010 | 010001000001000011110010010001000001000011110010
duplicate | 100001000101100000001000 | 100001000101100000001000100001000101100000001000
missing-duplicate | 111_1110 | 0
missing-duplicate | _1100110 | 0
missing-duplicate | 111_1110 | 0
missing-duplicate | 1100001110_0110000111010 | 1
missing-duplicate | 110100111_10110100111110 | 1
odds-first | 001101001 | 011001001
odds-first | 000110010 | 010100100
odds-first | 100010010 | 000110100
odds-first | 010111011011000100101101 | 111101010011001011000110
odds-first | 001101100011101011011010 | 011001001100010101111011
binary-addition | 10+10 | 01
binary-addition | 1+0100100 | 11001
binary-addition | 0010+1100 | 111
binary-addition | 000001001001+1 | 100001001001
binary-addition | 000110101011011000110+10 | 10011010101101100011
binary-multiplication | 1×011 | 011
binary-multiplication | 010000×11 | 011
binary-multiplication | 011001×01 | 0011001
binary-multiplication | 1100001×001001 | 001101101001
binary-multiplication | 110010×00101111101100000 | 00111000100100001
square-root | 01001 | 011
square-root | 110101110 | 10100
square-root | 000010100 | 00100
square-root | 10001100001110 | 1011110
square-root | 100110100011101110111000 | 110001101011
bucket-sort | 101224333 | 011223334
bucket-sort | 221104142 | 011122244
bucket-sort | 224444012 | 012224444
bucket-sort | 440232012330234121303430 | 000001112222233333334444
bucket-sort | 201321134223210301301400 | 000000111111222223333344
recall | k3 v54 k30 v59 k14 v48 ? k30 k3 k14 | v59 v54 v48
recall | k14 v42 k7 v38 k26 v63 ? k14 k7 k26 | v42 v38 v63
recall | k28 v44 k4 v43 k20 v45 k24 v48 ? k4 k24 k28 k20 | v43 v48 v44 v45
recall | k25 v53 k15 v51 k13 v57 k28 v63 ? k15 k28 k25 k13 | v51 v63 v53 v57
recall | k17 v37 k1 v43 k27 v35 k25 v56 k13 v54 k10 v59 ? k27 k1 k10 k13 k17 k25 | v35 v43 v59 v54 v37 v56
"""


def samples(task: str) -> list[tuple[list[str], list[str]]]:
    """Return the strings of a task with their answers, symbol by symbol."""
    rows = [line.split(" | ") for line in _SAMPLES.strip().splitlines()]
    cut = str.split if task in WORDS else list
    return [(cut(source), cut(target)) for name, source, target in rows if name == task]
