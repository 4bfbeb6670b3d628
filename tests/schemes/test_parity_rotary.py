"""Rotary schemes against the libraries people use, forward and gradient, to float32 precision. Faults are shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from torch import Tensor
from transformers import GPTNeoXConfig, Llama4TextConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as neox_turn
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_turn
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama_turn
from x_transformers import x_transformers as X

from clockhands import positions
from clockhands.attention import attend_reference
from clockhands.schemes import Axial, MRoPE, PoPE, RoPE, SSMax, Temperature, XPos

HEADS, LENGTH, HEAD_DIM = 3, 20, 16
Pair = tuple[Tensor, Tensor]


def qk(length: int = LENGTH) -> Pair:
    q, k = (torch.randn(2, HEADS, length, HEAD_DIM, requires_grad=True) for _ in "qk")
    return q, k


def same(ours: Callable[[Tensor, Tensor], Pair], theirs: Callable[[Tensor, Tensor], Pair], atol: float = 5e-6) -> None:
    """Scores and the gradients of a random sum of them agree."""
    q, k = qk()
    goal = torch.randn(2, HEADS, LENGTH, LENGTH).tril()
    found = []
    for turn in (ours, theirs):
        a, b = turn(q, k)
        scores = (a @ b.mT).tril()
        found.append((scores, *torch.autograd.grad((scores * goal).sum(), (q, k))))
    for mine, yours in zip(*found, strict=True):
        torch.testing.assert_close(mine, yours, atol=atol * max(1.0, float(yours.abs().max())), rtol=1e-5)


def rotate(scheme: Any, pos: Tensor | None = None) -> Callable[[Tensor, Tensor], Pair]:
    where = positions.count_up(2, LENGTH) if pos is None else pos
    return lambda q, k: scheme.rotate(q, k, where, where)


def config(parameters: dict[str, Any], **more: Any) -> LlamaConfig:
    wide = {"hidden_size": HEADS * HEAD_DIM, "num_attention_heads": HEADS, "max_position_embeddings": 4096, **more}
    return LlamaConfig(rope_parameters=parameters, **wide)


def each(turn: Callable[..., Tensor], *arguments: Any) -> Callable[[Tensor, Tensor], Pair]:
    """The rotation of a library that takes queries and keys one at a time."""
    return lambda q, k: (turn(q, *arguments), turn(k, *arguments))


def gptj(x: Tensor) -> Tensor:
    sin, cos = create_sinusoidal_positions(LENGTH, HEAD_DIM)[None].split(HEAD_DIM // 2, dim=-1)
    return gptj_turn(x.transpose(1, 2), sin, cos).transpose(1, 2)


def llama(q: Tensor, k: Tensor) -> Pair:
    peer = LlamaRotaryEmbedding(config({"rope_type": "default", "rope_theta": 10_000.0}))
    return llama_turn(q, k, *peer(q, torch.arange(LENGTH)[None]))


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({"layout": "half"}, llama),
        ({}, each(gptj)),
        ({}, each(X.apply_rotary_pos_emb, *X.RotaryEmbedding(HEAD_DIM).forward_from_seq_len(LENGTH))),
        ({"fraction": 0.5}, each(RotaryEmbedding(dim=8).rotate_queries_or_keys)),
        ({"spectrum": "linear", "factor": 4.0},
         each(RotaryEmbedding(dim=HEAD_DIM, interpolate_factor=4.0).rotate_queries_or_keys)),
        ({"spectrum": "ntk", "factor": 4.0},
         each(RotaryEmbedding(dim=HEAD_DIM, theta_rescale_factor=4.0).rotate_queries_or_keys)),
    ],
    ids=["Llama", "GPT-J", "x-transformers", "its first channels", "interpolated", "rescaled"],
)  # fmt: skip
def test_rope_equals_the_libraries(options: dict[str, Any], theirs: Callable[[Tensor, Tensor], Pair]) -> None:
    same(rotate(RoPE.from_options(HEAD_DIM, **{"layout": "interleaved", **options})), theirs)


FACTORS = {"short_factor": [1.0 + 0.1 * n for n in range(8)], "long_factor": [2.0 + n for n in range(8)]}
SPECTRA: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"spectrum": "linear", "factor": 4.0}, {}),
    ({"spectrum": "ntk", "factor": 4.0}, {}),
    ({"spectrum": "yarn", "factor": 4.0, "original_length": 64}, {}),
    ({"spectrum": "yarn", "factor": 4.0, "original_length": 64, "truncate": False, "beta_fast": 8.0}, {}),
    ({"spectrum": "llama3", "factor": 8.0, "original_length": 128}, {}),
    ({"spectrum": "llama3", "factor": 8.0, "original_length": 128, "high_frequency_factor": 1.0}, {}),
    ({"spectrum": "proportional", "share": 0.5}, {}),
    ({"spectrum": "hope", "original_length": 64}, {}),
    ({"spectrum": "hope", "original_length": 3000}, {}),
    ({"spectrum": "longrope", "factor": 4.0, "original_length": 64, **FACTORS}, {}),
    ({"spectrum": "dynamic", "factor": 2.0, "original_length": 64}, {"max_position_embeddings": 64}),
]


@pytest.mark.parametrize("length", [50, 200])
@pytest.mark.parametrize(("options", "more"), SPECTRA, ids=[str(s[0].get("spectrum", s[0])) for s in SPECTRA])
def test_trap_22_every_spectrum_equals_transformers_from_its_own_config(
    options: dict[str, Any], more: dict[str, Any], length: int
) -> None:
    scheme = RoPE.from_options(HEAD_DIM, **options)
    parameters = scheme.to_hf_config()
    assert parameters is not None
    built = config(parameters["rope_parameters"], **more)
    kind = parameters["rope_parameters"]["rope_type"]
    if kind == "default":
        theirs, factor = LlamaRotaryEmbedding(built).inv_freq, 1.0
    else:
        theirs, factor = ROPE_INIT_FUNCTIONS[kind](built, "cpu", seq_len=length)
    ours = scheme.frequencies(torch.tensor([length])).float().flatten()
    torch.testing.assert_close(ours, theirs, rtol=3e-6, atol=0)
    assert scheme.spectrum.amplitude() == pytest.approx(factor, rel=1e-6)


def test_trap_22_yarns_temperature_is_applied_once_to_each_side() -> None:
    factor = 0.1 * math.log(4) + 1
    for given, wanted in ((None, factor), (1.5, 1.5)):
        scheme = RoPE.from_options(HEAD_DIM, spectrum="yarn", factor=4.0, original_length=64, attention_factor=given)
        q, k = (x.detach() for x in qk())
        pos = positions.count_up(2, LENGTH)
        a, b = scheme.rotate(q, k, pos, pos)
        torch.testing.assert_close(a.norm(dim=-1), wanted * q.norm(dim=-1))
        torch.testing.assert_close(b.norm(dim=-1), wanted * k.norm(dim=-1))
        assert scheme.scale(HEAD_DIM) == pytest.approx(HEAD_DIM**-0.5), "not in a second place"


def test_trap_20_a_partial_config_is_neoxs() -> None:
    known = RoPE(HEAD_DIM, fraction=0.5, base=500.0).to_hf_config()
    assert known is not None
    peer = GPTNeoXRotaryEmbedding(GPTNeoXConfig(hidden_size=HEADS * HEAD_DIM, num_attention_heads=HEADS, **known))
    pos = torch.arange(LENGTH)[None]
    same(rotate(RoPE(HEAD_DIM, fraction=0.5, base=500.0)), lambda q, k: neox_turn(q, k, *peer(q, pos)))


def test_trap_21_dynamic_ntk_needs_keys_that_were_not_rotated() -> None:
    """With keys rotated at an earlier length the scores of one step differ from those of the whole; raw ones do not."""
    scheme = RoPE.from_options(HEAD_DIM, spectrum="dynamic", factor=4.0, original_length=8)
    q, k = (x.detach() for x in qk())
    pos = positions.count_up(2, LENGTH)
    whole_q, whole_k = scheme.rotate(q, k, pos, pos)
    whole = whole_q[:, :, -1:] @ whole_k.mT
    turned_early = scheme.rotate(q[:, :, :10], k[:, :, :10], pos[:, :10], pos[:, :10])[1]
    last_q, keys = scheme.rotate(q[:, :, -1:], k, pos[:, -1:], pos)
    torch.testing.assert_close(last_q @ keys.mT, whole)
    stale = torch.cat([turned_early, keys[:, :, 10:]], dim=2)
    assert (last_q @ stale.mT - whole).abs().max() > 0.1
    assert scheme.declares.cache == "raw"


def test_trap_23_longrope_switches_by_the_rows_own_length() -> None:
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    scheme = RoPE.from_options(HEAD_DIM, spectrum="longrope", factor=4.0, original_length=8, **factors)
    q = torch.randn(2, 1, 12, HEAD_DIM)
    mixed = torch.stack([torch.arange(12), torch.arange(12).clamp(max=7)])
    both = scheme.rotate(q, q, mixed, mixed)[0]
    for row in range(2):
        alone = scheme.rotate(q[row : row + 1], q[row : row + 1], mixed[row : row + 1], mixed[row : row + 1])[0]
        torch.testing.assert_close(both[row : row + 1], alone)
    assert scheme.frequencies(torch.tensor([8, 9]))[:, 0, 0].tolist() == [1.0, 0.25]


def test_xpos_equals_rotary_embedding_torch_whole_but_its_cached_keys_drift() -> None:
    peer = RotaryEmbedding(dim=HEAD_DIM, use_xpos=True)
    ours = rotate(XPos(HEAD_DIM))
    same(ours, peer.rotate_queries_and_keys, 2e-5)
    q, k = (x.detach() for x in qk())
    whole_q, whole_k = peer.rotate_queries_and_keys(q, k)
    right = whole_q[:, :, -1:] @ whole_k.mT
    cached_q, cached_k = peer.rotate_queries_with_cached_keys(q[:, :, -1:], k)
    assert (cached_q @ cached_k.mT - right).abs().max() > 1e-2, "the peer was mended: drop this line"


def test_pope_equals_x_transformers() -> None:
    peer, scheme = X.PolarEmbedding(HEAD_DIM, heads=HEADS), PoPE(HEADS, HEAD_DIM)
    frequency, bias = peer(torch.arange(LENGTH))
    with torch.no_grad():
        scheme.delta_HK.copy_(peer.learned_bias.reshape(HEADS, HEAD_DIM) if hasattr(peer, "learned_bias") else 0)
    turn = X.apply_polar_pos_emb
    same(rotate(scheme), lambda q, k: (turn(q, frequency), turn(k, frequency + bias)), 1e-5)


def test_trap_41_pope_keeps_the_scale_of_the_width_before() -> None:
    scheme = PoPE(HEADS, HEAD_DIM)
    q, k = qk()
    wide, _ = scheme.rotate(q, k, *[positions.count_up(2, LENGTH)] * 2)
    assert wide.shape[-1] == 2 * HEAD_DIM
    assert scheme.scale(HEAD_DIM) == pytest.approx(1 / math.sqrt(HEAD_DIM))


def test_axial_equals_rotary_embedding_torch() -> None:
    rows, columns = 4, 5
    peer = RotaryEmbedding(dim=HEAD_DIM // 2, freqs_for="lang", theta=100.0)
    frequency = peer.get_axial_freqs(rows, columns).reshape(1, 1, LENGTH, HEAD_DIM)
    ours = rotate(Axial(HEAD_DIM), positions.make_grid(2, rows, columns))
    same(ours, lambda q, k: (apply_rotary_emb(frequency, q), apply_rotary_emb(frequency, k)))


def test_pixtral_deals_one_spectrum_out_to_rows_and_columns() -> None:
    from transformers import PixtralVisionConfig
    from transformers.models.pixtral.modeling_pixtral import PixtralVisionRotaryEmbedding

    sizes = {"hidden_size": HEADS * HEAD_DIM, "num_attention_heads": HEADS}
    parameters = {"rope_type": "axial", "rope_theta": 10_000.0}
    peer = PixtralVisionRotaryEmbedding(PixtralVisionConfig(**sizes, rope_parameters=parameters))
    grid = positions.make_grid(1, 4, 5)
    cos, sin = peer(torch.zeros(1), grid[0])
    ours = Axial(HEAD_DIM, base=10_000.0, layout="half", grid="dealt")
    same(rotate(ours, grid.expand(2, -1, -1)), lambda q, k: llama_turn(q, k, cos[None], sin[None]))
    plain = Axial(HEAD_DIM, base=10_000.0, layout="half").compute_cos_sin(grid, torch.float32)[0][0, 0]
    assert (plain - cos[:, : HEAD_DIM // 2]).abs().max() > 0.4, "a spectrum for each axis is another scheme"


def test_dinov3_has_a_spectrum_for_each_axis_of_patch_centres() -> None:
    from transformers import DINOv3ViTConfig
    from transformers.models.dinov3_vit.modeling_dinov3_vit import DINOv3ViTRopePositionEmbedding

    sizes = {"hidden_size": HEADS * HEAD_DIM, "num_attention_heads": HEADS, "patch_size": 4, "rope_theta": 100.0}
    peer = DINOv3ViTRopePositionEmbedding(DINOv3ViTConfig(**sizes)).eval()
    cos, sin = peer(torch.zeros(1, 3, 16, 20))
    ours = Axial(HEAD_DIM, base=100.0, layout="half", unit=2 * math.pi)
    centres = positions.make_patch_centres(2, 4, 5)
    same(rotate(ours, centres), lambda q, k: llama_turn(q, k, cos[None], sin[None]))


@pytest.mark.parametrize(
    ("model", "head_dim", "options", "widths", "theta"),
    [
        ("FLUX.1", 128, {"shares": (16, 56, 56), "base": 10_000.0}, (16, 56, 56), 10_000.0),
        ("HunyuanVideo", 128, {"shares": (16, 56, 56), "base": 256.0}, (16, 56, 56), 256.0),
        ("Wan 2.1", 128, {"base": 10_000.0}, (44, 42, 42), 10_000.0),
        ("CogVideoX", 64, {"shares": (16, 24, 24), "base": 10_000.0}, (16, 24, 24), 10_000.0),
    ],
)
def test_models_of_images_and_films_share_channels_out_unequally(
    model: str, head_dim: int, options: dict[str, Any], widths: tuple[int, ...], theta: float
) -> None:
    """One spectrum of theta for each axis, as wide as its share, with neighbours as complex numbers, by formula."""
    pos = positions.make_grid(1, 2, 3, 4)
    angles = [
        pos[..., axis, None].double() * theta ** (-torch.arange(0, width, 2).double() / width)
        for axis, width in enumerate(widths)
    ]
    cis = torch.polar(torch.ones(()).double(), torch.cat(angles, -1))
    q = torch.randn(1, 2, 24, head_dim, dtype=torch.float64)
    wanted = torch.view_as_real(torch.view_as_complex(q.unflatten(-1, (-1, 2))) * cis[:, None]).flatten(-2)
    got, _ = Axial(head_dim, axes=3, **options).rotate(q, q, pos, pos)
    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("head_dim", [32, 64, 96, 128])
def test_interleaved_sections_by_default_are_qwen3s(head_dim: int) -> None:
    from transformers import Qwen3VLTextConfig
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

    scheme = MRoPE(head_dim, order="interleaved")
    assert head_dim != 128 or scheme.sections == (24, 20, 20)
    sizes = {"hidden_size": head_dim, "num_attention_heads": 1, "head_dim": head_dim}
    peer = Qwen3VLTextRotaryEmbedding(Qwen3VLTextConfig(**sizes, **(scheme.to_hf_config() or {})))
    pos = positions.make_grid(1, 2, 3, 4)
    cos, _ = peer(torch.zeros(1), pos.permute(2, 0, 1))
    ours = scheme.compute_cos_sin(pos, torch.float32)[0][0, 0]
    torch.testing.assert_close(ours, cos[0, :, : head_dim // 2], atol=2e-6, rtol=0)


@pytest.mark.parametrize(("order", "sections"), [("block", (2, 3, 3)), ("interleaved", (4, 2, 2))])
def test_trap_13_mrope_equals_qwen(order: str, sections: tuple[int, int, int]) -> None:
    if order == "block":
        from transformers import Qwen2VLTextConfig as Config
        from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding as Peer
    else:
        from transformers import Qwen3VLTextConfig as Config
        from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding as Peer
    scheme = MRoPE(HEAD_DIM, sections=sections, order=order)  # type: ignore[arg-type]
    known = scheme.to_hf_config()
    assert known is not None
    peer = Peer(Config(hidden_size=HEADS * HEAD_DIM, num_attention_heads=HEADS, head_dim=HEAD_DIM, **known))
    pos = torch.cat([positions.repeat_on_axes(torch.arange(8)[None], 3), positions.make_grid(1, 1, 3, 4) + 8], dim=1)
    cos, sin = peer(torch.zeros(1), pos.permute(2, 0, 1))
    same(rotate(scheme, pos.expand(2, -1, -1)), lambda q, k: llama_turn(q, k, cos, sin))


def test_llama4_scales_queries_where_nothing_turns() -> None:
    pos = torch.tensor([[0, 8190, 8191, 16_383, 100_000]])
    known = Temperature().to_hf_config()
    others = Temperature(form="log"), Temperature(form="constant", factor=4.0)
    assert known is not None and [other.to_hf_config() for other in others] == [None, None]
    built = Llama4TextConfig(**known)
    theirs = torch.log1p(torch.floor((pos.float() + 1.0) / built.floor_scale)) * built.attn_scale + 1.0
    assert known == {key: getattr(Llama4TextConfig(), key) for key in known}, "the defaults are Llama 4's"
    q = torch.randn(1, 2, 5, 8)
    got, k = Temperature().rotate(q, q, pos, pos)
    torch.testing.assert_close(got, q * theirs[:, None, :, None])
    assert torch.equal(k, q)


def test_mistral_large_4_scales_each_head_by_the_log_of_its_position() -> None:
    module = "transformers.models.mistral_large4.modeling_mistral_large4"
    theirs = pytest.importorskip(module, reason="this version of transformers has no Mistral Large 4")
    peer, ours = theirs.MistralLarge4TextSoftmaxScaling(HEADS), SSMax(HEADS, bias=True)
    assert ours.bias_H is not None
    with torch.no_grad():
        peer.scale.copy_(ours.slope_H.normal_())
        peer.bias.copy_(ours.bias_H.normal_())
    q, pos = torch.randn(2, HEADS, 5, HEAD_DIM), torch.tensor([[0, 1, 7, 500, 100_000], [4, 3, 2, 1, 0]])
    got, k = ours.rotate(q, q, pos, pos)
    torch.testing.assert_close(got, peer(q, pos, head_dim_first=True))
    assert torch.equal(k, q)


def test_ssmax_counts_the_tokens_of_a_packed_document() -> None:
    """By position and by mask alike, a document in a row of several is as sharp as it is alone."""
    documents = torch.tensor([[0] * 3 + [1] * 5])
    mask = positions.make_document_mask(documents)[:, None] & torch.ones(8, 8, dtype=torch.bool).tril()
    q, pos = torch.randn(1, HEADS, 8, HEAD_DIM), positions.count_packed(documents)
    by_position, by_mask = (
        attend_reference(SSMax(HEADS, count=count), q, q, q, pos, pos, mask).weights_BHST  # type: ignore[arg-type]
        for count in ("position", "visible")
    )
    torch.testing.assert_close(by_position, by_mask)
    with torch.no_grad():
        scores = q @ q.mT / math.sqrt(HEAD_DIM) * 0.168 * torch.tensor([1, 2, 3, 1, 2, 3, 4, 5]).log()[:, None]
    torch.testing.assert_close(by_mask, scores.masked_fill(~mask, -math.inf).softmax(-1))


def test_rothp_is_rope_on_real_times() -> None:
    """Two events meet by the time between them: R(t_i)q·R(t_j)k is q·R(t_j - t_i)k, whenever the record began."""
    times = positions.read_times([[0.0, 0.37, 5.25, 1000.125]])
    q, k = torch.randn(2, 1, 1, 4, HEAD_DIM, dtype=torch.float64).unbind(0)
    scheme = RoPE(HEAD_DIM)
    a, b = scheme.rotate(q, k, times, times)
    apart = times[0, None, :] - times[0, :, None]
    for i in range(4):
        _, turned = scheme.rotate(k, k, apart[i : i + 1], apart[i : i + 1])
        torch.testing.assert_close((a @ b.mT)[0, 0, i], (q[0, 0, i] * turned[0, 0]).sum(-1))


def test_trap_02_bfloat16_positions_are_not_ours() -> None:
    """rotary-embedding-torch counts in the tensor's dtype: of 1024 positions 513 are different, and the cache stays."""
    length = 1024
    q = torch.ones(1, 1, length, HEAD_DIM)
    peer = RotaryEmbedding(dim=HEAD_DIM)
    low = peer.rotate_queries_or_keys(q.bfloat16())
    assert len({tuple(row) for row in low[0, 0].tolist()}) < 600, "the peer was mended: drop this test"
    pos = positions.count_up(1, length)
    ours, _ = RoPE(HEAD_DIM, layout="interleaved").rotate(q.bfloat16(), q.bfloat16(), pos, pos)
    exact, _ = RoPE(HEAD_DIM, layout="interleaved").rotate(q.double(), q.double(), pos, pos)
    assert (ours.double() - exact).abs().max() < 1e-2
    assert (low.double() - exact).abs().max() > 1


def test_trap_19_cosines_repeat_as_the_layout_pairs() -> None:
    """Only channels c and c + 8 (half), or 2c and 2c + 1 (interleaved), ever meet."""
    pos = positions.count_up(1, 3)
    for layout, partner in (("half", 8), ("interleaved", 1)):
        q = torch.zeros(1, 1, 3, HEAD_DIM)
        q[..., 0] = 1
        got, _ = RoPE(HEAD_DIM, layout=layout).rotate(q, q, pos, pos)  # type: ignore[arg-type]
        assert got[0, 0, 1].nonzero().flatten().tolist() == [0, partner]
