"""Writes docs/conformance/multimodal.md: ``python -m tests.checking.models.multimodal_page``."""

from __future__ import annotations

from pathlib import Path

import transformers
from transformers.models.auto import modeling_auto

from clockhands.checking.models.builds import architectures, multimodal, overrides

PAGE = Path(__file__).resolve().parents[3] / "docs/conformance/multimodal.md"
HEAD = """# Models that read more than text

Of the {total} types that transformers {version} lists for text beside images, video or sound
(`MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES`), `clockhands check --type NAME --tiny` builds {built}: the whole wrapper,
small, which is given text. {images} of them have text with three axes of position (M-RoPE) and are given prompts with
images too, {videos} with videos. The prompts are made by the processor of the type itself: it counts the tokens of a
picture, writes timestamps between frames, tells what stands where and pads. The pictures are noise, cut into patches
here, and the tokenizer is made on the spot, so nothing is downloaded and torchvision is not needed. A test compares
what is counted with the own image processors of Qwen2-VL and GLM-4V, which read and resize pictures by Pillow; those of
videos need torchvision. This page is written by `python -m tests.checking.models.multimodal_page`.

Not asked with images, although their text has several axes: `hunyuan_vl` (four axes, and a token that ends each row of
an image) and `minicpmv4_7` (a canvas of crops); their text is checked.

"""


def list_types() -> list[str]:
    """Return the types of the library's list, in alphabetical order."""
    return sorted(modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES)


def make_rows() -> list[tuple[str, str, str]]:
    """Return type, what is checked, and why nothing is."""
    builds = {build.type: build.name for build in architectures() if not build.variant}
    known = multimodal()
    skipped = {**overrides()["skip"], **known["skip"]}
    rows = []
    for name in list_types():
        kinds = [kind for kind in ("images", "videos") if name in known[kind]["types"]]
        what = ", ".join(["text", *kinds]) if name in builds else ""
        rows.append((name, what, "" if name in builds else skipped[name]))
    return rows


def make_page() -> str:
    """Return the page."""
    rows = make_rows()
    counts = {kind: sum(kind in what for _, what, _ in rows) for kind in ("text", "images", "videos")}
    head = HEAD.format(
        total=len(rows),
        version=transformers.__version__,
        built=counts["text"],
        images=counts["images"],
        videos=counts["videos"],
    )
    lines = ["| type | checked with | why not |", "|---|---|---|"]
    lines += [f"| `{name}` | {what or '–'} | {why} |" for name, what, why in rows]
    return head + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf8")
