"""Spectra, forms and transforms that have a name of their own, each as a row; and what the catalogue does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from clockhands.options import defaults_of, options_of
from clockhands.positions import TRANSFORMS
from clockhands.schemes.rotary.trained_length import add_trained_length

Kind = Literal["spectrum", "form", "transform"]


@dataclass(frozen=True)
class Variant:
    """One way to encode position that is an option of a scheme, or a change of positions under any scheme.

    ``of``: the scheme with these ``options``, which are those that make it what it is and are enough to build it at the
    right sizes, or to train it where it needs the trained length; empty for a transform, whose name is ``name`` in
    ``positions.TRANSFORMS``. ``models``: known models that have it.
    """

    name: str
    kind: Kind
    of: str
    title: str
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()


def _spectrum(
    name: str, title: str, source: str, models: tuple[str, ...] = (), spectrum: str = "", **options: Any
) -> Variant:
    return Variant(name, "spectrum", "rope", title, source, {"spectrum": spectrum or name, **options}, models)


def _form(name: str, of: str, title: str, source: str, models: tuple[str, ...] = (), **options: Any) -> Variant:
    return Variant(name, "form", of, title, source, options, models)


def _transform(name: str, title: str, source: str) -> Variant:
    return Variant(name, "transform", "", title, source)


_ROPE = (
    _spectrum("linear", "Every position is divided by the factor.", "Chen et al. 2023, equation 4", factor=4.0),
    _spectrum("ntk", "A larger base slows slow hands and leaves fast ones.", "bloc97 2023", factor=4.0),
    _spectrum(
        "dynamic-ntk", "NTK by the length of the row.", "emozilla 2023; transformers",
        spectrum="dynamic", factor=2.0, original_length=2048,
    ),
    _spectrum(
        "yarn", "Slow hands are interpolated, fast ones kept, between them a ramp.", "Peng et al. 2023, section 3",
        ("gpt-oss",), factor=4.0, original_length=2048,
    ),
    _spectrum(
        "yarn-deepseek", "YaRN with DeepSeek's two slopes of its temperature.", "DeepSeek-V2 2024, model code",
        ("DeepSeek-V2", "DeepSeek-V3"),
        spectrum="yarn", factor=40.0, original_length=4096, mscale=1.0, mscale_all_dim=1.0,
    ),
    _spectrum(
        "longrope", "Every hand has a searched factor, one set for short rows and one for long.", "Ding et al. 2024",
        ("Phi-3",), factor=4.0, original_length=2048, short_factor=(1.0,) * 32, long_factor=(4.0,) * 32,
    ),
    _spectrum(
        "llama3", "Long wavelengths are interpolated, short ones kept.", "Llama 3.1 (Meta 2024), model code",
        ("Llama 3.1",), original_length=8192,
    ),
    _spectrum("p-rope", "The highest share of the frequencies turns.", "Barbero et al. 2025, section 6", ("Gemma 4",),
              spectrum="proportional", share=0.25),
    _spectrum("hope", "Hands that do not come round within the trained length rest.", "Chen et al. 2025 (HoPE)",
              original_length=2048),
    _form("rope-interleaved", "rope", "Neighbouring channels are the pairs.", "Su et al. 2021", ("GPT-J",),
          layout="interleaved"),
    _form("partial-rope", "rope", "The first channels of a head turn, the others carry no position.",
          "Black et al. 2022 (GPT-NeoX)", ("GPT-NeoX", "Phi-2"), fraction=0.5),
    _form("lerope", "rope", "Frequencies are learned.", "LeRoPE (2607.10134)", ("Mistral Large 4",), learned=True),
    _form("value-rope", "rope", "Values are rotated as keys are, and the output back by the query's angle.",
          "DeepSeek-V4 (2026), model code", ("DeepSeek-V4",), values=True, layout="interleaved", fraction=0.125),
    _form("rothp", "rope", "RoPE on the times of events.", "Gao and Dai 2024 (2405.06985)"),
)  # fmt: skip
_AXES = (
    _form("pixtral", "axial", "One spectrum is dealt out to rows and columns.", "Pixtral (2024), transformers",
          ("Pixtral",), grid="dealt", base=10_000.0, layout="half"),
    _form("dinov3", "axial", "A spectrum for each axis of patch centres in [-1, 1].", "Siméoni et al. 2025",
          ("DINOv3",), layout="half", unit=6.283185307179586),
    _form("flux", "axial", "16 channels for the text's axis, 56 for rows and columns each.", "FLUX.1 (2024)",
          ("FLUX.1",), axes=3, shares=(16, 56, 56), base=10_000.0),
    _form("wan", "axial", "Time, height and width as equally as pairs allow.", "Wan 2.1 (2025)", ("Wan 2.1",),
          axes=3, base=10_000.0),
    _form("hunyuan-video", "axial", "Unequal shares, and a base of 256.", "HunyuanVideo (2024)", ("HunyuanVideo",),
          axes=3, shares=(16, 56, 56), base=256.0),
    _form("cogvideox", "axial", "A quarter for time, three eighths for height and width each.", "CogVideoX (2024)",
          ("CogVideoX",), axes=3, shares=(16, 24, 24), base=10_000.0),
    _form("mrope-interleaved", "mrope", "Time, height and width take turns along the spectrum.", "Qwen3-VL 2025",
          ("Qwen3-VL",), order="interleaved"),
    _form("comrope-ap", "liere", "Each block of channels follows one axis.", "Yu et al. 2025 (ComRoPE)",
          form="partition"),
    _form("comrope-ld", "liere", "The axes share a generator, each at its own rate.", "Yu et al. 2025 (ComRoPE)",
          form="dependent"),
    _form("sinusoidal-tensor2tensor", "sinusoidal", "Sines before cosines, and an exponent that ends at the base.",
          "Vaswani et al. 2017, released code", ("fairseq", "M2M-100"), exponent="tensor2tensor", layout="half"),
    _form("sinusoidal-scaled", "sinusoidal", "The amplitude is learned.", "Ao et al. 2022 (SpeechT5)", ("SpeechT5",),
          learned_amplitude=True),
    _form("sinusoids-3d", "sinusoidal-axes", "Channels are split over three axes.", "Vaswani et al. 2017, by axis",
          axes=3),
)  # fmt: skip
_BIASES = (
    _form("alibi-symmetric", "alibi", "The penalty grows on both sides.", "Press et al., issue 5 of their repository",
          form="symmetric"),
    _form("alibi-asymmetric", "alibi", "Half of the heads look left, half right.",
          "Press et al., issue 5 of their repository", form="asymmetric"),
    _form("alibi-two-sided", "alibi", "Left and right have learned slopes of their own.",
          "Press et al., issue 5 of their repository", form="two-sided"),
    _form("alibi-broken", "alibi", "Half a token breaks the symmetry.", "Ruoss et al. 2023, code", form="broken"),
    _form("alibi-geometric", "alibi", "One geometric row of slopes for any number of heads.", "attention-gym",
          slopes="geometric"),
    _form("alibi-learned", "alibi", "Slopes are learned.", "Press et al. 2022, section 3", learned=True),
    _form("kerple-power", "kerple", "A power of the distance.", "Chi et al. 2022", form="power"),
    _form("diet-relative", "diet", "One learned number for each distance.", "Chen et al. 2021 (2104.08698)",
          form="relative"),
    _form("alibi-manhattan", "alibi-axes", "Distances along the axes are added.", "Fuller et al. 2023, another norm",
          norm="manhattan"),
    _form("shaw-keys", "shaw", "Relative vectors for keys alone.", "Shaw et al. 2018, table 3",
          ("Wav2Vec2-BERT", "SpeechT5"), values=False),
)  # fmt: skip
_CONTENT = (
    _form("cable", "forgetting", "Forgetting without a bias of its own.", "Cable 2025", gate="cable"),
    _form("path-fox", "path", "PaTH, and gates that forget.", "Yang et al. 2025", forget=True),
    _form("inkling-tau", "inkling", "Relative logits that grow sharper with the position.",
          "Inkling (2026), transformers", ("Inkling",), sharpen_after=1024),
    _form("grape-rank-2", "grape", "One learned plane for each head.", "Zhang et al. 2025, section 3", form="rank-2"),
    _form("leaky-rerope", "rerope", "Beyond the window distances grow more slowly.", "Su 2023", factor=8.0),
    _form("drope", "temperature", "No position, and a constant temperature.", "Gelberg et al. 2025, section 4",
          form="constant", factor=4.0),
    _form("log-temperature", "temperature", "No position, and a temperature by log position.",
          "Llama 4 (Meta 2025), without its steps", form="log"),
    _form("ssmax-bias", "ssmax", "A learned constant besides the learned slope.",
          "Mistral Large 4 (2026), transformers", ("Mistral Large 4",), bias=True),
    _form("ssmax-visible", "ssmax", "n is what the mask shows.", "Nakanishi 2025 (2501.19399)", count="visible"),
)  # fmt: skip
_TRANSFORMS = (
    _transform("shifted", "One random offset for each row (SHAPE).", "Kiyono et al. 2021, section 3"),
    _transform("randomised", "A sorted random subset of larger positions.", "Ruoss et al. 2023"),
    _transform("random-float", "Sorted uniform real numbers (RFS).", "Shimizu et al. 2026 (2602.14050)"),
    _transform(
        "skipping", "Pieces of a short text stand all over a longer one (PoSE).", "Zhu et al. 2024 (2309.10400)"
    ),
    _transform("cape", "Shifted, jittered and stretched; on grids too.", "Likhomanenko et al. 2021, section 3"),
    _transform("jittered", "A grid is shifted, stretched and scaled (DINOv3).", "Siméoni et al. 2025"),
    _transform("scaled", "Positions are divided by a factor.", "Chen et al. 2023, equation 4"),
)

VARIANTS: tuple[Variant, ...] = (*_ROPE, *_AXES, *_BIASES, *_CONTENT, *_TRANSFORMS)


def find_variant(name: str) -> Variant | None:
    """Return the row of this name, or None if there is none."""
    return next((variant for variant in VARIANTS if variant.name == name), None)


def describe_variant(variant: Variant) -> str:
    """Return what a row is, where its scheme is explained, and the table of a recipe that asks for it."""
    import tomli_w  # late: the schemes are tested with the core alone, which has no such package

    lines = [f"{variant.name}: {variant.title}", "", f"source     {variant.source}"]
    lines += [f"used by    {', '.join(variant.models) or 'no widely known model'}"]
    if variant.of:
        lines += [f"a {variant.kind} of {variant.of}, explained by: clockhands schemes {variant.of}"]
    else:
        lines += ["a transform of positions, under any scheme"]
    return "\n".join([*lines, "", "in a recipe:", tomli_w.dumps({"position": make_position_table(variant)})])


def make_position_table(variant: Variant) -> dict[str, Any]:
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
