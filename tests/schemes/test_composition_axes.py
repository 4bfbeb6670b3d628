"""Windows, chunks, temperatures, SSMax and sinks beside schemes of several coordinates, on random grids."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from transformers import Qwen2VLTextConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLTextModel
from transformers.models.swin.modeling_swin import window_partition

from clockhands import positions
from clockhands.attention import attend, attend_reference, by_distance, window_blocks
from clockhands.attention.request import make_request
from clockhands.errors import PositionError
from clockhands.schemes import CATALOGUE, Chunks, Composition, MRoPE, RoPE, Scheme, SSMax, Temperature, Window
from tests.schemes.laws import HEADS, LENGTH, WIDTH, Inputs, decode, encoded, inputs, make, run
from tests.schemes.oracles import ORACLES, Case, weights
from tests.schemes.peers import compute_bias

SEVERAL = [name for name in CATALOGUE if name != "composition" and (make(name, {}).declares.axes or 1) > 1]
BESIDE: dict[str, tuple[Any, ...]] = {
    "window": ({"scheme": "window", "left": 1},),
    "one-sided": ({"scheme": "window", "left": 2, "right": 0},),
    "columns": ({"scheme": "window", "left": 1, "axis": 1},),
    "rectangle": ({"scheme": "window", "left": 1, "axis": 0}, {"scheme": "window", "left": 2, "axis": 1}),
    "chunks": ({"scheme": "chunks", "size": 2},),
    "rows": ({"scheme": "chunks", "size": 2, "axis": 0},),
    "floor": ({"scheme": "temperature", "length": 2, "coefficient": 0.5, "axis": 0},),
    "log": ({"scheme": "temperature", "form": "log", "length": 2, "coefficient": 0.5, "axis": 1},),
    "constant": ({"scheme": "temperature", "form": "constant", "factor": 4.0, "coefficient": 0.5},),
    "ssmax": ({"scheme": "ssmax", "bias": True, "axis": 1},),
    "visible": ({"scheme": "window", "left": 1}, {"scheme": "ssmax", "count": "visible"}),
    "sinks": ("sinks", {"scheme": "window", "left": 2}),
    "place in the row": ({"scheme": "window", "left": 2}, {"scheme": "window", "left": 3, "axis": -1}),
    "log of the place": ({"scheme": "temperature", "form": "log", "length": 2, "axis": -1},),
    "all": ("sinks", {"scheme": "chunks", "size": 3}, {"scheme": "temperature", "length": 2, "axis": 1}, "ssmax"),
}


def beside(name: str, what: str) -> Composition:
    """A scheme and what stands beside it; an axis of -1 is the one behind the coordinates of the scheme."""
    own = make(name, {}).declares.axes
    parts = [
        {**part, "axis": own} if isinstance(part, dict) and part.get("axis") == -1
        else {"scheme": "ssmax", "axis": 0} if part == "ssmax" else part
        for part in BESIDE[what]
    ]  # fmt: skip
    made = make("composition", {"schemes": (name, *parts)})
    assert isinstance(made, Composition)
    return made.double()


def scatter(scheme: Scheme, seed: int) -> Tensor:
    """Random cells in no order, [2, S, A]: other ones in each row, and real-valued where the scheme takes such."""
    generator = torch.Generator().manual_seed(seed)
    axes = scheme.declares.axes
    assert axes is not None
    pos = torch.randint(0, 5, (2, LENGTH, axes), generator=generator)
    return pos + torch.rand(pos.shape, generator=generator, dtype=torch.float64) if scheme.declares.real_valued else pos


def place_inputs(scheme: Scheme, pos: Tensor) -> Inputs:
    data = inputs(scheme)
    data.pos = pos
    return data.to(torch.float64)


@pytest.mark.parametrize("causal", [True, False], ids=["causal-real", "bidirectional-whole"])
@pytest.mark.parametrize("what", BESIDE)
@pytest.mark.parametrize("name", SEVERAL)
def test_what_stands_beside_several_coordinates_is_what_the_oracle_says(name: str, what: str, causal: bool) -> None:
    scheme = beside(name, what)
    pos = scatter(scheme, seed=len(what))
    data = place_inputs(scheme, pos if causal else pos.floor().long())
    fast = run(scheme, data, causal)
    slow = attend_reference(scheme, data.q, data.k, data.v, data.pos, data.pos, causal=causal).out_BHSK
    vectors = encoded(scheme, data.pos)
    options = {"schemes": tuple(read_entries(scheme, name, what))}
    tolerance = 2e-5 if name == "log-cpb" else 2e-6  # whose network computes in float32
    for row in range(2):
        q, k, v, x, p = (tensor[row] for tensor in (data.q, data.k, data.v, data.x, data.pos))
        expected = ORACLES["composition"](Case(scheme, options, q, k, v, p, p, x, causal, WIDTH))
        if expected.encode_SP is not None:
            torch.testing.assert_close(vectors[row].double(), expected.encode_SP, atol=1e-6, rtol=1e-6)
        assert expected.logits_HST is not None
        out = weights(expected.logits_HST, causal) @ v if expected.out_HSK is None else expected.out_HSK
        for got in (fast, slow):
            torch.testing.assert_close(got[row], out, atol=tolerance, rtol=1e-5)


def read_entries(scheme: Composition, name: str, what: str) -> list[Any]:
    """The entries of the parts, with the axis that each part has."""
    entries: list[Any] = [name]
    for part, entry in zip(scheme.parts[1:], BESIDE[what], strict=True):
        table = {"scheme": entry} if isinstance(entry, str) else dict(entry)
        axis = getattr(part, "axis", None)
        entries.append(table if axis is None else {**table, "axis": axis})
    return entries


@pytest.mark.parametrize("what", BESIDE)
@pytest.mark.parametrize("name", SEVERAL)
def test_a_few_tokens_at_a_time_with_a_cache_equal_all_at_once(name: str, what: str) -> None:
    scheme = beside(name, what)
    data = place_inputs(scheme, scatter(scheme, seed=3))
    whole = run(scheme, data, True)
    torch.testing.assert_close(decode(scheme, data, [4, 1, 3, 1]), whole, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        pytest.param(name, what, marks=() if (row - column) % 3 == 0 else pytest.mark.exhaustive)
        for row, name in enumerate(("alibi-axes", "swin", "axial"))
        for column, what in enumerate(("window", "columns", "chunks", "rectangle", "place in the row"))
    ],
)
def test_flex_attention_with_score_mod_is_attention_with_the_mask(name: str, what: str) -> None:
    if os.environ.get("CHECK_SHAPES"):
        pytest.skip("annotations are checked at run time, and FlexAttention would trace the checks")
    scheme = beside(name, what).float().requires_grad_(False)
    data = inputs(scheme, pos=torch.zeros(2, LENGTH, dtype=torch.long))
    data.pos = scatter(scheme, seed=5).floor().long()
    q, k = scheme.rotate(data.q, data.k, data.pos, data.pos)
    modify = scheme.score_mod(data.pos, data.pos, q, k)
    got = flex_attention(q, k, data.v, score_mod=modify, scale=scheme.scale(data.q.shape[-1]))
    want = attend_reference(scheme, data.q, data.k, data.v, data.pos, data.pos).out_BHSK
    torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)


def test_a_window_on_a_grid_is_the_square_around_each_cell() -> None:
    """By the neighbours that a two-dimensional convolution reads, counted from a picture of each cell alone."""
    rows, columns, pos = 5, 7, positions.make_grid(1, 5, 7)
    bias = compute_bias(Window(1, left=1), pos, heads=1)
    alone = torch.eye(rows * columns).view(-1, 1, rows, columns)
    around = torch.nn.functional.conv2d(alone, torch.ones(1, 1, 3, 3), padding=1).flatten(1) > 0
    assert torch.equal(bias[0, 0] == 0, around)


def test_chunks_on_a_grid_are_the_windows_of_swin() -> None:
    rows, columns, size, pos = 6, 9, 3, positions.make_grid(1, 6, 9)
    number = torch.arange(rows * columns).view(1, rows, columns, 1)
    together = torch.zeros(rows * columns, rows * columns, dtype=torch.bool)
    for window in window_partition(number, size).flatten(1):
        together[window[:, None], window] = True
    assert torch.equal(compute_bias(Chunks(size=size), pos, heads=1)[0, 0] == 0, together)


@torch.no_grad()
def test_beside_mrope_a_window_over_places_is_that_of_qwen2_vl() -> None:
    """Text, an image of 3 x 4 patches, and text; Qwen2-VL's masks count places in the row."""
    pos = positions.make_segments(3, (1, 3, 4), 5)
    length, left = pos.shape[1], 3
    config = Qwen2VLTextConfig(
        vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, use_sliding_window=True, sliding_window=left + 1, max_window_layers=0,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = Qwen2VLTextModel(config).eval()
    ids = torch.zeros(1, length, dtype=torch.long)
    theirs = model(ids, position_ids=pos.permute(2, 0, 1), output_attentions=True).attentions[0][0] > 0
    placed = torch.cat([pos, positions.count_up(1, length)[..., None]], dim=-1)
    scheme = Composition(schemes=[MRoPE(8), Window(2, left=left, axis=3)])
    mask = compute_bias(scheme, placed, heads=2)
    past = torch.ones(length, length, dtype=torch.bool).tril()
    assert torch.equal((mask[0] == 0) & past, theirs)
    by_coordinates = compute_bias(Window(2, left=left), pos, heads=2)
    assert not torch.equal((by_coordinates[0, 0] == 0) & past, theirs[0]), "the coordinates of an image are no places"


def test_blocks_of_a_window_serve_one_coordinate_that_is_a_text_and_nothing_else() -> None:
    length = 300
    q, place = torch.randn(1, HEADS, length, 8), torch.arange(length)
    texts = {
        "text": torch.stack([torch.zeros_like(place), place], dim=-1),
        "grid": torch.stack([place // 20, place % 20], dim=-1),
        "diagonal": torch.stack([place, place], dim=-1),
    }

    def serving(scheme: Scheme, pos: Tensor) -> list[str]:
        request = make_request(scheme, q, q, q, pos[None], pos[None], causal=True)
        kernels = {"blocks": window_blocks, "distance": by_distance}
        return [name for name, kernel in kernels.items() if kernel.serves(request)]

    assert length > by_distance.SHORT
    assert serving(Window(HEADS, left=9, axis=1), texts["text"]) == ["blocks", "distance"]
    for scheme, name in ((Window(HEADS, left=9, axis=1), "grid"), *((Window(HEADS, left=9), name) for name in texts)):
        assert serving(scheme, texts[name]) == []
    for scheme in (Window(HEADS, left=9, axis=1), Window(HEADS, left=9)):
        for pos in texts.values():
            fast = attend(scheme, q, q, q, pos[None], pos[None], causal=True)
            slow = attend_reference(scheme, q, q, q, pos[None], pos[None], causal=True).out_BHSK
            torch.testing.assert_close(fast, slow, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("scheme", "axes", "message"),
    [
        (Window(2, axis=2), 2, r"window.axis is 2, counted from 0, and these positions have 2 coordinates; set it"),
        (Chunks(axis=1), 1, r"chunks.axis is 1, counted from 0, and these positions have 1 coordinates"),
        (Temperature(), 2, r"temperature reads one coordinate, and these positions have 2; set temperature.axis to"),
        (SSMax(2), 3, r"ssmax reads one coordinate, and these positions have 3; set ssmax.count to 'visible', or ss"),
        (Composition(schemes=[RoPE(8), Window(2, axis=1)]), 3, r"composition encodes 2 coordinates, and .* have 3"),
    ],
)
def test_positions_without_the_coordinate_are_refused_with_a_way_out(scheme: Scheme, axes: int, message: str) -> None:
    q, pos = torch.zeros(1, 2, 3, 8), positions.count_up(1, 3)
    pos = pos if axes == 1 else positions.repeat_on_axes(pos, axes)
    with pytest.raises(PositionError, match=message):
        attend(scheme, q, q, q, pos, pos)


@pytest.mark.parametrize("scheme", [Window(2), Chunks()])
def test_queries_and_keys_have_equally_many_coordinates(scheme: Scheme) -> None:
    pos = positions.count_up(1, 3)
    qpos, kpos = positions.repeat_on_axes(pos, 2), positions.repeat_on_axes(pos, 3)
    # Where annotations are checked (CHECK_SHAPES=1), they refuse it first.
    with pytest.raises(
        (PositionError, TypeCheckError), match=r"encodes 2 coordinates, and these positions have 3|kpos"
    ):
        compute_bias(scheme, qpos, kpos, heads=2)


def test_no_configuration_of_transformers_has_a_window_over_coordinates() -> None:
    assert Composition(schemes=[MRoPE(16), Window(2)]).to_hf_config() is None
    others = Window(2, axis=0), Chunks(axis=0), Temperature(axis=0)
    assert [scheme.to_hf_config() for scheme in others] == [None] * 3
