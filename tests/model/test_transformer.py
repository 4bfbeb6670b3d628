"""The named options of the model, each against a hand-written computation or its definition."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import DynamicCache

from clockhands.errors import PositionError, UsageError
from clockhands.model import TokenBatch, Transformer
from clockhands.model.masks import make_self_mask, make_static_cache_mask
from clockhands.model.transformer import initialise_linear
from tests.model.tiny import core, model, words


def first_input(made: Transformer, text: torch.Tensor) -> torch.Tensor:
    """What the first layer of a decoder reads."""
    states: list[torch.Tensor] = []
    made.decode(TokenBatch(text), layer_states=states)
    return states[0]


@pytest.mark.parametrize(("option", "factor"), [("sqrt", math.sqrt(32)), ("one", 1.0), ("learned", math.sqrt(32))])
def test_tokens_are_scaled_and_the_encoding_is_added(option: str, factor: float) -> None:
    made = model(token_scale=option).model.eval()
    stack = made.decoder
    if option == "learned":
        factor = float(stack.input.scale.detach())
        assert factor != math.sqrt(32), "the scale was not shaken, so it is no parameter"
    text = words(2, 5)
    expected = stack.input.tokens.weight[text] * factor + stack.schemes[0].encode(torch.arange(5)[None])
    torch.testing.assert_close(first_input(made, text), expected)


def test_concatenated_channels_are_tokens_then_positions() -> None:
    place = {"scheme": "sinusoidal", "combine": "concatenate", "width": 8}
    made = model(decoder=place, tying="none").model
    text = words(2, 5)
    x = first_input(made, text)
    torch.testing.assert_close(x[..., :24], made.decoder.input.tokens.weight[text] * math.sqrt(32))
    torch.testing.assert_close(x[..., 24:], made.decoder.schemes[0].encode(torch.arange(5)[None]).expand(2, -1, -1))


def test_projected_channels_are_a_matrix_of_both() -> None:
    made = model(decoder={"scheme": "sinusoidal", "combine": "project", "width": 8}).model
    text = words(2, 5)
    layer = made.decoder.input
    encoding = made.decoder.schemes[0].encode(torch.arange(5)[None]).expand(2, -1, -1)
    both = torch.cat([layer.tokens.weight[text] * math.sqrt(32), encoding], dim=-1)
    torch.testing.assert_close(first_input(made, text), both @ layer.project.weight.T)


def test_encoding_is_added_again_before_every_layer_but_the_first() -> None:
    made = model(decoder={"scheme": "sinusoidal", "every_layer": True}).model
    once = model(decoder="sinusoidal").model
    text = words(1, 5)
    again_states: list[torch.Tensor] = []
    once_states: list[torch.Tensor] = []
    made.decode(TokenBatch(text), layer_states=again_states)
    once.decode(TokenBatch(text), layer_states=once_states)
    assert torch.equal(again_states[0], once_states[0])
    encoding = made.decoder.schemes[0].encode(torch.arange(5)[None], 1)
    torch.testing.assert_close(again_states[1], once_states[1] + encoding)


def test_rotation_can_be_dropped_after_training_and_the_weights_stay() -> None:
    """DroPE: at inference s times longer, queries are sharpened by 1 + c·ln s and nothing turns."""
    sharper = {"scheme": "temperature", "form": "constant", "coefficient": 0.4, "factor": 4.0}
    turned, dropped, plain = (Transformer(core(kind="decoder", decoder=s)).eval() for s in ("rope", sharper, "none"))
    for other in (dropped, plain):
        other.load_state_dict(turned.state_dict(), strict=True)
    text = TokenBatch(words(1, 7))
    with torch.no_grad():
        for block in plain.decoder.blocks:
            queries = block.attention.qkv.weight[: block.attention.q_width]
            queries.mul_(1 + 0.4 * math.log(4))
    torch.testing.assert_close(dropped.decode(text), plain.decode(text))
    assert not torch.allclose(dropped.decode(text), turned.decode(text), atol=1e-2)


def test_tables_of_a_layer_are_its_own_and_others_shared() -> None:
    assert len(Transformer(core(kind="decoder", decoder="cope")).decoder.schemes) == 2
    shared = Transformer(core(kind="decoder", decoder="t5"))
    assert [name for name, _ in shared.named_parameters() if "schemes" in name] == ["decoder.schemes.0.table_HN"]


def test_residual_connections_can_be_cut() -> None:
    """Without them and with the output of the last sublayer at zero, nothing of the words is left."""
    for residual in (True, False):
        made = model(residual=residual, final_norm=False).model
        with torch.no_grad():
            made.decoder.blocks[-1].feed_forward.down.weight.zero_()
            made.decoder.blocks[-1].feed_forward.down.bias.zero_()
        assert bool(made.decode(TokenBatch(words(1, 5))).any()) == residual


def test_an_encoder_may_see_what_came_before_alone() -> None:
    """Then a scheme that is defined under a causal mask alone may stand in it, and order is told without any."""
    text, mask = words(1, 6), torch.tensor([[0, 1, 1, 1, 1, 1]]).bool()
    changed, swapped = text.clone(), text[:, [0, 2, 1, 3, 4, 5]]
    changed[0, 4] += 1
    for causal in (True, False):
        made = model("encoder-decoder", encoder="none", causal_encoder=causal).model
        read = [made.encode(TokenBatch(ids, mask)).states_BTD[0, 1:] for ids in (text, changed, swapped)]
        assert bool((read[0][:3] == read[1][:3]).all()) == causal
        assert torch.allclose(read[0][2:], read[2][2:], atol=1e-5) != causal
        assert not torch.allclose(read[0][3:], read[1][3:], atol=1e-3)
    model("encoder-decoder", encoder="cope", causal_encoder=True)


def test_initialisation_of_the_paper() -> None:
    made = Transformer(core(vocab_size=3000, d_model=64, num_heads=4, d_ff=256))
    assert abs(made.decoder.input.tokens.weight.std() - 64**-0.5) < 2e-3
    own = made.decoder.blocks[0]
    for weight, shape in [(own.attention.qkv.weight, (64, 64)), (own.feed_forward.up.weight, (64, 256))]:
        bound = math.sqrt(6 / sum(shape))
        assert 0.98 * bound < weight.abs().max() <= bound
    assert not own.feed_forward.up.bias.any()
    assert not Transformer(core(output_bias=True, tying="target")).output.bias.any(), "its matrix is tied, not its bias"
    other = Transformer(core(vocab_size=3000, d_model=64, initialisation="normal02"))
    assert abs(other.decoder.blocks[0].attention.qkv.weight.std() - 0.02) < 1e-3


def test_each_projection_is_drawn_by_its_own_shape_where_key_heads_are_fewer() -> None:
    """Xavier's bound of a matrix of 128 columns is √(6 / (128 + rows)): larger for 16 rows of keys than for 128."""
    grouped = core(d_model=128, num_heads=8, num_kv_heads=1)
    block = Transformer(grouped).decoder.blocks[0]
    qkv, kv = block.attention.qkv, block.cross.kv
    assert qkv.widths == (128, 16, 16) and kv.widths == (16, 16)
    for weight, rows in zip(
        [*qkv.weight.split(qkv.widths), *kv.weight.split(kv.widths)], [128, *[16] * 4], strict=True
    ):
        bound = math.sqrt(6 / (128 + rows))
        assert 0.97 * bound < weight.abs().max() <= bound


def test_projections_of_equal_shape_are_drawn_as_one_matrix() -> None:
    config, seeds = core(kind="decoder", num_heads=4), torch.Generator().manual_seed(5)
    made = Transformer(config).decoder.blocks[0].attention.qkv
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        initialise_linear(made, config)
    bound = math.sqrt(6 / (32 + 32))
    assert torch.equal(made.weight.detach(), torch.empty(96, 32).uniform_(-bound, bound, generator=seeds))


@pytest.mark.parametrize("place", ["embedding", "residual", "ffn-residual", "attention", "activation"])
def test_dropout_acts_while_training_only(place: str) -> None:
    made = model(dropout=0.5, dropout_places=[place])
    text = words(1, 7)
    assert torch.equal(made(input_ids=text).logits, made(input_ids=text).logits)
    made.train()
    assert not torch.equal(made(input_ids=text).logits, made(input_ids=text).logits)


def test_shifted_positions_shift_while_training() -> None:
    place = {"scheme": "sinusoidal", "transform": "shifted", "transform_options": {"maximum": 50, "test": 0}}
    made = model(decoder=place)
    plain = model(decoder="sinusoidal")
    text = words(1, 7)
    assert torch.equal(made(input_ids=text).logits, plain(input_ids=text).logits)
    made.train()
    drawn = {made(input_ids=text).logits.sum().item() for _ in range(5)}
    assert len(drawn) > 1


def test_positions_given_by_hand_are_used() -> None:
    made = model(decoder="sinusoidal")
    text = words(2, 4)
    moved = made(input_ids=text, position_ids=torch.arange(4)[None] + 3).logits
    longer = made.model.decoder.schemes[0].encode(torch.arange(3, 7)[None])
    states: list[torch.Tensor] = []
    made.model.decode(TokenBatch(text, pos=torch.arange(4)[None] + 3), layer_states=states)
    torch.testing.assert_close(states[0], made.model.decoder.input.tokens.weight[text] * math.sqrt(32) + longer)
    assert not torch.allclose(moved, made(input_ids=text).logits, atol=1e-3)


def test_beyond_a_learned_table_is_refused_or_clamped() -> None:
    place = {"scheme": "learned", "max_length": 4}
    with pytest.raises(PositionError, match="position 4 is outside the 4 positions of learned"):
        model(decoder=place)(input_ids=words(1, 5))
    assert model(decoder={**place, "beyond": "clamp"})(input_ids=words(1, 5)).logits.isfinite().all()


def test_a_memory_of_fixed_length_shows_what_a_growing_one_shows() -> None:
    mask = torch.tensor([[False, True, True, True, True], [True] * 5])
    text = TokenBatch(words(2, 2), mask)
    fixed = make_static_cache_mask(text, torch.tensor(3), 8)
    growing = make_self_mask(text, 3)
    assert growing is not None
    order = torch.ones(2, 5, dtype=torch.bool).tril(3)
    assert torch.equal(fixed[..., :5].expand(2, 1, 2, 5), growing & order)
    assert not fixed[..., 5:].any()


def test_gradient_does_not_leak_from_hidden_words() -> None:
    """A later word, a padded word and another document's word change nothing: their embeddings get no gradient."""
    made = model("encoder-decoder", tying="none", encoder="rope", decoder="rope")
    source, target = torch.tensor([[5, 6, 7]]), torch.tensor([[8, 9, 10]])
    mask = torch.tensor([[1, 1, 0]])
    made(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits[0, 1].sum().backward()
    grown = made.model.encoder.input.tokens.weight.grad.abs().sum(-1)
    assert grown[5] > 0 and grown[6] > 0 and grown[7] == 0
    written = made.model.decoder.input.tokens.weight.grad.abs().sum(-1)
    assert written[8] > 0 and written[9] > 0 and written[10] == 0


def test_a_side_or_a_source_that_there_is_not_is_refused() -> None:
    text = TokenBatch(words(1, 3))
    with pytest.raises(UsageError, match="an encoder-decoder needs a source to decode: pass what encode returned"):
        Transformer(core()).decode(text)
    with pytest.raises(UsageError, match="a decoder-only model has no encoder; call decode"):
        Transformer(core(kind="decoder")).encode(text)
    with pytest.raises(UsageError, match="a model of architecture 'decoder' has no encoder"):
        Transformer(core(kind="decoder")).get_stack("encoder")
    with pytest.raises(UsageError, match="an encoder-only model has no decoder; call encode"):
        Transformer(core(kind="encoder")).decode(text)
    with pytest.raises(UsageError, match="a decoder-only model has no cross-attention that reads a source"):
        Transformer(core(kind="decoder")).decode(text, Transformer(core()).encode(text))


def test_a_transform_is_told_the_mask_of_the_new_tokens_alone() -> None:
    """The mask covers the cached tokens too; the columns of the new ones are the last."""
    made, masks = Transformer(core(kind="decoder")), list[torch.Tensor]()

    class Listening:
        depends_on_length = real_valued = False

        def __call__(
            self, pos: torch.Tensor, mask: torch.Tensor | None = None, *, training: bool = False
        ) -> torch.Tensor:
            masks.append(mask)
            return pos

    made.decoder.transform = Listening()
    mask_BT = torch.tensor([[False, False, True, True, True]])
    cache = DynamicCache()
    made.decode(TokenBatch(words(1, 3), mask_BT[:, :3]), cache=cache)
    made.decode(TokenBatch(words(1, 2), mask_BT), cache=cache)
    assert [mask.tolist() for mask in masks] == [[[False, False, True]], [[True, True]]]


def test_keys_are_stale_too_where_cross_attention_depends_on_the_length() -> None:
    """Its outputs change with the length of the text, and the keys of the layers above are computed from them."""
    by_length = {"scheme": "rope", "spectrum": "dynamic", "factor": 2.0, "original_length": 6}
    made = model("encoder-decoder", cross=by_length).transformer
    source, text = made.encode(TokenBatch(words(1, 4))), words(1, 8)
    cache = DynamicCache()
    steps = [made.decode(TokenBatch(text[:, a:b]), source, cache) for a, b in ((0, 4), (4, 6))]
    torch.testing.assert_close(torch.cat(steps, dim=1), made.decode(TokenBatch(text[:, :6]), source))
    with pytest.raises(PositionError, match=r"rope in cross-attention computes .* once the text is longer than 6"):
        made.decode(TokenBatch(text[:, 6:]), source, cache)
    alone, cache = model("encoder-decoder", cross=by_length, decoder_layers=1).transformer, DynamicCache()
    last = [alone.decode(TokenBatch(text[:, a:b]), source, cache) for a, b in ((0, 4), (4, 8))][-1]
    torch.testing.assert_close(last[:, -1], alone.decode(TokenBatch(text), source)[:, -1])


@pytest.mark.parametrize("tying", ["three-way", "target"])
def test_a_tied_output_is_drawn_once_as_an_embedding(tying: str) -> None:
    """By N(0, 1/d), also by ``initialise``; as a linear layer it would follow Xavier's law."""
    made = Transformer(core(vocab_size=3000, d_model=64, tying=tying))
    xavier = math.sqrt(2 / (3000 + 64))
    for _ in range(2):
        assert made.output.weight is made.decoder.input.tokens.weight
        assert float(made.output.weight.detach().std()) == pytest.approx(64**-0.5, rel=0.02)
        assert xavier < 0.3 * 64**-0.5
        made.initialise()
    free = Transformer(core(vocab_size=3000, d_model=64, tying="none"))
    assert float(free.output.weight.detach().std()) == pytest.approx(xavier, rel=0.02)


def test_three_matrices_are_one_and_two_are_where_the_source_has_its_own() -> None:
    """Vaswani et al. 2017, section 3.4: both embeddings and the output share their weights."""
    output, source = ("output.weight", "decoder.input.tokens.weight"), ("encoder.input.tokens.weight",)
    tied = {
        tying: model(kind="encoder-decoder", tying=tying).model.map_tied_parameters()
        for tying in ("three-way", "target", "none")
    }
    assert tied["none"] == {} and tied["target"] == {output[0]: output[1]}
    assert tied["three-way"] == {output[0]: output[1], source[0]: output[1]}


@torch.no_grad()
def test_columns_of_a_mask_beyond_the_source_are_ignored() -> None:
    made, text = model("encoder-decoder").model, words(2, 4)
    mask = torch.tensor([[True] * 4, [True, True, True, False]])
    wide = TokenBatch(text, torch.cat([mask, mask], dim=1))
    wanted = made.decode(TokenBatch(text), made.encode(TokenBatch(text, mask)))
    source = made.encode(wide)
    torch.testing.assert_close(made.decode(TokenBatch(text), source), wanted)
    rebuilt = made.rebuild_source(source.states_BTD, wide)
    torch.testing.assert_close(made.decode(TokenBatch(text), rebuilt), wanted)
