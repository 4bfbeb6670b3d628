"""The controls of the page's encoder, computed by PyTorch: which apply to a model, and what becomes of its input.

The page computes the same in its script; what both count over held-out sentences has to agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch

from clockhands.model.config_types import StackSide
from clockhands.runs import Run
from clockhands.schemes import Scheme, Sinusoidal
from clockhands.shapes import Float, Num, Tensor

__all__ = ["Controls", "apply_controls", "list_applicable", "read_amplitude", "read_token_scale"]

_POSITIONS = ("positions", "frozenAt", "offset", "shuffledRows")
_NAMES = {
    "sine_only": "sineOnly",
    "stopped_hand": "stoppedHand",
    "frozen_at": "frozenAt",
    "scale_tokens": "scaleTokens",
}


@dataclass(frozen=True)
class Controls:
    """What is changed about the positions of the encoder; None and False leave it as it was trained.

    Args:
        reversed: the last token stands at position 0.
        frozen_at: every token stands at this position.
        offset: added to every position.
        base: of the wavelengths of sinusoids.
        stopped_hand: the pair of channels that stays where it is at position 0.
        sine_only: the cosine of every pair is 0.
        loudness: factor of the position vectors.
        scale_tokens: whether token embeddings are multiplied by √d_model.
    """

    reversed: bool = False
    frozen_at: float | None = None
    offset: float = 0.0
    base: float | None = None
    stopped_hand: int | None = None
    sine_only: bool = False
    loudness: float | None = None
    scale_tokens: bool | None = None

    def to_page(self) -> dict[str, Any]:
        """Return the controls that are set, by the names that the page has for them."""
        changed = {field.name: getattr(self, field.name) for field in fields(self)}
        defaults = {field.name: field.default for field in fields(self)}
        return {_NAMES.get(name, name): value for name, value in changed.items() if value != defaults[name]}

    def place(self, length: int) -> Num[Tensor, "1 S"]:
        """Return the positions of a text of ``length`` tokens: [1, S]."""
        pos_1S = torch.arange(length)[None]
        pos_1S = pos_1S.flip(1) if self.reversed else pos_1S
        pos_1S = pos_1S if self.frozen_at is None else torch.full_like(pos_1S, 1) * self.frozen_at
        return pos_1S + self.offset if self.offset else pos_1S

    def encode(self, scheme: Scheme, length: int) -> Float[Tensor, "1 S P"] | None:
        """Return the encoding of a text of ``length`` tokens, [1, S, P]; None where the scheme has none."""
        pos_1S = self.place(length)
        if not isinstance(scheme, Sinusoidal):
            encoding = scheme.encode(pos_1S.long())
        else:
            encoding = self._encode_sinusoids(scheme, pos_1S)
        return encoding if encoding is None or self.loudness is None else self.loudness * encoding

    def _encode_sinusoids(self, scheme: Sinusoidal, pos_1S: Tensor) -> Tensor:
        if self.base is not None:
            amplitude = read_amplitude(scheme)
            scheme = Sinusoidal(
                scheme.width, layout=scheme.layout, exponent=scheme.exponent, base=self.base, amplitude=amplitude
            )
        encoding = scheme.encode(pos_1S).clone()
        hands = scheme.width // 2
        if self.stopped_hand is not None:
            pair = _find_channels(scheme.layout, self.stopped_hand, hands)
            encoding[..., pair] = scheme.encode(torch.zeros_like(pos_1S))[..., pair]
        if self.sine_only:
            encoding[..., [_find_channels(scheme.layout, hand, hands)[1] for hand in range(hands)]] = 0.0
        return encoding


def _find_channels(layout: str, hand: int, hands: int) -> list[int]:
    """Return the channels of a hand's sine and cosine."""
    return [hand, hand + hands] if layout == "half" else [2 * hand, 2 * hand + 1]


@contextmanager
def apply_controls(run: Run, controls: Controls) -> Iterator[None]:
    """Change the encoder's input inside the block; all texts of a batch must be equally long, without padding."""
    stack = run.model.transformer.get_stack("encoder")
    layer, scheme = stack.input, stack.schemes.at_input
    trained_scale = read_token_scale(run, "encoder")

    def change(module: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        ids_BS, _ = arguments
        return ids_BS, controls.encode(scheme, ids_BS.shape[1])

    def rescale(module: Any, arguments: tuple[Any, ...], embedded: Tensor) -> Tensor:
        wanted = run.model.config.transformer_config.d_model**0.5 if controls.scale_tokens else 1.0
        return embedded * (wanted / trained_scale)

    hooks = [layer.register_forward_pre_hook(change)]
    if controls.scale_tokens is not None:
        hooks.append(layer.tokens.register_forward_hook(rescale))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def read_amplitude(scheme: Sinusoidal) -> float:
    """Return the factor of sinusoids, learned or not."""
    return float(torch.as_tensor(scheme.amplitude).detach())


def read_token_scale(run: Run, side: StackSide) -> float:
    """Return the factor on the token embeddings of a side, learned or not."""
    scale = run.model.transformer.get_stack(side).input.scale
    return float(scale.detach() if isinstance(scale, torch.Tensor) else scale)


def list_applicable(run: Run, side: StackSide) -> list[str]:
    """Return the names of the page's controls that act on a side.

    Positions can be given to every model: to one without a scheme they make no difference, and that is a result.
    """
    position = run.model.config.transformer_config.get_position_config(side)
    options = {**position.options}
    names = [*_POSITIONS, *(["scaleTokens"] if read_token_scale(run, side) != 1 else [])]
    if side == "encoder":
        names.append("reversed")
    if position.scheme in ("sinusoidal", "rope"):
        names.append("stoppedHand")
        if options.get("wavelength") is None:
            names.append("base")
    if position.scheme in ("sinusoidal", "learned", "alibi", "t5"):
        names.append("loudness")
    if position.scheme == "sinusoidal" and options.get("waves", "both") == "both":
        names.append("sineOnly")
    return names
