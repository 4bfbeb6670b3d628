"""The same weights in our model and in others' give the same logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from clockhands.model import TokenBatch, Transformer
from tests.model import peers
from tests.model.tiny import VOCABULARY, core, words

EXACT, SINGLE = 1e-10, 2e-6
"""Tolerances in float64, and where the peer computes its angles or slopes in float32."""


def shaken(module: nn.Module) -> Any:
    """Float64, evaluating, with every parameter away from zero and one."""
    module = module.double().eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.2)
    return module


def close(ours: torch.Tensor, theirs: torch.Tensor, real: torch.Tensor | None = None, tolerance: float = EXACT) -> None:
    difference = (ours - theirs).abs() if real is None else (ours - theirs).abs()[real.bool()]
    assert difference.max() < tolerance
    assert theirs.std() > 0.1, "the peer's logits say nothing"


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_torch_transformer(norm: str) -> None:
    theirs = nn.Transformer(32, 4, 2, 2, 48, 0.0, norm_first=norm == "pre", batch_first=True)
    theirs = shaken(theirs)
    config = core(norm=norm, attention_bias=True, final_norm=True)
    ours = Transformer(config).double().eval()
    peers.from_torch(ours, theirs)
    assert ours.encoder is not None and ours.decoder is not None
    source, target = words(2, 7), words(2, 5, seed=1)
    real = torch.tensor([[1, 1, 1, 1, 0, 0, 0], [1] * 7]).bool()
    encoding = [ours.encoder.schemes[0].encode(torch.arange(n)[None]) for n in (7, 5)]
    states = theirs(
        ours.encoder.input(source, encoding[0]),
        ours.decoder.input(target, encoding[1]),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64),
        src_key_padding_mask=~real,
        memory_key_padding_mask=~real,
    )
    close(ours.decode(TokenBatch(target), ours.encode(TokenBatch(source, real))), states)


def test_marian() -> None:
    theirs = shaken(
        transformers.MarianMTModel(
            transformers.MarianConfig(
                vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, scale_embedding=True,
                activation_function="swish", pad_token_id=0, eos_token_id=2, decoder_start_token_id=0,
                max_position_embeddings=32, share_encoder_decoder_embeddings=True,
            )
        )
    )  # fmt: skip
    # The table is a parameter, though it is not learnt: put it back where it was before it was shaken.
    for stack in (theirs.model.encoder, theirs.model.decoder):
        stack.embed_positions.weight.data.copy_(stack.embed_positions.create_weight())
    theirs.final_logits_bias.copy_(torch.randn(1, VOCABULARY))
    place = {"scheme": "sinusoidal", "layout": "half"}
    config = core(norm="post", attention_bias=True, activation="silu", output_bias=True, encoder=place, decoder=place)
    ours = Transformer(config).double().eval()
    peers.from_marian(ours, theirs)
    source, target = words(2, 7), words(2, 5, seed=1)
    real = torch.tensor([[1, 1, 1, 1, 0, 0, 0], [1] * 7])
    expected = theirs(input_ids=source, attention_mask=real, decoder_input_ids=target).logits
    close(ours.output(ours.decode(TokenBatch(target), ours.encode(TokenBatch(source, real.bool())))), expected)


@pytest.mark.parametrize("tied", [False, True], ids=["own output", "tied"])
def test_t5(tied: bool) -> None:
    """With tied matrices T5 scales the last states by 1/√d_model before the output."""
    theirs = shaken(
        transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0,
                relative_attention_num_buckets=8, relative_attention_max_distance=16, tie_word_embeddings=tied,
            )
        )
    )  # fmt: skip
    place = {"scheme": "t5", "num_buckets": 8, "max_distance": 16, "logit_scale": "none"}
    config = core(
        norm_kind="rms", norm_eps=1e-6, ffn_bias=False, token_scale="one", attention_scale=1.0,
        tying="three-way" if tied else "none", output_scale=32**-0.5 if tied else 1.0, encoder=place, decoder=place,
    )  # fmt: skip
    ours = Transformer(config).double().eval()
    peers.from_t5(ours, theirs)
    source, target = words(2, 20), words(2, 18, seed=1)
    real = torch.ones(2, 20, dtype=torch.long)
    real[0, 15:] = 0
    expected = theirs(input_ids=source, attention_mask=real, decoder_input_ids=target).logits
    # Our table of biases is read in float32, and the logits here are as large as 25.
    close(
        ours.output(ours.decode(TokenBatch(target), ours.encode(TokenBatch(source, real.bool())))),
        expected,
        tolerance=5e-5,
    )


@dataclass(frozen=True)
class Peer:
    """A language model of transformers, how its weights are copied, and what it is in our terms."""

    family: str
    config: dict[str, Any]
    copy: Callable[[Transformer, Any], None]
    ours: dict[str, Any]
    tolerance: float = SINGLE
    takes_positions: bool = True


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
# Llama, Gemma and others whose weights the package copies: tests/interchange/test_weights.py.
PEERS = [
    Peer(
        "GPT2LMHeadModel",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 48, "n_positions": 32},
        peers.from_gpt2,
        {"activation": "gelu-tanh", "attention_bias": True, "decoder": {"scheme": "learned", "max_length": 32}},
        EXACT,
    ),
    Peer(
        "GPTNeoXForCausalLM",
        {**SIZES, "rotary_pct": 0.5},
        peers.from_neox,
        {"parallel": True, "attention_bias": True, "activation": "gelu", "tying": "none"}
        | {"decoder": {"scheme": "rope", "fraction": 0.5}},
    ),
    Peer(
        "BloomForCausalLM",
        {"hidden_size": 32, "n_layer": 2, "n_head": 4},
        peers.from_bloom,
        {"d_ff": 128, "activation": "gelu-tanh", "attention_bias": True, "embedding_norm": True, "decoder": "alibi"},
        takes_positions=False,
    ),
    Peer(
        "MptForCausalLM",
        {"d_model": 32, "n_layers": 2, "n_heads": 4},
        peers.from_mpt,
        {"d_ff": 128, "activation": "gelu", "norm_bias": False, "ffn_bias": False, "decoder": "alibi"},
        takes_positions=False,
    ),
]


def made(peer: Peer) -> tuple[Transformer, Any]:
    family = getattr(transformers, peer.family)
    theirs = shaken(family(family.config_class(vocab_size=VOCABULARY, **peer.config)))
    ours = Transformer(core(kind="decoder", **{"token_scale": "one", **peer.ours})).double().eval()
    peer.copy(ours, theirs)
    return ours, theirs


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.family)
def test_language_models(peer: Peer) -> None:
    ours, theirs = made(peer)
    text = words(2, 9)
    close(ours.output(ours.decode(TokenBatch(text))), theirs(input_ids=text).logits, tolerance=peer.tolerance)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.family)
def test_language_models_with_padding_on_the_left(peer: Peer) -> None:
    """In float32: a padded BLOOM gives NaN in float64 (transformers 5.23)."""
    ours, theirs = made(peer)
    text = words(2, 9)
    real = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9])
    given = {"position_ids": (real.cumsum(-1) - 1).clamp(min=0)} if peer.takes_positions else {}
    expected = theirs.float()(input_ids=text, attention_mask=real, **given).logits
    close(ours.float().output(ours.decode(TokenBatch(text, real.bool()))), expected, real, tolerance=2e-4)


BERT = {
    "norm": "post", "token_scale": "one", "embedding_norm": True, "attention_bias": True, "activation": "gelu",
    "output_bias": True, "output_transform": True,
}  # fmt: skip
DEBERTA = {
    "relative_attention": True, "max_relative_positions": 24, "pos_att_type": ["c2p", "p2c"], "legacy": False,
    "position_biased_input": False, "type_vocab_size": 0,
}  # fmt: skip
MASKED = [
    Peer(
        "RoFormerForMaskedLM",
        {"max_position_embeddings": 32, "type_vocab_size": 2, "layer_norm_eps": 1e-12},
        peers.from_roformer,
        {"norm_eps": 1e-12, "tying": "none", "encoder": {"scheme": "rope", "layout": "interleaved"}},
    ),
    Peer(
        "DebertaV2ForMaskedLM",
        {**DEBERTA, "share_att_key": False, "layer_norm_eps": 1e-7},
        peers.from_deberta,
        {"norm_eps": 1e-7, "encoder": {"scheme": "deberta", "span": 24, "p2c": "code"}},
    ),
    # What the published checkpoints of DeBERTa-v2 and v3 have: shared projections, a normed table, buckets.
    Peer(
        "DebertaV2ForMaskedLM",
        {**DEBERTA, "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 8},
        peers.from_deberta,
        {"norm_eps": 1e-7, "encoder": {"scheme": "deberta", "span": 24, "buckets": 8, "p2c": "code"}},
    ),
]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("peer", MASKED, ids=["RoFormer", "DeBERTa-v2", "DeBERTa-v3"])
def test_masked_language_models_with_padding(peer: Peer, side: str) -> None:
    family = getattr(transformers, peer.family)
    theirs = family(family.config_class(vocab_size=VOCABULARY, **SIZES, **peer.config))
    theirs = shaken(theirs)
    if peer.family.startswith("RoFormer"):
        # The table of angles is a parameter, though it is not learnt.
        table = theirs.roformer.encoder.embed_positions
        table.weight.data.copy_(table.create_weight())
    ours = Transformer(core(kind="encoder", **BERT, **peer.ours)).double().eval()
    peer.copy(ours, theirs)
    text, real = words(2, 20), torch.ones(2, 20, dtype=torch.long)
    real[0, slice(0, 6) if side == "left" else slice(14, 20)] = 0
    expected = theirs(input_ids=text, attention_mask=real).logits
    close(ours.output(ours.encode(TokenBatch(text, real.bool())).states_BTD), expected, real, tolerance=peer.tolerance)
