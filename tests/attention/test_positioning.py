"""Every scheme, used as the how-to says, tells positions apart; and hooks that nobody calls are refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from clockhands import positions
from clockhands.attention import Cache, Positioning, attend
from clockhands.errors import UsageError
from clockhands.schemes import CATALOGUE, Alibi, NoPosition, RoPE, Scheme, Sinusoidal
from tests.schemes.laws import HEAD_DIM, HEADS, LENGTH, WIDTH, make, on_axes

WITHOUT = {
    "none": "it is no position",
    "sinks": "sinks read no position",
    "carope": "it places tokens by their contents and order, whatever the positions",
    "forgetting": "it places tokens by their contents and order, whatever the positions",
    "repo": "it places tokens by their contents, whatever the positions",
    "cope": "it counts tokens by their contents and order, whatever the positions",
    "stick-breaking": "it counts the keys between, by the order of the tokens",
}
"""Schemes that read no positions, and why; the positions of the others change what comes out."""


OPTIONS: dict[str, dict[str, Any]] = {
    "window": {"left": 2},
    "chunks": {"size": 4},
    "temperature": {"form": "log", "length": 2},
}
"""So short that they act within the texts here."""


class Stack(torch.nn.Module):
    """Two layers of attention, as somebody writes them who follows the how-to."""

    def __init__(self, scheme: Scheme, groups: int = HEADS) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.groups = groups
        self.position = Positioning(scheme, layers=2)
        self.project = torch.nn.ModuleList(torch.nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))

    def forward(self, x: Tensor, pos: Tensor, cache: Cache | None = None, causal: bool = True) -> Tensor:
        x = self.position.embed(x, pos)
        for layer, project in enumerate(self.project):
            q, k, v = project(x).unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
            k, v = k[:, : self.groups], v[:, : self.groups]
            out = self.position.attend(layer, q, k, v, pos, x=x, causal=causal, cache=cache)
            x = x + out.transpose(1, 2).flatten(2)
        return x


@pytest.mark.parametrize("name", CATALOGUE)
@torch.no_grad()
def test_permuted_positions_change_what_every_scheme_makes_of_a_text(name: str) -> None:
    scheme = make(name, OPTIONS.get(name, {}))
    stack = Stack(scheme)
    pos = on_axes(scheme, positions.count_up(2, LENGTH))
    x, order = torch.randn(2, LENGTH, WIDTH), torch.tensor([0, 2, 1, *range(3, LENGTH - 2), LENGTH - 1, LENGTH - 2])
    before, after = stack(x, pos), stack(x, pos[:, order])
    assert bool((before - after).abs().max() > 1e-4) == (name not in WITHOUT)
    if name in WITHOUT and name not in ("none", "sinks"):
        # Then tokens in another order are told apart from the same tokens, and it is not the mask that tells.
        bare = Stack(NoPosition())
        bare.project.load_state_dict(stack.project.state_dict())
        assert (bare(x, pos) - before).abs().max() > 1e-4


@pytest.mark.parametrize("name", CATALOGUE)
@torch.no_grad()
def test_a_cache_gives_what_the_whole_text_gives(name: str) -> None:
    scheme = make(name, {})
    if scheme.declares.depends_on_length:
        pytest.skip("what a token gets changes with the length of the text")
    x, pos = torch.randn(2, LENGTH, WIDTH), on_axes(scheme, positions.count_up(2, LENGTH))
    for groups in (HEADS, 2):  # grouped heads of keys too
        stack, cache = Stack(scheme, groups), Cache()
        steps = [stack(x[:, a:b], pos[:, a:b], cache) for a, b in pairwise((0, 4, 5, LENGTH))]
        torch.testing.assert_close(torch.cat(steps, 1), stack(x, pos), atol=2e-5, rtol=1e-4)
        assert cache.length == LENGTH


@pytest.mark.parametrize("name", CATALOGUE)
@torch.no_grad()
def test_programs_that_follow_what_is_computed_meet_no_number(name: str) -> None:
    scheme = make(name, OPTIONS.get(name, {}))
    stack, x = Stack(scheme), torch.randn(2, LENGTH, WIDTH)
    pos = on_axes(scheme, positions.count_up(2, LENGTH))
    wanted = stack(x, pos)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert stack(mode.from_tensor(x), mode.from_tensor(pos)).shape == x.shape
    torch.testing.assert_close(make_fx(stack)(x, pos)(x, pos), wanted, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(stack(x, pos), wanted, atol=0, rtol=0)  # nothing fake is kept
    assert stack.to("meta")(x.to("meta"), pos.to("meta")).shape == x.shape


@torch.no_grad()
def test_a_cache_is_reordered_cropped_and_counted_on_in_place() -> None:
    for name in ("rope", "alibi", "forgetting", "composition"):
        stack, x, pos = Stack(make(name, {})), torch.randn(3, LENGTH, WIDTH), torch.arange(LENGTH)
        cache, texts = Cache(), torch.tensor([2, 0])
        stack(x[:, :6], pos[:6], cache)
        cache.crop(4)
        assert cache.length == 4
        cache.reorder(texts)
        at, steps = pos[4:5].clone(), []
        for step in range(4, LENGTH):
            steps.append(stack(x[texts, step : step + 1], at, cache))
            at += 1
        torch.testing.assert_close(torch.cat(steps, 1), stack(x, pos)[texts, 4:], atol=2e-5, rtol=1e-4)
        with pytest.raises(UsageError, match=f"length is -1, and the cache holds {LENGTH} tokens"):
            cache.crop(-1)


@pytest.mark.parametrize("places", [[0, 1, 1, 2, 2, 2, 3, 4, 4], [0.0, 0.5, 0.5, 1.5, 1.5, 1.5, 2.0, 2.5, 3.0]])
@torch.no_grad()
def test_bytes_of_a_word_and_notes_of_a_chord_may_share_a_position_step_by_step(places: list[float]) -> None:
    stack, x, pos = Stack(RoPE(HEAD_DIM)), torch.randn(2, LENGTH, WIDTH), torch.tensor(places)
    rebuilt, cache = Stack(RoPE(HEAD_DIM)), Cache()  # of the same weights, which may go on with the cache
    steps = [(rebuilt, stack)[at % 2](x[:, at : at + 1], pos[at : at + 1], cache) for at in range(LENGTH)]
    torch.testing.assert_close(torch.cat(steps, 1), stack(x, pos), atol=2e-5, rtol=1e-4)
    with pytest.raises(
        UsageError, match=r"filled under RoPE\(8.*\), and this layer has Alibi\(6\); begin .* new Cache"
    ):
        Stack(Alibi(HEADS))(x[:, :1], pos[-1:] + 1, cache)


def test_layers_that_share_one_index_and_steps_that_are_never_counted_are_refused() -> None:
    q, stack = torch.randn(1, HEADS, 1, HEAD_DIM), Positioning(RoPE(HEAD_DIM))
    for place in (torch.zeros(1, 1, dtype=torch.long), torch.zeros(1)):
        cache = Cache()
        stack.attend(0, q, q, q, place, causal=True, cache=cache)
        with pytest.raises(UsageError, match="up to position 0, and the new ones begin at 0; give each layer its own"):
            stack.attend(0, q, q, q, place, causal=True, cache=cache)


def test_later_notes_of_a_chord_are_not_before_it_and_a_mask_says_who_is_before_whom() -> None:
    q, cache, stack = torch.randn(1, HEADS, 2, HEAD_DIM), Cache(), Positioning(RoPE(HEAD_DIM))
    times, mask = torch.tensor([0.0, 1.5]), torch.ones(2, 4, dtype=torch.bool)
    stack.attend(0, q, q, q, times, causal=True, cache=cache)
    stack.attend(0, q, q, q, times + 1.5, causal=True, cache=cache)
    with pytest.raises(UsageError, match="holds tokens up to position 3, and the new ones begin at 1"):
        stack.attend(0, q, q, q, times + 1, causal=True, cache=cache)
    assert cache.length == 4  # what was refused is not kept
    packed = Cache()
    for _ in range(2):
        stack.attend(0, q, q, q, torch.arange(2), None if not packed.length else mask, cache=packed, causal=True)


@pytest.mark.parametrize("name", [name for name in CATALOGUE if {"encode", "locate"} & CATALOGUE[name].hooks()])
def test_a_hook_that_nobody_calls_is_refused(name: str) -> None:
    scheme = make(name, {})
    q = torch.randn(2, HEADS, LENGTH, HEAD_DIM)
    pos = on_axes(scheme, positions.count_up(2, LENGTH))
    hooks, scheme.encoded = scheme.active_hooks(), False
    if not hooks & {"encode", "locate"}:
        attend(scheme, q, q, q, pos, pos, causal=True)
        return
    sentence = "nobody has asked for them: write x = x [+]" if "encode" in hooks else "tokens place themselves"
    with pytest.raises(UsageError, match=sentence):
        attend(scheme, q, q, q, pos, pos, causal=True)
    if "encode" in hooks:
        scheme.encode(pos)
        attend(scheme, q, q, q, pos, pos, causal=True)
    else:
        with pytest.raises(UsageError, match="pass it as x="):
            Positioning(scheme).attend(0, q, q, q, pos)
        places = scheme.locate(torch.randn(2, LENGTH, WIDTH), pos, None)
        for pair in ((places, pos), (pos, places)):
            with pytest.raises(UsageError, match="tokens place themselves"):
                attend(scheme, q, q, q, *pair, causal=True)


def test_positions_of_one_axis_are_those_of_all_texts() -> None:
    q, pos = torch.randn(2, HEADS, LENGTH, HEAD_DIM), torch.arange(LENGTH)
    both = pos.expand(2, -1)
    for name in ("rope", "alibi", "t5", "window", "fire", "shaw", "deberta", "tupe", "stick-breaking", "xpos", "pope"):
        scheme = make(name, {})
        one, two = (attend(scheme, q, q, q, at, at, causal=True) for at in (pos, both))
        torch.testing.assert_close(one, two)
    x = torch.zeros(2, LENGTH, WIDTH)
    torch.testing.assert_close(Positioning(Sinusoidal(WIDTH)).embed(x, pos), Sinusoidal(WIDTH).encode(both))
    for name in ("rope", "xpos", "temperature", "fope"):  # the hook by hand
        one, two = (make(name, {}).rotate(q, q, at, at)[0] for at in (pos, both))
        torch.testing.assert_close(one, two)
    assert torch.equal(positions.count_packed(pos // 4), positions.count_packed(both // 4)[:1])
    assert torch.equal(positions.make_document_mask(pos // 4), positions.make_document_mask(both // 4)[:1])


@pytest.mark.parametrize("name", ["path", "selective-rope", "carope", "repo", "forgetting"])
@torch.no_grad()
def test_one_row_of_positions_serves_all_texts_and_a_cache_too(name: str) -> None:
    stack, pos = Stack(make(name, {})), torch.arange(LENGTH)
    x, cache = torch.randn(2, LENGTH, WIDTH), Cache()
    whole = stack(x, pos.expand(2, -1))
    torch.testing.assert_close(stack(x, pos), whole)
    steps = [stack(x[:, :4], pos[:4], cache), stack(x[:, 4:], pos[4:].expand(2, -1), cache)]
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=2e-5, rtol=1e-4)


def test_layers_have_the_schemes_that_they_are_given() -> None:
    stack = Positioning([RoPE(HEAD_DIM), NoPosition()])
    assert isinstance(stack.get_scheme(1), NoPosition)
    learned = Positioning(make("shaw", {}), layers=2)
    assert learned.get_scheme(0) is not learned.get_scheme(1)
    assert not torch.equal(learned.get_scheme(0).keys_RK, learned.get_scheme(1).keys_RK)  # type: ignore[arg-type]
    shared = Positioning(RoPE(HEAD_DIM), layers=2)
    assert shared.get_scheme(0) is shared.get_scheme(1)
