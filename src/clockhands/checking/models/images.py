"""Prompts with images and videos for models whose text has three axes of position: time, height and width."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.models.huggingface import Held, list_arguments
from clockhands.checking.models.processors import find_borders, make_processor
from clockhands.checking.models.subject import Subject
from clockhands.model.huggingface_cache import get_cache, name_cache

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Request:
    """One row as somebody writes it: text with a placeholder for each picture, and the pictures."""

    text: str
    images: tuple[Tensor, ...] = ()
    videos: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Prompt:
    """Rows of text with images in them, as the processor of the type gives them to the model.

    ``rows`` are the arguments with a value for each token [rows, tokens], ``seen`` those about pictures: their patches,
    how many there are by axis, and the seconds between the frames of a video. ``requests`` made the rows.
    """

    rows: dict[str, Tensor]
    seen: dict[str, Tensor]
    holders: tuple[int, ...]
    requests: tuple[Request, ...]

    @property
    def length(self) -> int:
        """How many tokens each row has, those of images and pads included."""
        return self.rows["input_ids"].shape[1]

    @property
    def attention_mask(self) -> Tensor:
        """The mask of all rows: 1 where a token stands, 0 for a pad."""
        return self.rows["attention_mask"]

    def cut(self, start: int, stop: int) -> dict[str, Any]:
        """Return the arguments of a piece, without a mask. A picture belongs to the piece in which it stands whole."""
        inputs = {name: row[:, start:stop] for name, row in self.rows.items() if name != "attention_mask"}
        if torch.isin(inputs["input_ids"], torch.tensor(self.holders, device=inputs["input_ids"].device)).any():
            return {**inputs, **self.seen}
        return {name: row for name, row in inputs.items() if name == "input_ids"}

    def as_inputs(self) -> dict[str, Any]:
        """Return the arguments of the whole."""
        return {**self.rows, **self.seen}


def draw_prompt(
    subject: Subject, grid: Grid, before: int, after: int, salt: int = 0, video: bool = False, fps: float | None = None
) -> Prompt:
    """Return one row: ``before`` tokens of text, an image or video of ``grid`` patches, ``after`` tokens.

    Raises LookupError where no processor can be made.
    """
    return draw_row(subject, [before, (grid, video), after], salt, fps)


def draw_row(
    subject: Subject, parts: Sequence[int | tuple[Grid, bool]], salt: int = 0, fps: float | None = None
) -> Prompt:
    """Return one row of ``parts``: so many tokens of text, or a picture by its grid and whether it is a video."""
    processor = make_processor(_config(subject))
    generator = torch.Generator().manual_seed(1000 * subject.seed + salt)
    text = subject.tokens(1, sum(part for part in parts if isinstance(part, int)), salt)[0].tolist()
    words: list[str] = []
    images: list[Tensor] = []
    videos: list[Tensor] = []
    for part in parts:
        if isinstance(part, int):
            words += [f"t{text.pop(0)}" for _ in range(part)]
            continue
        grid, video = part
        maker = processor.video_processor if video else processor.image_processor
        (videos if video else images).append(maker.draw(grid, generator))
        words.append(_place(processor, _config(subject), video))
    return process(subject, [Request(" ".join(words), tuple(images), tuple(videos))], fps)


def _place(processor: Any, config: Any, video: bool) -> str:
    """Return the placeholder of a picture with its borders."""
    holder = processor.video_token if video else processor.image_token
    start, end = processor.tokenizer.convert_ids_to_tokens(list(find_borders(config, "video" if video else "image")))
    return f"{start}{holder}{end}"


def process(subject: Subject, requests: Sequence[Request], fps: float | None = None) -> Prompt:
    """Return the rows that the processor makes of requests, the shorter ones padded on the left.

    Raises NotImplementedError where the processor cannot work with the parts that are made here: no fault of a model.
    """
    config = _config(subject)
    processor = make_processor(config, fps)
    images = [picture for request in requests for picture in request.images]
    videos = [picture for request in requests for picture in request.videos]
    inputs: dict[str, Any] = {"text": [request.text for request in requests]}
    inputs |= ({"images": images} if images else {}) | ({"videos": videos} if videos else {})
    if videos and fps is not None:
        inputs["fps"] = fps  # some processors look here, and not at what is known of the film
    kinds = "mm_token_type_ids" in list_arguments(_module(subject))
    try:
        made = processor(**inputs, padding=True, return_tensors="pt", return_mm_token_type_ids=kinds)
    except Exception as fault:  # a processor may raise anything
        raise NotImplementedError(
            f"its processor makes no prompt of the pictures that stand in here: {type(fault).__name__}: {fault}"
        ) from fault
    device = next(_module(subject).parameters()).device
    others = ("token_type_ids", "video_metadata")
    tensors = {name: torch.as_tensor(value).to(device) for name, value in made.items() if name not in others}
    shape = tensors["input_ids"].shape
    rows = {name: value for name, value in tensors.items() if value.shape == shape}
    seen = {name: value for name, value in tensors.items() if name not in rows}
    seen = {name: value.to(subject.dtype) if name.startswith("pixel") else value for name, value in seen.items()}
    words = (processor.image_token, getattr(processor, "video_token", processor.image_token))
    holders = tuple(processor.tokenizer.convert_tokens_to_ids(list(words)))
    return Prompt(rows, seen, holders, tuple(requests))


def pad_left(subject: Subject, prompts: Sequence[Prompt]) -> Prompt:
    """Return prompts as one batch, made by the processor of all their texts and pictures."""
    return process(subject, [request for prompt in prompts for request in prompt.requests])


def find_axes(module: Any) -> Any:
    """Return the part of a model that makes positions of three axes; None if it has none."""
    parts = (getattr(module, "model", None), module)
    return next((part for part in parts if hasattr(part, "get_rope_index")), None)


def count_positions(subject: Subject, prompt: Prompt) -> Tensor:
    """Return the positions [axes, rows, tokens] that the model itself makes for a prompt, on a copy of it."""
    axes = find_axes(subject.copy_untouched().module)
    inputs = prompt.as_inputs()
    if "video_second_per_grid" in inputs:
        inputs["second_per_grids"] = inputs["video_second_per_grid"]
    taken = inspect.signature(axes.get_rope_index).parameters
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
    return axes.get_rope_index(**{name: value for name, value in inputs.items() if anything or name in taken})[0]


def read(subject: Subject, inputs: dict[str, Any], cache: Held | None = None) -> Tensor:
    """Return the logits of every token of the piece; a given ``cache`` is used and extended."""
    with torch.no_grad():
        output = _module(subject)(**inputs, use_cache=cache is not None, **name_cache(cache.state if cache else None))
    if cache is not None:
        cache.state = get_cache(output)
    return output.logits


def _module(subject: Subject) -> Any:
    return subject.module


def _config(subject: Subject) -> Any:
    return _module(subject).config
