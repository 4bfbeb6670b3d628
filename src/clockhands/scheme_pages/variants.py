"""Spectra, forms and transforms that have a name of their own, each as a row; and what the catalogue does not have."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clockhands.options import defaults_of, options_of
from clockhands.positions import TRANSFORMS
from clockhands.schemes.rotary.trained_length import add_trained_length

VariantKind = Literal["spectrum", "form", "transform"]


@dataclass(frozen=True)
class SchemeVariant:
    """One way to encode position that is an option of a scheme, or a change of positions under any scheme.

    ``of``: the scheme with these ``options``, which are those that make it what it is and are enough to build it at the
    right sizes, or to train it where it needs the trained length; empty for a transform, whose name is ``name`` in
    ``positions.TRANSFORMS``. ``models``: known models that have it.
    """

    name: str
    kind: VariantKind
    of: str
    title: str
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()


def _read_variants() -> tuple[SchemeVariant, ...]:
    rows = tomllib.loads(Path(__file__).with_name("variants.toml").read_text("utf8"))["variant"]
    for row in rows:
        options = row.get("options", {}).items()
        row["options"] = {name: tuple(value) if isinstance(value, list) else value for name, value in options}
        row["models"] = tuple(row.get("models", ()))
    return tuple(SchemeVariant(**row) for row in rows)


VARIANTS = _read_variants()


def find_variant(name: str) -> SchemeVariant | None:
    """Return the row of this name, or None if there is none."""
    return next((variant for variant in VARIANTS if variant.name == name), None)


def describe_variant(variant: SchemeVariant) -> str:
    """Return what a row is, where its scheme is explained, and the table of a recipe that asks for it."""
    import tomli_w  # late: the schemes are tested with the core alone, which has no such package

    lines = [f"{variant.name}: {variant.title}", "", f"source     {variant.source}"]
    lines += [f"used by    {', '.join(variant.models) or 'no widely known model'}"]
    if variant.of:
        lines += [f"a {variant.kind} of {variant.of}, explained by: clockhands schemes {variant.of}"]
    else:
        lines += ["a transform of positions, under any scheme"]
    return "\n".join([*lines, "", "in a recipe:", tomli_w.dumps({"position": make_position_table(variant)})])


def make_position_table(variant: SchemeVariant) -> dict[str, Any]:
    """Return the table ``[position]`` that asks for a row; of a transform, with the options that have a default."""
    if variant.of:
        return {"scheme": variant.of, **variant.options}
    defaults = defaults_of(options_of(TRANSFORMS[variant.name]))
    options = {key: value for key, value in defaults.items() if value is not None}
    return {"transform": variant.name, "transform_options": options}


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
"""What is left out, and why: the interface does not carry it honestly, or nobody can say what it is."""


SHOWN_LENGTH = 512
"""The trained length of what is shown: that of the text on which costs are measured."""


def complete_options(
    name: str, overrides: Mapping[str, Any] | None = None, length: int = SHOWN_LENGTH
) -> dict[str, Any]:
    """Return the options of a scheme, with ``length`` as its trained length where it needs one and has none."""
    completed: dict[str, Any] = add_trained_length({"scheme": name, **(overrides or {})}, length, only_needed=True)
    return {option: value for option, value in completed.items() if option != "scheme"}
