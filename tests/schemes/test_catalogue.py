"""The constructor's signature is the configuration: read, checked, named in faults."""

from __future__ import annotations

import math
from typing import Any

import pytest

from clockhands.errors import ConfigError
from clockhands.options import fits, options_of
from clockhands.scheme_pages.variants import complete_options
from clockhands.schemes import CATALOGUE, Sizes, build, find_option_faults

SIZES = Sizes(width=32, d_model=32, num_heads=4, head_dim=8)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_option_has_a_default_that_fits(name: str) -> None:
    for option in options_of(CATALOGUE[name]).values():
        assert fits(option.default, option.type), f"{name}.{option.name}"


def test_all_faults_are_reported_together() -> None:
    said = find_option_faults(CATALOGUE, "rope", {"bas": 1.0, "layout": "thirds", "base": "x"})
    assert len(said) == 3
    assert "did you mean 'base'" in said[0]
    assert "one of 'half', 'interleaved'" in said[1] or "one of 'interleaved', 'half'" in said[1]
    with pytest.raises(ConfigError, match=r"scheme 'rope' has 3 faults"):
        build(CATALOGUE, "rope", SIZES, {"bas": 1.0, "layout": "thirds", "base": "x"})


YARN = {"spectrum": "yarn", "factor": 2.0, "original_length": 64}
DEEPSEEK = {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}
LINEAR = {"spectrum": "linear", "factor": 2.0}
LLAMA_3 = {"spectrum": "llama3", "original_length": 64}
LONG = {"spectrum": "longrope", "factor": 2.0, "original_length": 64, "short_factor": [1.0], "long_factor": [0.0] * 4}


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("rope", {"fraction": 0.4}, r"head_dim 8 x fraction 0.4 is 3 channels"),
        ("rope", {"fraction": 1.5}, r"fraction is 1.5, but must be above 0 and at most 1"),
        ("rope", {"factor": 2.0}, r"rope.factor is no option of the spectrum 'default', whose options are: none"),
        ("rope", {**LINEAR, "beta_fast": 2.0}, r"rope.beta_fast is no option .* options are: factor"),
        ("rope", {**LINEAR, "factor": -1.0}, r"rope.factor is -1.0, but must be above 0"),
        ("rope", {**YARN, "factor": 0.5}, r"rope.factor is 0.5, but must be at least 1"),
        ("rope", {**YARN, "beta_fast": 1.0}, r"rope.beta_fast is 1.0, but must be above beta_slow"),
        ("rope", LONG, r"(?s)1 numbers.*holds 0"),
        ("rope", {"spectrum": "linear"},
         r"rope.factor is not given, and the spectrum 'linear' needs it: how many times"),
        ("rope", {"spectrum": "ntk"}, r"rope.factor is not given"),
        ("rope", {"spectrum": "yarn"}, r"(?s)rope.factor is not given.*rope.original_length is not given"),
        ("rope", {"spectrum": "dynamic", "factor": 2.0}, r"rope.original_length is not given, and .* how many tokens"),
        ("rope", {"spectrum": "llama3"}, r"rope.original_length is not given"),
        ("rope", {**YARN, "mscale": 1.0},
         r"rope.mscale is 1.0 and mscale_all_dim is None; DeepSeek's formula needs both"),
        ("rope", {**DEEPSEEK, "attention_factor": 1.2}, r"rope.attention_factor and rope.mscale both set"),
        ("axial", {"shares": [4, 2, 2]}, r"axial.shares is \[4, 2, 2\], but must be 2 even numbers .* which is 8"),
        ("axial", {"shares": [5, 3]}, r"axial.shares is \[5, 3\]"),
        ("axial", {"bases": [10.0]}, r"axial.bases is \[10.0\], but must be 2 numbers above 0"),
        ("axial", {"axes": 3, "grid": "dealt"}, r"must be a multiple of 2 x 3 axes; it is 8"),
        ("axial", {"bases": [10.0, 20.0], "grid": "dealt"}, r"it takes no shares and no bases"),
        ("axial", {"axes": 5}, r"head_dim 8 has none for each of 5 axes"),
        ("rope", {**LLAMA_3, "low_frequency_factor": 9.0}, r"low_frequency_factor is 9.0, but must not be above"),
        ("rope", {"spectrum": "proportional", "share": 2.0}, r"rope.share is 2.0, but must be from 0 to 1"),
        ("rope", {"spectrum": "ntk", "factor": 2.0, "fraction": 0.25}, r"at least 4 channels that rotate; 2 do"),
        ("rerope", {"window": 0, "factor": 0.5}, r"(?s)rerope.window is 0, .*rerope.factor is 0.5, but must be at le"),
        ("self-extend", {"window": 4, "group": 0}, r"self-extend.group is 0, but must be at least 1"),
        ("fope", {}, r"fope.original_length is not given, and fope needs it: how many .* as in original_length = 512"),
        ("fope", {"original_length": 0}, r"fope.original_length is 0, but must be at least 1"),
        ("dual-chunk", {"chunk": 8}, r"dual-chunk.original_length is not given"),
        ("dual-chunk", {"original_length": 1}, r"dual-chunk.original_length is 1, but must be at least 2"),
        ("rerope", {}, r"rerope.window is not given, and neither is original_length, of which it would be half"),
        ("self-extend", {}, r"self-extend.window is not given, .* of which it would be a quarter: write how many"),
        ("rerope", {"window": 512, "original_length": 200}, r"window is 512, but must be below the trained .* = 200"),
        ("self-extend", {"window": 64, "original_length": 64}, r"self-extend.window is 64, but must be below"),
        ("self-extend", {"original_length": 1}, r"self-extend.original_length is 1, but must be at least 2"),
        ("dual-chunk", {"original_length": 8, "chunk": 8}, r"dual-chunk.chunk is 8, but must be .* below original_l"),
        ("liere", {"block": 3}, r"liere.block is 3, but must divide head_dim, which is 8"),
        ("liere", {"form": "partition"}, r"gives each of 2 axes a block, and there are 1 of 8"),
        ("diet", {"max_length": 0}, r"diet.max_length is 0, but must be at least 1"),
        ("alibi-axes", {"axes": 0}, r"alibi-axes.axes is 0, but must be at least 1"),
        ("fourier-bands", {"bands": 16}, r"fourier-bands.bands is 16, but .* room for 1 to 15 in width 32"),
        ("fourier-bands", {"resolution": 1}, r"fourier-bands.resolution is 1, but must be at least 2"),
        ("inkling", {"sharpen_after": 0}, r"inkling.sharpen_after is 0, but must be at least 1"),
        ("sinusoidal", {"base": 0.0, "wavelength": -1.0}, r"(?s)base is 0.0.*wavelength is -1.0"),
        ("index", {"learned_direction": True}, r"needs form 'direction', and form is 'channel'"),
        ("binary", {"digits": 40}, r"binary.digits is 40, but must be between 1 and the width, which is 32"),
        ("learned", {"max_length": 0}, r"learned.max_length is 0, but must be at least 1"),
        ("random", {"max_length": 0}, r"random.max_length is 0"),
        ("sinusoidal-axes", {"axes": 3}, r"width 32 is no multiple of 2 x 3 axes"),
        ("learnable-fourier", {"features": 3}, r"even number of features"),
        ("dynamic", {"depth": 0}, r"dynamic.depth is 0, but must be at least 1"),
        ("path", {"taps": 0}, r"path.taps is 0, but must be at least 1"),
        ("fire", {"hidden": -1}, r"fire.hidden is -1, but must be at least 1"),
        ("cope", {"max_position": -1}, r"cope.max_position is -1, but must be at least 1"),
        ("learned", {"std": -1.0}, r"learned.std is -1.0, but must be at least 0"),
        ("sandwich", {"size": 7}, r"size is 7"),
        ("shaw", {"clip": -1}, r"clip is -1"),
        ("deberta", {"span": 0}, r"deberta.span is 0, but must be at least 1"),
        ("deberta", {"buckets": 6, "span": 4}, r"buckets is 6 with span 4; it must be 0, or even"),
        ("swin", {"rows": 0, "columns": 4}, r"swin.rows is 0, but must be at least 1"),
        ("log-cpb", {"rows": 0, "columns": 4}, r"log-cpb.rows is 0, but must be at least 1"),
        ("t5", {"bidirectional": True, "num_buckets": 7, "max_distance": 1},
         r"(?s)num_buckets is 7.*max_distance is 1"),
    ],
)  # fmt: skip
def test_trap_20_options_out_of_range_are_refused(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(CATALOGUE, name, SIZES, given)


@pytest.mark.parametrize(
    "name", [name for name in CATALOGUE if "base" in options_of(CATALOGUE[name]) and name != "dape"]
)
@pytest.mark.parametrize(
    ("base", "needed"),
    [(0.0, "above 0"), (-1.0, "above 0"), (math.nan, "a finite number"), (math.inf, "a finite number")],
)
def test_a_base_that_is_not_above_0_is_refused(name: str, base: float, needed: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}\.base is {base}, but must be {needed}"):
        build(CATALOGUE, name, Sizes(32, 32, 4, 8, 1, True), complete_options(name, {"base": base}))


@pytest.mark.parametrize("name", ["sinusoidal", "universal"])
def test_trap_14_an_odd_width_is_refused_not_shifted(name: str) -> None:
    with pytest.raises(ConfigError, match="even width; width is 7"):
        build(CATALOGUE, name, Sizes(width=7, d_model=7, num_heads=1, head_dim=7))


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("window(left=511)", "Window(4, left=511)"),
        ("rope(layout=interleaved, base=5e5)", "RoPE(8, base=500000.0, layout='interleaved')"),
        ("self-extend(window=4)", "SelfExtend(8, window=4)"),
        ("mrope(sections=[2, 1, 1])", "MRoPE(8, sections=[2, 1, 1])"),
    ],
)
def test_a_scheme_is_read_as_it_is_printed(written: str, printed: str) -> None:
    assert repr(build(CATALOGUE, written, SIZES)) == printed
    assert find_option_faults(CATALOGUE, written, {}) == []


def test_schemes_with_a_plus_between_them_are_a_composition() -> None:
    both = build(CATALOGUE, "rope + window(left=511) + sinks", SIZES)
    assert [type(part).__name__ for part in both.parts] == ["RoPE", "Window", "Sinks"]  # type: ignore[attr-defined]
    assert both.parts[1].left == 511  # type: ignore[attr-defined]
    for wrong, said in (
        ("rope +", "is no scheme"),
        ("rope + ropee", "did you mean 'rope'"),
        ("rope(bas=1)", "did you mean 'base'"),
    ):
        assert said in find_option_faults(CATALOGUE, wrong, {})[0]
        with pytest.raises(ConfigError, match=said):
            build(CATALOGUE, wrong, SIZES)
