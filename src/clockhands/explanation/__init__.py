"""What a position configuration means, as numbers: read without weights and without torch.

The same numbers mean different things in transformers 4 and 5, vLLM, llama.cpp, Megatron and Mistral's own files.
`read_positions` makes one table of any of them; `compare` says where two of them part, and which field causes it;
`convert` writes it for another program.
"""

from __future__ import annotations

from pathlib import Path

from clockhands.explanation.conversion import FORMATS, convert
from clockhands.explanation.difference import Difference, compare
from clockhands.explanation.huggingface import PROGRAMS
from clockhands.explanation.reading import read_positions
from clockhands.explanation.rotation import Rotation
from clockhands.explanation.table import Layer, Positions
from clockhands.explanation.text import describe, describe_difference, list_warnings, to_json

__all__ = [
    "FORMATS",
    "PROGRAMS",
    "Difference",
    "Layer",
    "Positions",
    "Rotation",
    "compare",
    "convert",
    "describe",
    "describe_difference",
    "explain",
    "list_warnings",
    "read_positions",
    "to_json",
]


def explain(
    file: str | Path, other: str | Path | None = None, *, program: str = "transformers5", length: int | None = None
) -> str:
    """Explain a position configuration, or the first difference of two, in the words of ``clockhands explain``.

    ``file``, ``other``: a config.json or its folder, a hub name, a .gguf file, ...; ``program``: as which it is read;
    ``length``: that of the text in tokens, for angles that depend on it. Raises what ``read_positions`` raises.
    """
    first = read_positions(file, program)
    if other is None:
        return describe(first, length)
    second = read_positions(other, program)
    return describe_difference(compare(first, second, length), first, second)
