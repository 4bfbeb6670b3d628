"""The decoder in lean mode against a forward pass: the same states, whatever the scheme and the architecture."""

from __future__ import annotations

import pytest
import torch

from clockhands.attention import RecordedAttention, record
from clockhands.errors import PositionError, UsageError
from clockhands.generation.engines.hypothesis_decoder import SharedCacheDecoder, repeat_rows
from clockhands.model import TokenBatch, Transformer, TransformerConfig
from clockhands.model.growing_cache import GrowingCache, SourceCache
from clockhands.model.kv_cache import needs_stored_positions
from clockhands.model.lean import LeanDecoder, copy_for_decoding
from clockhands.schemes import CATALOGUE
from tests.generation.engines.test_clockhands import LONGEST, OPTIONS, side_of_reading, sources, writer

LEAN = {"none", "sinusoidal", "rope", "learned"}
NOT_LEAN = {"alibi", "t5", "shaw", "cope", "transformer-xl"}


def both(core: Transformer, words_BS: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits after every token, read one at a time with a cache: in lean mode and by ``Transformer.decode``."""
    ids_BT, mask_BT = sources(len(words_BS))
    source = core.encode(TokenBatch(ids_BT, mask_BT))
    decoder, layers = LeanDecoder(core), core.config.decoder_layers
    caches, own, cross = decoder.start(source), GrowingCache(layers), SourceCache(layers)
    stepped, through = [], []
    for token_B1 in words_BS.split(1, dim=1):
        stepped.append(decoder.step(token_B1, caches))
        through.append(core.decode(TokenBatch(token_B1), source, own, cross))
    return core.output(torch.cat(stepped, dim=1)), core.output(torch.cat(through, dim=1))


@torch.no_grad()
def agree(core: Transformer) -> None:
    words_BS = torch.randint(3, core.config.vocab_size, (3, LONGEST), generator=torch.Generator().manual_seed(2))
    stepped_BSV, through_BSV = both(core.double(), words_BS)
    torch.testing.assert_close(stepped_BSV, through_BSV, rtol=0, atol=1e-10)
    assert through_BSV.std() > 0.1


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_scheme(name: str) -> None:
    scheme = OPTIONS.get(name, name)
    agree(writer(scheme, encoder=side_of_reading(name) if scheme == name else scheme).model)


@pytest.mark.parametrize("name", sorted(LEAN | NOT_LEAN))
def test_which_schemes_are_done_after_rotation(name: str) -> None:
    scheme = writer(name, encoder="none").model.decoder.schemes[0]
    assert needs_stored_positions(scheme) is (name in NOT_LEAN)


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "post"},
        {"norm": "pre", "final_norm": False},
        {"norm_kind": "rms", "gated": True, "activation": "silu"},
        {"residual": False, "norm": "pre"},
        {"residual": False, "norm": "post"},
        {"num_kv_heads": 2, "attention_bias": True, "ffn_bias": False, "norm_bias": False},
        {"attention_scale": 1.0, "token_scale": "learned", "embedding_norm": True},
        {"decoder": {"scheme": "sinusoidal", "every_layer": True}},
        {"decoder": {"scheme": "sinusoidal", "combine": "project", "width": 8}},
        {"decoder": {"scheme": "sinusoidal", "combine": "concatenate", "width": 8}},
        {"decoder": {"scheme": "rope", "skip_every": 2}},
        {"decoder": {"scheme": "rope", "transform": "scaled", "transform_options": {"factor": 2.0}}},
        {"cross": "rope"},
        {"decoder": {"scheme": "rope", "values": True}, "num_kv_heads": 2},
        {"cross": {"scheme": "rope", "values": True}},
        {"cross": "alibi"},
        {"dropout": 0.5, "dropout_places": ("embedding", "residual", "attention", "activation")},
    ],
)
def test_every_option_of_the_decoder(changes: dict[str, object]) -> None:
    agree(writer(**changes).model)


@torch.no_grad()
def test_who_listens_hears_a_step() -> None:
    core = writer().model
    ids_BT, mask_BT = sources()
    texts, heard = (
        SharedCacheDecoder(LeanDecoder(core), core.encode(TokenBatch(ids_BT, mask_BT)), 1),
        list[RecordedAttention](),
    )
    word_B1 = torch.full((len(ids_BT), 1), 3)
    with record(heard.append):
        listened = texts.step(word_B1, None)
    assert [attended.weights_BHST.shape[-1] for attended in heard] == [1, ids_BT.shape[1]] * core.config.decoder_layers
    unheard = SharedCacheDecoder(LeanDecoder(core), core.encode(TokenBatch(ids_BT, mask_BT)), 1).step(word_B1, None)
    torch.testing.assert_close(listened, unheard)


@torch.no_grad()
def test_all_layers_share_the_angles_of_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    core = writer("rope", decoder_layers=3).model
    ids_BT, mask_BT = sources()
    texts, made = SharedCacheDecoder(LeanDecoder(core), core.encode(TokenBatch(ids_BT, mask_BT)), 1), list[int]()
    scheme = core.decoder.schemes[0]
    compute = scheme.compute_cos_sin
    monkeypatch.setattr(scheme, "compute_cos_sin", lambda *inputs: made.append(1) or compute(*inputs))
    for _ in range(2):
        texts.step(torch.full((len(ids_BT), 1), 3), None)
    assert len(made) == 2


@torch.no_grad()
def test_a_step_past_the_length_from_which_cached_keys_are_stale_is_refused() -> None:
    bending = {"scheme": "rope", "spectrum": "dynamic", "factor": 2.0, "original_length": 2}
    core = writer(bending, encoder="none", decoder_layers=2).model
    ids_BT, mask_BT = sources()
    decoder = LeanDecoder(core)
    caches, word_B1 = decoder.start(core.encode(TokenBatch(ids_BT, mask_BT))), torch.full((len(ids_BT), 1), 3)
    for _ in range(2):
        decoder.step(word_B1, caches)
    with pytest.raises(PositionError, match=r"rope computes positions from the length .* longer than 2 tokens"):
        decoder.step(word_B1, caches)


@torch.no_grad()
def test_a_source_without_words_is_seen_by_nobody() -> None:
    core = writer().model.double()
    ids_BT, mask_BT = sources()
    mask_BT[0] = False
    source = core.encode(TokenBatch(ids_BT, mask_BT))
    words_BS = torch.full((len(ids_BT), 1), 3)
    stepwise = SharedCacheDecoder(LeanDecoder(core), source, 1).step(words_BS, None)
    torch.testing.assert_close(stepwise, core.decode(TokenBatch(words_BS), source), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["sinusoidal", "rope", "alibi"])
@torch.no_grad()
def test_hypotheses_of_a_beam_are_rows_of_their_own(name: str) -> None:
    """Three hypotheses as queries of one row, which change places, against each read alone."""
    core = writer(name).model.double()
    ids_BT, mask_BT = sources(2)
    source = core.encode(TokenBatch(ids_BT, mask_BT))
    texts, written_BWS = SharedCacheDecoder(LeanDecoder(core), source, 3), torch.empty(2, 3, 0, dtype=torch.long)
    for step in range(5):
        parents_BW = None if step == 0 else torch.tensor([[2, 0, 0], [1, 1, 2]])
        words_BW = torch.arange(6).view(2, 3) * 7 + 3 + step
        states_BWD = texts.step(words_BW, parents_BW)
        if parents_BW is not None:
            written_BWS = written_BWS.take_along_dim(parents_BW[..., None], dim=1)
        written_BWS = torch.cat([written_BWS, words_BW[..., None]], dim=2)
    alone_NSD = core.decode(TokenBatch(written_BWS.flatten(0, 1)), repeat_rows(source, 3))
    torch.testing.assert_close(states_BWD.flatten(0, 1), alone_NSD[:, -1], rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_lean_copy_shares_what_it_does_not_lay_out_anew_and_leaves_the_model_alone() -> None:
    core = writer("rope").model
    before = {name: parameter.data_ptr() for name, parameter in core.decoder.named_parameters()}
    calls = list[int]()
    core.decoder.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    copy = copy_for_decoding(core.decoder)
    assert {name: parameter.data_ptr() for name, parameter in core.decoder.named_parameters()} == before
    assert type(core.decoder.blocks[0]).__call__ is torch.nn.Module.__call__
    linear, theirs = copy.blocks[0].feed_forward.up, core.decoder.blocks[0].feed_forward.up
    assert linear.weight.T.is_contiguous() and not theirs.weight.T.is_contiguous()
    torch.testing.assert_close(linear.weight, theirs.weight, rtol=0, atol=0)
    assert copy.input.tokens.weight is core.decoder.input.tokens.weight
    ids_BT, mask_BT = sources()
    decoder = LeanDecoder(core)
    decoder.step(torch.full((len(ids_BT), 1), 3), decoder.start(core.encode(TokenBatch(ids_BT, mask_BT))))
    assert not calls, "hooks are not called"


def test_a_model_without_a_source_is_refused() -> None:
    with pytest.raises(UsageError, match=r"decodes with an encoder-decoder, and this model has .* 'decoder'"):
        LeanDecoder(Transformer(TransformerConfig(kind="decoder", vocab_size=9, d_model=16, num_heads=2, d_ff=16)))
