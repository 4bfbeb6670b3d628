"""The processor that transformers has for a type, made without a download: it makes prompts with images and videos.

Its own code counts the tokens of an image, writes timestamps between the frames of a video, tells what stands where and
pads. What it is given is made here: a tokenizer with one token a word, and patches that are drawn and not cut from
pictures, so that no library for pictures is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.models.builds import multimodal

_FPS = 4.0
_BORDERS = {"vision": ("bos", "eos"), "image": ("start", "end"), "video": ("start", "end")}


def make_processor(config: Any, fps: float | None = None) -> Any:
    """Return the processor of a configuration's type; ``fps`` are the frames a second of videos (4).

    Raises LookupError where transformers has none for it.
    """
    processor = find_processor(config.model_type)
    if processor is None:
        raise LookupError(f"transformers has no processor for {config.model_type}")
    drawn = {
        "image_processor": _Patches(config),
        "video_processor": _Patches(config, fps or _FPS),
        "feature_extractor": None,
        "tokenizer": make_tokenizer(config),
    }
    # Its constructor asks for classes that exist only where torchvision does.
    parts = {attribute: drawn[attribute] for attribute in processor.get_attributes()}
    made = type(processor.__name__, (_AnyParts, processor), {"get_attributes": processor.get_attributes})
    return made(**parts)


def find_processor(model_type: str) -> Any:
    """Return the class of a type's processor; None where transformers has none."""
    from transformers.models.auto import processing_auto

    names: Any = processing_auto.PROCESSOR_MAPPING_NAMES  # type: ignore[attr-defined]
    name = names.get(multimodal()["processors"].get(model_type, model_type))
    return processing_auto.processor_class_from_name(str(name)) if name else None


class _AnyParts:
    """Takes parts of any class."""

    def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> type:
        del argument_name
        return type(argument)


def make_tokenizer(config: Any) -> Any:
    """Return a tokenizer that reads ``t17`` as token 17, and the special tokens by the ids of the configuration."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    named = list_special_tokens(config)
    words = [f"t{number}" for number in range(config.get_text_config().vocab_size)]
    for name, number in named.items():
        words[number] = _word(config.model_type, name)
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[-1]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {f"{name}_token": words[number] for name, number in named.items()}
    for kind in ("vision", "image", "video", "audio"):
        for pair, number in zip((("bos", "start"), ("eos", "end")), find_borders(config, kind), strict=True):
            special |= {f"{kind}_{end}_token": words[number] for end in pair}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=words[-1],
        pad_token=words[0],
        padding_side="left",
        extra_special_tokens=special,
    )


def _word(model_type: str, name: str) -> str:
    """Return the word of a special token, by which a processor may ask for it."""
    own = multimodal()["words"].get(model_type, {}).get(name)
    kind, _, end = name.rpartition("_")
    if end in ("start", "end") and kind in ("image", "video"):
        return own or f"<|{'begin' if end == 'start' else 'end'}_of_{kind}|>"
    return own or f"<|{name}{'_pad' if not kind else ''}|>"


def list_special_tokens(config: Any) -> dict[str, int]:
    """Return the special tokens of a configuration that stand for what is no text: image, video, vision_start, ..."""
    special = {}
    for name, value in config.to_dict().items():
        kind = name.removesuffix("_token_id").removesuffix("_token_index")
        if kind != name and isinstance(value, int) and value > 0:
            special[kind] = value
    return {
        kind: number for kind, number in special.items() if kind not in ("pad", "bos", "eos", "unk", "decoder_start")
    }


def find_borders(config: Any, kind: str = "image") -> tuple[int, int]:
    """Return the tokens that open and close an image or a video. Raises LookupError where there are none."""
    special = list_special_tokens(config)
    for pair in ((f"{kind}_start", f"{kind}_end"), ("vision_start", "vision_end"), ("image_start", "image_end")):
        if all(name in special for name in pair):
            return special[pair[0]], special[pair[1]]
    raise LookupError(f"{config.model_type} has no tokens around its images")


class _Patches:
    """Stands where an image or video processor does: cuts pictures of noise into patches, and counts them."""

    def __init__(self, config: Any, fps: float | None = None) -> None:
        vision, video = config.vision_config, fps is not None
        self.merge_size = getattr(vision, "spatial_merge_size", 2)
        self.frames = getattr(vision, "temporal_patch_size", 1)  # in one patch
        self.temporal_patch_size = getattr(vision, "temporal_merge_size", self.frames)
        self.pictures = config.model_type in multimodal()["patches"]["types"]
        self.patch_size = vision.patch_size
        self.channels = getattr(vision, "in_channels", None) or vision.num_channels
        self.fps, self.video = fps or _FPS, video
        self.names = ("pixel_values_videos", "video_grid_thw") if video else ("pixel_values", "image_grid_thw")
        self.model_input_names = list(self.names)

    def draw(self, grid: tuple[int, int, int], generator: torch.Generator) -> Tensor:
        """Return noise of so many patches: an image [channels, height, width], or the frames of a video."""
        frames, height, width = grid
        shape = (self.channels, height * self.patch_size, width * self.patch_size)
        return torch.randn((frames * self.frames, *shape) if self.video else shape, generator=generator)

    def __call__(
        self, pictures: Sequence[Any] = (), *, images: Sequence[Any] = (), videos: Sequence[Any] = (), **_: Any
    ) -> dict[str, Any]:
        from transformers.video_utils import VideoMetadata

        pictures = pictures or images or videos  # older processors name them
        pictures = [picture[0] if isinstance(picture, list) else picture for picture in pictures]
        grids = [self._count(picture) for picture in pictures]
        pixels = [self._cut(*pair) for pair in zip(pictures, grids, strict=True)]
        data: dict[str, Any] = {self.names[0]: torch.cat(pixels), self.names[1]: torch.tensor(grids)}
        if self.video:
            lengths = [len(picture) for picture in pictures]
            data["video_metadata"] = [
                VideoMetadata(total_num_frames=n, fps=self.fps, frames_indices=list(range(n)), duration=n / self.fps)
                for n in lengths
            ]
        return data

    def _count(self, picture: Tensor) -> tuple[int, int, int]:
        frames = len(picture) // self.frames if self.video else 1
        return frames, picture.shape[-2] // self.patch_size, picture.shape[-1] // self.patch_size

    def _cut(self, picture: Tensor, grid: tuple[int, int, int]) -> Tensor:
        """Return [patches, pixels of a patch]; a picture of noise is as good in any order of its pixels."""
        repeated = picture if self.video else picture.unsqueeze(0).repeat(self.frames, 1, 1, 1)
        size = self.patch_size
        return repeated.reshape(math.prod(grid), *((self.channels, size, size) if self.pictures else (-1,)))

    def fetch_images(self, pictures: Any) -> Any:
        """Return what is there already."""
        return pictures

    fetch_videos = fetch_images
