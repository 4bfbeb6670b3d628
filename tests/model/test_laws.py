"""What must hold for a model with any scheme of the catalogue."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache, StaticCache
from transformers.cache_utils import EncoderDecoderCache

from clockhands.attention import record
from clockhands.errors import ConfigError
from clockhands.model import Transformer
from clockhands.model.kv_cache import append_positions, split_positions
from clockhands.model.size import count_parameters
from clockhands.scheme_pages.variants import complete_options
from clockhands.schemes import CATALOGUE
from tests.model.tiny import core, model, words

# Thousands of small cells over code that the oracles' tests cover: tracing them would double what they take.
pytestmark = pytest.mark.no_cover

LENGTH = 9
TOLERANCE = 2e-4

# Options under which a scheme can serve a text of this length.
OPTIONS: dict[str, dict[str, Any]] = {"swin": {"rows": 16}}


def scheme(name: str) -> dict[str, Any]:
    return {"scheme": name, **complete_options(name, OPTIONS.get(name), LENGTH)}


def serves(kind: str, name: str) -> bool:
    """Whether a scheme can stand in a model of this kind at all: those for causal attention cannot in an encoder."""
    side = "encoder" if kind == "encoder" else "decoder"
    try:
        core(kind=kind, **{side: scheme(name)})
    except ConfigError:
        return False
    return True


DECODERS = [name for name in CATALOGUE if serves("decoder", name)]
ENCODERS = [name for name in CATALOGUE if serves("encoder", name)]


SMALL = [{"scheme": "window", "left": 2}, {"scheme": "rope", "base": 50.0}]
POSITIONS: dict[str, dict[str, Any]] = {
    "pattern": {"layers": [*SMALL]},
    "cut pattern": {"layers": [*SMALL, "none", "..."]},
    "list": {"layers": ["rope", {"scheme": "chunks", "size": 4}, "alibi", {"scheme": "xpos", "base": 30.0}]},
    "kinds": {
        "layers": ["local", "local", "local", "global"],
        "kinds": {
            "local": {"schemes": ["rope", {"scheme": "window", "left": 3}, "sinks"]},
            "global": {"schemes": [{"scheme": "temperature", "form": "log", "length": 4}, "sinks"]},
        },
    },
    "table and windows": {"scheme": "learned", "max_length": 32, "layers": [*SMALL]},
    "shared bias": {"schemes": [{"scheme": "t5", "num_buckets": 8}, "sinks"], "layers": [SMALL[0], "none"]},
    "tokens place themselves": {"layers": [{"schemes": ["forgetting", "rope", SMALL[0]]}, "repo"]},
    "repo above rope": {"layers": ["rope", "rope", "repo", "repo"]},
    "side by side": {"schemes": [{"scheme": "learned", "max_length": 32}, "sinks", {"scheme": "shaw", "clip": 2}]},
}
"""Schedules: schemes by layer, and several side by side."""
ALL_DECODERS = [*DECODERS, *POSITIONS]


def make_decoder(name: str) -> Any:
    """A decoder with a scheme of the catalogue, or of four layers with one of ``POSITIONS`` and grouped heads."""
    if name in POSITIONS:
        return model(decoder=POSITIONS[name], decoder_layers=4, num_kv_heads=2)
    return model(decoder=scheme(name))


def depends_on_length(made: Any, side: str = "decoder") -> bool:
    return getattr(made.model, side).schemes[0].declares.depends_on_length


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def padded(side: str) -> tuple[torch.Tensor, torch.Tensor, slice]:
    """Two rows, the first with three words of padding; and where its real words are."""
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    where = slice(3, None) if side == "left" else slice(None, -3)
    mask[0] = 0
    mask[0, where] = 1
    return words(2, LENGTH).masked_fill(mask == 0, 0), mask, where


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("name", ALL_DECODERS)
@torch.no_grad()
def test_cached_equals_uncached(name: str, static: bool) -> None:
    made = make_decoder(name)
    if depends_on_length(made):
        pytest.skip(f"{name} declares that what a token gets changes with the length")
    text, mask, _ = padded("left")
    whole = made(input_ids=text, attention_mask=mask).logits
    cache = StaticCache(config=made.config, max_cache_len=LENGTH + 3) if static else DynamicCache()
    steps = [(0, 4), (4, 5), (5, 7), (7, 8), (8, 9)]
    got = [made(input_ids=text[:, a:b], attention_mask=mask[:, :b], past_key_values=cache).logits for a, b in steps]
    close(torch.cat(got, dim=1)[mask.bool()], whole[mask.bool()])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ALL_DECODERS)
@torch.no_grad()
def test_padding_changes_nothing(name: str, side: str) -> None:
    made = make_decoder(name)
    text, mask, where = padded(side)
    together = made(input_ids=text, attention_mask=mask).logits
    assert together.isfinite().all()
    close(together[0, where], made(input_ids=text[:1, where]).logits[0])
    close(together[1], made(input_ids=text[1:]).logits[0])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_padding_changes_nothing_for_an_encoder(name: str, side: str) -> None:
    made = model("encoder", encoder=scheme(name))
    text, mask, where = padded(side)
    together = made(input_ids=text, attention_mask=mask).logits
    close(together[0, where], made(input_ids=text[:1, where]).logits[0])


@pytest.mark.parametrize("name", ALL_DECODERS)
@torch.no_grad()
def test_packed_documents_are_read_apart(name: str) -> None:
    made = make_decoder(name)
    text = words(1, LENGTH)
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 2, 2]])
    packed = made(input_ids=text, document_ids=documents).logits[0]
    apart = [made(input_ids=text[:, a:b]).logits[0] for a, b in [(0, 4), (4, 7), (7, 9)]]
    close(packed, torch.cat(apart))


@pytest.mark.parametrize("name", ALL_DECODERS)
@torch.no_grad()
def test_recorded_reference_path_gives_the_same(name: str) -> None:
    made = make_decoder(name)
    text, mask, _ = padded("left")
    seen: list[Any] = []
    fused = made(input_ids=text, attention_mask=mask).logits
    with record(seen.append):
        reference = made(input_ids=text, attention_mask=mask).logits
    close(fused[mask.bool()], reference[mask.bool()])
    assert len(seen) == made.config.num_hidden_layers


@pytest.mark.parametrize("name", ALL_DECODERS)
def test_gradients_reach_every_parameter(name: str) -> None:
    made = make_decoder(name).train()
    text, mask, _ = padded("left")
    made(input_ids=text, attention_mask=mask, labels=text.masked_fill(mask == 0, -100)).loss.backward()
    learned = {key: value for key, value in made.named_parameters() if value.requires_grad}
    missing = [key for key, value in learned.items() if value.grad is None or not value.grad.isfinite().all()]
    assert not missing
    still = [key for key, value in learned.items() if not value.grad.any()]
    assert not still
    assert count_parameters(made.config.transformer_config) == sum(p.numel() for p in made.parameters())


@pytest.mark.parametrize("name", DECODERS)
def test_trap_39_only_the_scheme_changes_with_the_scheme(name: str) -> None:
    """No second encoding stays on, no other weight comes or goes, and what is drawn is drawn alike."""
    one, other = (Transformer(core(kind="decoder", decoder=chosen)) for chosen in ("none", scheme(name)))
    rest = {key: value.shape for key, value in other.state_dict().items() if ".schemes." not in key}
    assert rest == {key: value.shape for key, value in one.state_dict().items()}
    assert [name] == [key for key, kind in CATALOGUE.items() if isinstance(other.decoder.schemes[0], kind)]


def test_trap_39_rope_turns_every_channel_unless_told() -> None:
    turned = CATALOGUE["rope"](8)
    q, pos = torch.ones(1, 1, 2, 8), torch.tensor([[0, 1]])
    assert bool((turned.rotate(q, q, pos, pos)[0][0, 0, 1] != 1).all())


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_low_precision_stays_near(name: str) -> None:
    """Logits of a bfloat16 model stay near those of the same (rounded) weights in float32, far along the text."""
    made = model(decoder=scheme(name)).bfloat16()
    text = words(1, LENGTH)
    low = made(input_ids=text).logits
    high = made.float()(input_ids=text).logits
    assert low.dtype == torch.bfloat16
    assert (low.float() - high).abs().max() < 0.1 * high.abs().max()


@torch.no_grad()
def test_order_is_invisible_to_an_encoder_without_position() -> None:
    made = model("encoder", encoder="none")
    text = words(1, LENGTH)
    order = torch.randperm(LENGTH)
    close(made(input_ids=text[:, order]).logits, made(input_ids=text).logits[:, order])
    told = model("encoder", encoder="sinusoidal")
    assert not torch.allclose(told(input_ids=text[:, order]).logits, told(input_ids=text).logits[:, order], atol=0.1)


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("cross", [name for name in ("none", "rope", "alibi") if name in CATALOGUE])
@torch.no_grad()
def test_pair_cached_equals_uncached(cross: str, static: bool) -> None:
    made = model("encoder-decoder", encoder="rope", decoder="alibi", cross=cross)
    source, mask, _ = padded("right")
    target = words(2, 6, seed=1)
    whole = made(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    parts = [
        StaticCache(config=made.config, max_cache_len=length) if static else DynamicCache() for length in (8, LENGTH)
    ]
    cache = EncoderDecoderCache(*parts)
    got = []
    for a, b in [(0, 3), (3, 4), (4, 6)]:
        step = made(input_ids=source, attention_mask=mask, decoder_input_ids=target[:, a:b], past_key_values=cache)
        got.append(step.logits)
    close(torch.cat(got, dim=1), whole)


@torch.no_grad()
def test_packed_pairs_are_translated_apart() -> None:
    made = model("encoder-decoder", encoder="sinusoidal", decoder="rope")
    source, target = words(1, 7), words(1, 5, seed=1)
    packed = made(
        input_ids=source,
        document_ids=torch.tensor([[0, 0, 0, 1, 1, 1, 1]]),
        decoder_input_ids=target,
        decoder_document_ids=torch.tensor([[0, 0, 1, 1, 1]]),
    ).logits
    first = made(input_ids=source[:, :3], decoder_input_ids=target[:, :2]).logits
    second = made(input_ids=source[:, 3:], decoder_input_ids=target[:, 2:]).logits
    close(packed, torch.cat([first, second], dim=1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_positions_ride_with_keys_bit_for_bit(dtype: torch.dtype) -> None:
    keys = torch.randn(2, 3, 5, 8).to(dtype)
    for pos in (
        torch.randint(0, 2**24, (2, 5)),
        torch.randn(2, 5) * 1e6,
        torch.randn(2, 5, dtype=torch.float64),
        torch.randn(2, 5, 2),
        torch.randn(2, 3, 5, 2),
    ):
        again, there = split_positions(
            append_positions(keys, pos), 8, pos[..., :1, :] if pos.dim() == 4 else pos[:, :1]
        )
        assert torch.equal(again, keys)
        assert torch.equal(there, pos)
