"""Methods that need another attention than the model's own: two rotations, a temperature by place, no rotation.

A model of transformers is lent ours by its attention interface: its rotation is held still, and ours turns queries and
keys by a scheme. Whether the two agree is tried with the model's own frequencies before any such method is. Plain
transformers cannot open a model with one of these; models of this project can, whose configuration names the scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from clockhands.attention import attend
from clockhands.errors import UsageError
from clockhands.model.position_config import PositionConfig
from clockhands.models import LanguageModel, is_run
from clockhands.runs.opening import change_scheme
from clockhands.schemes import CATALOGUE, Scheme, Sizes, build
from clockhands.schemes.rotary.trained_length import choose_window
from clockhands.shapes import Tensor


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
        return ",".join([self.name, str(self.rows), *(f"{key}={value}" for key, value in self._settings)])

    @property
    def _settings(self) -> list[tuple[str, Any]]:
        return sorted({**self.options, **self.scheme}.items())

    @property
    def spares_short_texts(self) -> bool:
        """Whether a text of at most the trained length is read exactly as by the model as it is, by definition."""
        if self.options.get("spectrum") == "longrope":
            return {*self.options["short_factor"], self.options["attention_factor"]} == {1.0}
        return self.options.get("spectrum") == "dynamic" or self.table not in ("", "interpolated")


NAME = "clockhands-extend"
"""The name under which our attention function is registered with transformers."""
TOLERANCE = 1e-3
"""The largest difference of a logit between a model and itself with our attention, as a share of the largest logit."""
PROBE = 48
"""Tokens on which the two are compared."""

_schemes: list[Scheme] = []
"""The scheme that our attention function computes with, innermost last."""


def list_attention_methods(base: float, trained: int, longest: int) -> Iterator[Method]:
    """Yield the methods that need another attention; their windows and groups keep distances within the trained."""
    window = choose_window("rerope", None, trained)
    slower = max(1.0, (longest - window) / max(1, trained - window))
    yield _make("rerope", "distances beyond half the trained length all count as that", base, window=window)
    yield _make("leaky-rerope", "distances beyond half the trained length grow more slowly", base, window=window,
                factor=slower)  # fmt: skip
    near = choose_window("self-extend", None, trained)
    group = -(-(longest - near) // max(1, trained - near))
    yield _make("self-extend", f"tokens beyond {near} are counted in groups of {group}", base, window=near, group=group)
    yield _make(
        "dual-chunk", "chunks that see each other from inside the trained length", base, original_length=trained
    )
    log = {"scheme": "temperature", "form": "floor", "coefficient": 1 / math.log(trained), "length": trained}
    both = {"scheme": "composition", "schemes": [{"scheme": "rope", "base": base}, log]}
    yield Method("log-n", "attention sharper by the logarithm of the place, beyond the trained length", scheme=both)
    yield Method("dropped", "nothing turns (DroPE, which trains after it)", scheme={"scheme": "none"})


def _make(name: str, description: str, base: float, **options: Any) -> Method:
    scheme = name.removeprefix("leaky-")
    return Method(name, description, scheme={"scheme": scheme, "base": base, **options})


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
    vocabulary = model.vocabulary_size
    ids_BS = torch.randint(0, vocabulary, (2, PROBE), generator=torch.Generator().manual_seed(0))
    method = Method("itself", "", scheme={"scheme": "rope", "base": base})
    try:
        expected = model.compute_logits(ids_BS)
        with lay_scheme(model, method) as laid:
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
    with _still_rotation(model), _use_attention(model, method):
        yield model


class _Still(nn.Module):
    """A rotation by no angle, of the shape of another."""

    def __init__(self, rotary: nn.Module) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, *arguments: Any, **named: Any) -> tuple[Tensor, Tensor]:
        cos, _ = self.rotary(*arguments, **named)
        return torch.ones_like(cos), torch.zeros_like(cos)


@contextmanager
def _still_rotation(model: LanguageModel) -> Iterator[None]:
    """Hold the rotation of a model of transformers still. Raises UsageError for one that has none, or several."""
    places = [
        (parent, name, part)
        for parent in model.model.modules()
        for name, part in parent.named_children()
        if hasattr(part, "inv_freq")
    ]
    if len(places) != 1:
        raise UsageError(
            f"{model.source} has {len(places)} modules that make frequencies; one for all layers is needed"
        )
    ((parent, name, part),) = places
    setattr(parent, name, _Still(part))
    try:
        yield
    finally:
        setattr(parent, name, part)


@contextmanager
def _use_attention(model: LanguageModel, method: Method) -> Iterator[None]:
    """Give a model of transformers our attention with the scheme of a method."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, _make_no_mask)
    text = model.model.config.get_text_config(decoder=True)
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    sizes = Sizes(text.hidden_size, text.hidden_size, text.num_attention_heads, width)
    table = PositionConfig.from_dict(method.scheme)
    _schemes.append(build(CATALOGUE, table.scheme, sizes, table.options).to(model.device))
    before = model.model.config._attn_implementation
    model.model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.model.set_attn_implementation(before)
        _schemes.pop()


def _make_no_mask(*arguments: Any, **named: Any) -> None:
    """Return no mask: texts have no padding, and our attention is causal by itself."""


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
    scaling: float | None = None, **options: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Compute attention for ``transformers`` with our scheme, the keys counted from the beginning of the text."""
    if attention_mask is not None or scaling not in (None, query.shape[-1] ** -0.5):
        raise UsageError(f"{type(module).__name__} has a mask or a scale of its own")
    total = key.shape[2]
    kpos_1T = torch.arange(total, device=query.device)[None]
    qpos_1S = kpos_1T[:, total - query.shape[2] :]
    out = attend(_schemes[-1], query, key, value, qpos_1S, kpos_1T, causal=True, scale=scaling)
    return out.transpose(1, 2), None
