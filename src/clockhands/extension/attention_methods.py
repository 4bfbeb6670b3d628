"""Methods that need another attention than the model's own: two rotations, a temperature by place, no rotation.

In a model of transformers the scheme is installed in place of its rotation (``clockhands.attention.install``). Whether
the two agree is tried with the model's own frequencies before any such method is. Plain transformers cannot open a
model with one of these; models of this project can, whose configuration names the scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from clockhands.attention import install
from clockhands.model.position_config import PositionConfig
from clockhands.models import LanguageModel, is_run
from clockhands.runs.opening import change_scheme
from clockhands.schemes import CATALOGUE, Sizes, build
from clockhands.schemes.rotary.trained_length import choose_window


@dataclass(frozen=True)
class Method:
    """One way: options of position in the names of our scheme *rope*, another scheme, or a way to stretch a table.

    Args:
        name: what it is called in tables and options.
        description: what it does, in a few words.
        options: of position; empty to leave them as trained.
        table: a key of ``STRETCHES``, for a model with a learned table; empty for others.
        rows: of the table that it makes.
        scheme: a position table as recipes have it, for a method that needs another attention; empty for others.
    """

    name: str
    description: str
    options: Mapping[str, Any] = field(default_factory=dict)
    table: str = ""
    rows: int = 0
    scheme: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name with all options, under which results are kept."""
        settings = sorted({**self.options, **self.scheme}.items())
        return ",".join([self.name, str(self.rows), *(f"{key}={value}" for key, value in settings)])

    @property
    def spares_short_texts(self) -> bool:
        """Whether a text of at most the trained length is read exactly as by the model as it is, by definition."""
        if self.options.get("spectrum") == "longrope":
            return {*self.options["short_factor"], self.options["attention_factor"]} == {1.0}
        return self.options.get("spectrum") == "dynamic" or self.table not in ("", "interpolated")


TOLERANCE = 1e-3
"""The largest difference of a logit between a model and itself with our attention, as a share of the largest logit."""
PROBE = 48
"""Tokens on which the two are compared."""


def list_attention_methods(base: float, trained: int, longest: int) -> Iterator[Method]:
    """Yield the methods that need another attention; their windows and groups keep distances within the trained."""
    window, near = (choose_window(name, None, trained) for name in ("rerope", "self-extend"))
    slower = max(1.0, (longest - window) / max(1, trained - window))
    group = -(-(longest - near) // max(1, trained - near))
    for name, description, options in (
        ("rerope", "distances beyond half the trained length all count as that", {"window": window}),
        ("leaky-rerope", "distances beyond half the trained length grow more slowly",
         {"window": window, "factor": slower}),
        ("self-extend", f"tokens beyond {near} are counted in groups of {group}", {"window": near, "group": group}),
        ("dual-chunk", "chunks that see each other from inside the trained length", {"original_length": trained}),
    ):  # fmt: skip
        yield Method(name, description, scheme={"scheme": name.removeprefix("leaky-"), "base": base, **options})
    log = {"scheme": "temperature", "form": "floor", "coefficient": 1 / math.log(trained), "length": trained}
    both = {"scheme": "composition", "schemes": [{"scheme": "rope", "base": base}, log]}
    yield Method("log-n", "attention sharper by the logarithm of the place, beyond the trained length", scheme=both)
    yield Method("dropped", "nothing turns (DroPE, which trains after it)", scheme={"scheme": "none"})


def find_refusal(model: LanguageModel, channels: int, base: float) -> str:
    """Return why no other attention can be laid over a model; empty where it can.

    Ours is tried with the frequencies that the model has: windows, layers without rotation, sinks or another scale show
    as other logits.
    """
    if model.mask_id is not None:
        return "it reads in both directions, and these methods count distances backward"
    if is_run(model.source):
        position = model.model.config.transformer_config.get_position_config("decoder")
        if position.layers is not None:
            return "its layers have different positions, and a method has one for all"
        if position.options.get("values"):
            return "its values rotate with the keys (values = true), and these methods leave values as they are"
        width = model.model.config.head_dim
        few = f"only {channels} of {width} channels of a head rotate, and methods with two rotations need all"
        return "" if channels == width else few
    ids_BS = torch.randint(0, model.vocabulary_size, (2, PROBE), generator=torch.Generator().manual_seed(0))
    try:
        expected = model.compute_logits(ids_BS)
        with lay_scheme(model, Method("itself", "", scheme={"scheme": "rope", "base": base})) as laid:
            error = float((laid.compute_logits(ids_BS) - expected).abs().max())
    except Exception as fault:  # a model that is built in another way raises anything
        return f"its attention cannot be exchanged ({type(fault).__name__})"
    if not error <= TOLERANCE * float(expected.abs().max()):
        return f"with our attention and its own frequencies its logits differ by {error:.2g}"
    return ""


@contextmanager
def lay_scheme(model: LanguageModel, method: Method) -> Iterator[LanguageModel]:
    """Lay the scheme of a method over all layers of a model inside the context."""
    if is_run(model.source):
        yield replace(model, model=change_scheme(model.model, method.scheme))
        return
    text = model.model.config.get_text_config(decoder=True)
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    sizes = Sizes(text.hidden_size, text.hidden_size, text.num_attention_heads, width)
    table = PositionConfig.from_dict(method.scheme)
    with install(model.model, build(CATALOGUE, table.scheme, sizes, table.options)):
        yield model
