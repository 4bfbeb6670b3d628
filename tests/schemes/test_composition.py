"""Schemes side by side: what goes with everything, what cannot stand together and why, and who owns what."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from clockhands import positions
from clockhands.attention import attend, by_distance, dispatch, fused_kernel, reference, window_blocks
from clockhands.errors import ConfigError, PositionError
from clockhands.schemes import CATALOGUE, Alibi, Composition, CoPE, RoPE, Sinks, Sizes, T5Bias, Window, build
from clockhands.schemes.distance import DistanceBiasSum
from clockhands.schemes.position_presets import POSITION_PRESETS
from tests.schemes.laws import HEAD_DIM, HEADS, LENGTH, WIDTH, encoded, inputs, make, place, run

SIZES = Sizes(WIDTH, WIDTH, HEADS, HEAD_DIM, 2)
ON_A_LINE = [name for name in CATALOGUE if name != "composition" and make(name, {}).declares.axes in (None, 1)]


def beside(name: str, *others: Any) -> Composition:
    made = make("composition", {"schemes": (name, *others)})
    assert isinstance(made, Composition)
    return made


@pytest.mark.parametrize("name", ON_A_LINE)
def test_a_window_beside_any_scheme_is_a_mask(name: str) -> None:
    both = beside(name, {"scheme": "window", "left": 2})
    data, alone = inputs(both), both.parts[0]
    distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    visible = ((distance <= 2) & (distance >= -2))[None, None].expand(2, -1, -1, -1)
    want = run(alone, data, True, visible)
    torch.testing.assert_close(run(both, data, True), want, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(encoded(both, data.pos), encoded(alone, data.pos))


@pytest.mark.parametrize("name", ON_A_LINE)
def test_sinks_and_a_temperature_go_with_any_scheme_that_leaves_the_softmax(name: str) -> None:
    if "weigh" in make(name, {}).active_hooks():
        with pytest.raises(ConfigError, match=r"both take the place of the softmax"):
            beside(name, {"scheme": "sinks", "start": 1.0})
        return
    if name == "temperature":
        return
    tau = {"scheme": "temperature", "form": "constant", "factor": 4.0, "coefficient": 0.5}
    both = beside(name, "sinks", tau)
    plain = Composition(schemes=[both.parts[0], both.parts[2]])
    data = inputs(both)
    got, want = run(both, data, True), run(plain, data, True)
    less = want.norm(dim=-1) - got.norm(dim=-1)
    assert less.min() > -1e-5 and less.max() > 0, "a sink takes a share of every row"
    sink = both.parts[1]
    with torch.no_grad():
        sink.sink_H.fill_(-60.0)
    torch.testing.assert_close(run(both, data, True), want, atol=1e-5, rtol=1e-4)
    assert (want - run(plain.parts[0], data, True)).abs().max() > 1e-3, "a temperature changes what is attended to"


@pytest.mark.parametrize(
    ("schemes", "message"),
    [
        (["rope", "xpos"], r"RoPE and XPos both rotate queries and keys, and the second would rotate what"),
        (["stick-breaking", "sinks"], r"StickBreaking and Sinks both take the place of the softmax"),
        (["forgetting", "path"], r"Forgetting and PaTH both place tokens, and a token stands in one place"),
        (["shaw", "rope"], r"Shaw compares queries and keys with vectors of its own, and RoPE would have rotated them"),
        (["alibi-axes", "alibi"], r"AlibiAxes and Alibi read positions of 2 and 1 coordinates$"),
        (["axial", "temperature"], r"of 2 and 1 coordinates; set temperature.axis to the coordinate that it reads, co"),
        (["ssmax", "mrope"], r"of 1 and 3 coordinates; set ssmax.count to 'visible', or ssmax.axis to the coordinate"),
        (["swin", {"scheme": "window", "axis": 3}], r"axis of Window is 3, .* beside SwinTable, .* 2, it is at most"),
        (["swin", {"scheme": "chunks", "axis": -1}], r"chunks.axis is -1, but must be at least 0"),
        ([{"scheme": "ssmax", "axis": 1, "count": "visible"}], r"ssmax.axis is 1, but count 'visible' reads no posi"),
        ([{"scheme": "temperature", "axis": 1, "form": "constant", "factor": 2.0}],
         r"temperature.axis is 1, but form 'constant' reads no position; leave axis out"),
        (["tupe", "deberta"], r"TUPE and DeBERTa each scale q·k by a factor of their own"),
        ([], r"a composition of no scheme does nothing"),
        (["rope", "windov"], r"schemes\[1\]: unknown scheme 'windov'; did you mean 'window'\?"),
        ([{"scheme": "rope", "bsae": 2.0}], r"schemes\[0\]: unknown option of rope 'bsae'; did you mean 'base'\?"),
        (["rope", {"scheme": "window", "left": "far"}], r"schemes\[1\]: window.left is 'far', but must be a whole"),
        ([{"base": 2.0}], r"schemes\[0\]: {'base': 2.0} names no scheme; write its name"),
        (["composition"], r"schemes\[0\]: a composition holds no other one; name its parts here"),
    ],
)  # fmt: skip
def test_what_cannot_stand_side_by_side_is_refused_with_its_reason(schemes: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(CATALOGUE, "composition", SIZES, {"schemes": schemes})


def test_all_faults_of_all_parts_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as told:
        build(CATALOGUE, "composition", SIZES, {"schemes": ["ropee", {"scheme": "window", "lefft": 2}]})
    assert len(told.value.faults) == 2


def test_names_are_for_build_and_the_class_takes_schemes() -> None:
    with pytest.raises(ConfigError, match=r"was given 'rope', 'window', but takes schemes that are built, as in"):
        Composition()


def test_it_promises_what_all_parts_promise() -> None:
    table = build(CATALOGUE, "composition", SIZES, {"schemes": [{"scheme": "learned", "max_length": 7}, "t5"]})
    assert table.declares.max_length == 7 and table.declares.beyond == "raise"
    assert not table.declares.translation_invariant
    with pytest.raises(PositionError, match=r"position 7 is outside the 7 positions"):
        table.encode(torch.tensor([[7]]))
    assert build(CATALOGUE, "composition", SIZES, {"schemes": ["rope", "window"]}).declares.translation_invariant
    assert build(CATALOGUE, "composition", SIZES, {"schemes": ["xpos", "window"]}).declares.cache == "raw"


def kernel_of(scheme: Any, length: int = 300) -> Any:
    """The kernel that ``attend`` takes for a long text."""
    chosen: list[Any] = []
    q, pos = torch.randn(1, 2, length, 8), positions.count_up(1, length)

    def watch(kernel: Any) -> Any:
        return SimpleNamespace(serves=kernel.serves, compute=lambda r: chosen.append(kernel) or kernel.compute(r))

    with pytest.MonkeyPatch.context() as patch:
        for name in ("KERNELS", "PLAIN_KERNELS"):
            patch.setattr(dispatch, name, tuple(map(watch, getattr(dispatch, name))))
        attend(scheme, q, q, q, pos, pos, causal=True)
    return chosen[0]


def test_the_kernel_of_a_part_serves_beside_a_rotation() -> None:
    assert kernel_of(Composition(schemes=[RoPE(8), Window(2, left=9)])) is kernel_of(Window(2, left=9)) is window_blocks
    assert kernel_of(Composition(schemes=[RoPE(8), Alibi(2), Window(2, left=9)])) is by_distance
    assert kernel_of(build(CATALOGUE, "composition", SIZES, {"schemes": ["rope", "temperature"]})) is fused_kernel


def test_kernels_serve_beside_sinks() -> None:
    rope, window, sinks = RoPE(8), Window(2, left=9), Sinks(2)
    assert kernel_of(sinks) is kernel_of(Composition(schemes=[rope, sinks])) is fused_kernel
    assert kernel_of(Composition(schemes=[rope, window, sinks])) is window_blocks
    assert kernel_of(Composition(schemes=[sinks, Alibi(2), window])) is by_distance
    assert kernel_of(Composition(schemes=[CoPE(8), sinks])) is reference, "CoPE reads whole rows"


@pytest.mark.parametrize("name", ["gpt-oss", "hybrid-2026"])
def test_no_layer_of_a_preset_with_sinks_is_left_to_the_reference(name: str) -> None:
    layers = POSITION_PRESETS[name]["kinds"].items()
    made = {layer: build(CATALOGUE, "composition", Sizes(16, 16, 2, 8, 1, True), kind) for layer, kind in layers}
    kernels = {layer: kernel_of(scheme) for layer, scheme in made.items()}
    assert kernels == {"local": window_blocks, "global": fused_kernel}


def test_the_sum_of_two_curves_is_a_curve() -> None:
    alibi, window = Alibi(2), Window(2, left=3)
    both = Composition(schemes=[alibi, window]).after_rotation()
    assert isinstance(both, DistanceBiasSum) and not both.queries_share_bias_row
    distance = torch.arange(-2, 6)
    assert torch.equal(both.compute_curve(distance), alibi.compute_curve(distance) + window.compute_curve(distance))


def test_layers_share_what_they_borrow() -> None:
    """A table that all layers share is saved once, moves once and collects one gradient, also after a copy."""
    first, second = (Composition(schemes=[T5Bias(2, 8), Sinks(2)]) for _ in range(2))
    second.borrow({0: first.parts[0]})
    assert second.parts[0] is first.parts[0] and second.parts[1] is not first.parts[1]
    assert set(second.state_dict()) == {"own.1.sink_H"}
    rest, sink_H = second.split_sinks()
    assert rest is first.parts[0] and sink_H is second.parts[1].sink_H
    assert len(list(second.parameters())) == 1, "what is made for kernels registers no parameter"
    one, two = copy.deepcopy(torch.nn.ModuleList([first, second]))
    assert one.parts[0] is two.parts[0] is not first.parts[0]
    both = torch.nn.ModuleList([first, second]).double()
    assert {parameter.dtype for parameter in both[1].parts[0].parameters()} == {torch.float64}
    assert len(list(both.parameters())) == 3


def test_a_scheme_that_places_tokens_leaves_their_positions_to_the_others() -> None:
    both = beside("forgetting", "rope")
    data = inputs(both)
    where = place(both, data)
    assert where.shape == (2, HEADS, LENGTH, 3), "the two parts of forgetting's sum, and the position"
    assert set(both.state_dict()) == {"own.0.gate_HD", "own.0.start_H"}, "a part is saved once"
    torch.testing.assert_close(where[..., 2], data.pos[:, None].float().expand(-1, HEADS, -1))
