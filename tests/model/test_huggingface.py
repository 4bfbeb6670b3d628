"""The encoder-decoder in the hands of transformers: which KV caches it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, DynamicCache, StaticCache
from transformers.cache_utils import EncoderDecoderCache

from clockhands.errors import CheckpointError, ConfigError, PositionError, UsageError
from clockhands.model.huggingface import ClockhandsForSeq2SeqLM
from clockhands.model.huggingface_base import ClockhandsConfig
from tests.model.test_laws import DECODERS, scheme
from tests.model.tiny import WORDS, core, model, words


@torch.no_grad()
def test_a_cache_of_one_attention_is_refused_and_the_one_that_the_message_names_serves() -> None:
    made, source, target = model("encoder-decoder"), words(1, 5), words(1, 4)
    remedy = r"pass EncoderDecoderCache\(DynamicCache\(\), DynamicCache\(\)\)"
    with pytest.raises(UsageError, match=f"the KV cache is a DynamicCache, .* {remedy}"):
        made(input_ids=source, decoder_input_ids=target, past_key_values=DynamicCache())
    with pytest.raises(UsageError, match=remedy):
        made.generate(source, past_key_values=DynamicCache(), max_new_tokens=2)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    cached = made(input_ids=source, decoder_input_ids=target, past_key_values=cache).logits
    plain = made(input_ids=source, decoder_input_ids=target, use_cache=False).logits
    torch.testing.assert_close(cached, plain)
    assert cache.get_seq_length() == 4


OPENERS = {"encoder-decoder": AutoModelForSeq2SeqLM, "decoder": AutoModelForCausalLM, "encoder": AutoModelForMaskedLM}


def logits(made: Any, text: torch.Tensor) -> torch.Tensor:
    given = {"decoder_input_ids": text} if made.config.is_encoder_decoder else {}
    with torch.no_grad():
        return made(input_ids=text, **given).logits


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made empty holds 77: nothing is right by luck."""
    empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: empty_like(*a, **k).fill_(77))


def trained(made: Any) -> Any:
    """Every parameter away from where it began: a bias that is drawn anew on loading would be zero again."""
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    return made


@pytest.mark.parametrize("name", DECODERS)
def test_saved_and_loaded_exactly(name: str, tmp_path: Path, filled: None) -> None:
    """Loading builds the model on the meta device first: nothing that is not saved may be lost there."""
    made = trained(model(decoder=scheme(name)))
    made.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert again.config.transformer_config == made.config.transformer_config
    for (key, ours), (other, theirs) in zip(made.state_dict().items(), again.state_dict().items(), strict=True):
        assert key == other and torch.equal(ours, theirs)
    assert torch.equal(logits(made, words(2, 9)), logits(again, words(2, 9)))
    exact = {key: table.dtype for key, table in made.named_buffers()}
    low = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {key: table.dtype for key, table in low.named_buffers()} == exact, "a table lost its precision"
    assert torch.equal(logits(made.bfloat16(), words(2, 9)), logits(low, words(2, 9)))


@pytest.mark.parametrize("kind", OPENERS)
@pytest.mark.parametrize("tying", ["three-way", "target", "none"])
def test_tied_matrices_stay_tied(kind: str, tying: str, tmp_path: Path) -> None:
    made = trained(model(kind, tying=tying, output_bias=True, attention_bias=True))
    made.save_pretrained(tmp_path)
    again = OPENERS[kind].from_pretrained(tmp_path)
    for (key, ours), (other, theirs) in zip(made.state_dict().items(), again.state_dict().items(), strict=True):
        assert key == other and torch.equal(ours, theirs)
    count = len({parameter.data_ptr() for parameter in again.parameters()})
    assert count == len({parameter.data_ptr() for parameter in made.parameters()})
    assert (again.model.output.weight is again.model.output_stack.input.tokens.weight) == (tying != "none")
    assert torch.equal(logits(made, words(2, 9)), logits(again, words(2, 9)))


def test_missing_weights_are_drawn_as_at_the_start(tmp_path: Path) -> None:
    made = model(decoder={"scheme": "learned", "max_length": 16})
    kept = {key: value for key, value in made.state_dict().items() if "blocks.0" not in key and "table" not in key}
    again = type(made).from_pretrained(None, config=made.config, state_dict=kept)
    fresh = again.model.decoder.blocks[0]
    bound = (6 / (32 + 32)) ** 0.5
    assert 0.8 * bound < fresh.attention.qkv.weight.abs().max() <= bound
    assert torch.equal(fresh.attention_residual.norm.weight, torch.ones(32))
    assert 0.01 < again.model.decoder.schemes[0].table_LP.std() < 0.03
    assert torch.equal(again.model.output.weight, made.model.output.weight)


def test_a_missing_learned_scale_starts_at_its_first_value(filled: None) -> None:
    made = model(token_scale="learned")
    kept = {key: value for key, value in made.state_dict().items() if not key.endswith("input.scale")}
    assert len(kept) == len(made.state_dict()) - 1
    again = type(made).from_pretrained(None, config=made.config, state_dict=kept)
    assert float(again.model.decoder.input.scale.detach()) == pytest.approx(32**0.5)
    whole = type(made).from_pretrained(None, config=made.config, state_dict=made.state_dict())
    assert torch.equal(whole.model.decoder.input.scale, made.model.decoder.input.scale)


def test_a_missing_parameter_of_a_scheme_is_reset_and_the_loaded_ones_stay(filled: None) -> None:
    made = trained(model(decoder="kerple"))
    kept = {key: value for key, value in made.state_dict().items() if not key.endswith("size_H")}
    assert len(kept) == len(made.state_dict()) - 1
    again = type(made).from_pretrained(None, config=made.config, state_dict=kept).model.decoder.schemes[0]
    assert again.size_H.min() >= 0 and again.size_H.max() <= 2, "Kerple draws its sizes from U(0, 2)"
    assert torch.equal(again.shape_H, made.model.decoder.schemes[0].shape_H)


# Greedily and by beams in turn, both with --exhaustive: to a cache, beams differ in that its rows change places, which
# tests/generation/engines/test_clockhands.py compares for every scheme and ``cache.reorder`` for one of each kind.
@pytest.mark.parametrize(
    ("name", "beams"),
    [
        pytest.param(name, beams, marks=() if beams == (1, 3)[number % 2] else pytest.mark.exhaustive)
        for number, name in enumerate(DECODERS)
        for beams in (1, 3)
    ],
)
def test_generate_is_the_same_with_every_cache_and_alone(name: str, beams: int) -> None:
    made = model(decoder=scheme(name))
    if made.model.decoder.schemes[0].declares.depends_on_length:
        pytest.skip("declares that what a token gets changes with the length")
    text = words(2, 6)
    mask = torch.ones_like(text)
    mask[0, :2] = 0
    text = text.masked_fill(mask == 0, 0)
    wanted = {"max_new_tokens": 5, "min_new_tokens": 5, "num_beams": beams, "no_repeat_ngram_size": 1}
    wanted["suppress_tokens"] = [0]
    dynamic = made.generate(text, attention_mask=mask, **wanted)
    assert dynamic.shape == (2, 11)
    assert torch.equal(dynamic, made.generate(text, attention_mask=mask, cache_implementation="static", **wanted))
    assert torch.equal(dynamic, made.generate(text, attention_mask=mask, use_cache=False, **wanted))
    alone = made.generate(text[:1, 2:], **wanted)
    assert torch.equal(dynamic[:1, 2:], alone)


@pytest.mark.parametrize("name", ["sinusoidal", "rope", "alibi"])
def test_trap_08_a_wrapper_that_hides_the_signature_still_counts(name: str) -> None:
    """``generate`` passes position_ids only where it sees the name; what is cached must tell where a step stands."""

    class Wrapped(type(model())):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return super().forward(*args, **kwargs)

    made = model(decoder=name)
    wrapped = Wrapped(made.config).eval()
    wrapped.load_state_dict(made.state_dict())
    text, wanted = words(2, 6), {"max_new_tokens": 6, "min_new_tokens": 6, "no_repeat_ngram_size": 1}
    assert torch.equal(wrapped.generate(text, **wanted), made.generate(text, use_cache=False, **wanted))


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True}], ids=["greedy", "beam", "sample"])
def test_translation_is_the_same_with_every_cache(options: dict[str, Any]) -> None:
    made = model("encoder-decoder", tying="none", encoder="sinusoidal", decoder="alibi", cross="rope")
    text = words(3, 7)
    mask = torch.ones_like(text)
    mask[0, 4:] = 0
    wanted = {"max_new_tokens": 6, "min_new_tokens": 6, "no_repeat_ngram_size": 1, **options}
    results = []
    for cache in ({}, {"cache_implementation": "static"}, {"use_cache": False}):
        torch.manual_seed(0)
        results.append(made.generate(text, attention_mask=mask, **cache, **wanted))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    if "do_sample" not in options:
        alone = made.generate(text[:1, :4], **wanted)
        assert torch.equal(results[0][:1], alone)


def test_a_traced_step_over_a_static_cache_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # the checks themselves cannot be traced
    made = model(decoder="alibi")
    text = words(2, 6)
    mask = torch.ones_like(text)
    mask[0, :2] = 0
    with torch.no_grad():
        whole = made(input_ids=text, attention_mask=mask).logits[:, -1]
        cache = StaticCache(config=made.config, max_cache_len=9)
        made(input_ids=text[:, :5], attention_mask=mask[:, :5], past_key_values=cache)
        step = torch.compile(made, backend="eager")
        got = step(input_ids=text[:, 5:], attention_mask=mask, past_key_values=cache).logits[:, -1]
    torch.testing.assert_close(got, whole, atol=1e-4, rtol=1e-4)


def test_positions_from_a_layers_input_are_not_traced_with_a_static_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # the checks themselves cannot be traced
    made, text = model(decoder="repo"), words(2, 6)
    cache = StaticCache(config=made.config, max_cache_len=9)
    step = torch.compile(made, backend="eager")
    with torch.no_grad():
        made(input_ids=text[:, :5], past_key_values=cache)
        with pytest.raises(PositionError, match=r"repo computes positions from a layer's input, .* use_cache=False"):
            step(input_ids=text[:, 5:], past_key_values=cache)


def test_loss_of_a_pair_and_no_logits_while_training() -> None:
    made = model("encoder-decoder")
    made.config.label_smoothing = 0.3
    source, labels = words(2, 5), words(2, 4, seed=1)
    labels[0, 2:] = -100
    out = made(input_ids=source, labels=labels)
    plain = F.cross_entropy(out.logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(out.loss, plain)
    read = torch.cat([torch.full((2, 1), 1), labels[:, :-1]], dim=1).clamp(min=0)
    assert torch.equal(out.logits, made(input_ids=source, decoder_input_ids=read).logits)
    made.train()
    learning = made(input_ids=source, labels=labels)
    assert learning.logits is None
    smoothed = F.cross_entropy(out.logits.flatten(0, 1), labels.flatten(), label_smoothing=0.3)
    torch.testing.assert_close(learning.loss, smoothed)
    torch.testing.assert_close(made(input_ids=source, labels=labels, num_items_in_batch=3).loss, smoothed * 6 / 3)


def test_loss_of_a_language_model_shifts_its_labels() -> None:
    made = model()
    text = words(2, 7)
    out = made(input_ids=text, labels=text)
    expected = F.cross_entropy(out.logits[:, :-1].flatten(0, 1), text[:, 1:].flatten())
    torch.testing.assert_close(out.loss, expected)
    assert made.accepts_loss_kwargs and made.loss_type == "ForCausalLM"


@pytest.mark.parametrize("output", [{}, {"output_transform": True, "output_scale": 0.3}], ids=["plain", "head"])
def test_loss_of_a_masked_language_model(output: dict[str, Any]) -> None:
    made = model("encoder", **output)
    text = words(2, 7)
    labels = torch.full_like(text, -100)
    labels[:, 2] = text[:, 2]
    out = made(input_ids=text, labels=labels)
    torch.testing.assert_close(out.loss, F.cross_entropy(out.logits[:, 2], labels[:, 2]))


def test_hidden_states_are_every_layer_s_input_and_the_last() -> None:
    made = model("encoder-decoder")
    out = made(input_ids=words(2, 5), decoder_input_ids=words(2, 4), output_hidden_states=True)
    assert len(out.decoder_hidden_states) == len(out.encoder_hidden_states) == 3
    assert torch.equal(out.encoder_hidden_states[-1], out.encoder_last_hidden_state)
    assert torch.equal(made.model.output(out.decoder_hidden_states[-1]), out.logits)
    last = made(input_ids=words(2, 5), decoder_input_ids=words(2, 4), logits_to_keep=1).logits
    torch.testing.assert_close(last, out.logits[:, -1:])


def test_hidden_states_of_an_encoder_that_ran_before_are_passed_on() -> None:
    made, source, target = model("encoder-decoder"), words(2, 5), words(2, 4)
    encoded = made.get_encoder()(source, output_hidden_states=True)
    whole = made(input_ids=source, decoder_input_ids=target, output_hidden_states=True)
    out = made(encoder_outputs=encoded, decoder_input_ids=target, output_hidden_states=True)
    assert torch.equal(out.logits, whole.logits)
    assert len(out.encoder_hidden_states) == 3
    assert all(map(torch.equal, out.encoder_hidden_states, whole.encoder_hidden_states))


REFUSALS: list[tuple[Any, type[Exception], str]] = [
    (lambda m: m(input_ids=words(1, 3)), UsageError, "the decoder has nothing to read"),
    (lambda m: m(decoder_input_ids=words(1, 3)), UsageError, "there is no source: pass input_ids"),
    (lambda m: m(input_ids=words(1, 3), attention_mask=torch.ones(1, 1, 3), decoder_input_ids=words(1, 2)), UsageError,
     r"a padding mask is \[batch, length\]; this one has the shape \(1, 1, 3\)"),
    (lambda m: m(input_ids=words(1, 3), attention_mask=torch.ones(1, 2), decoder_input_ids=words(1, 2)), PositionError,
     "the mask has 2 columns, but 0 cached and 3 new tokens need 3"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "sentence"), REFUSALS, ids=[sentence for *_, sentence in REFUSALS])
def test_what_cannot_be_is_refused(call: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        call(model("encoder-decoder"))


def test_packed_documents_are_not_continued() -> None:
    made = model()
    text, documents = words(1, 4), torch.zeros(1, 4, dtype=torch.long)
    cache = made(input_ids=text, use_cache=True).past_key_values
    with pytest.raises(PositionError, match="packed documents cannot be continued from a cache"):
        made(input_ids=text, document_ids=documents, past_key_values=cache)
    # generate of transformers gives positions at every step, and these do not say to which document a token belongs.
    with pytest.raises(PositionError, match="packed documents cannot be continued from a cache"):
        made(input_ids=text, document_ids=documents, position_ids=torch.arange(4, 8)[None], past_key_values=cache)


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(("kind", "named"), [("decoder", "document_ids"), ("encoder-decoder", "decoder_document_ids")])
def test_generate_refuses_packed_documents_with_a_cache_and_without(kind: str, named: str, use_cache: bool) -> None:
    """Without a cache it would add tokens to a row whose documents are as long as before."""
    options = {named: torch.tensor([[0, 0, 1, 1]]), "use_cache": use_cache, "max_new_tokens": 2}
    with pytest.raises(
        PositionError, match=rf"packed documents cannot be continued: .* {named} does not say .* document alone"
    ):
        model(kind).generate(words(1, 4), **options)


def test_generate_reads_packed_sources() -> None:
    """Of a source the documents are known: only the text that grows is refused."""
    made, text = model("encoder-decoder"), words(1, 4)
    documents = torch.tensor([[0, 0, 1, 1]])
    generated = [made.generate(text, document_ids=ids, max_new_tokens=3) for ids in (documents, documents * 0, None)]
    assert torch.equal(generated[1], generated[2]) and generated[0].shape == generated[1].shape


@pytest.mark.parametrize(
    ("decoder", "named"),
    [
        ({"scheme": "rope", "transform": "randomised", "transform_options": {"maximum": 64}}, "randomised"),
        ({"scheme": "index", "normalise": "length"}, "index"),
        ({"scheme": "rope", "spectrum": "dynamic", "factor": 2.0, "original_length": 3}, "rope"),
    ],
)
def test_positions_that_change_with_the_length_are_not_cached(decoder: dict[str, Any], named: str) -> None:
    made = model(decoder=decoder)
    text = words(1, 4)
    wanted = {"max_new_tokens": 2, "min_new_tokens": 2}
    said = f"{named} computes positions from the length of the text, so cached keys become stale"
    with pytest.raises(PositionError, match=said):
        made.generate(text, use_cache=True, **wanted)
    left = made.generate(text, **wanted)
    assert left.shape == (1, 6)
    assert torch.equal(left, made.generate(text, use_cache=False, **wanted))


def test_keys_are_kept_up_to_the_length_from_which_a_spectrum_bends() -> None:
    bent = {"scheme": "rope", "spectrum": "dynamic", "factor": 2.0, "original_length": 6}
    made, text, cache = model(decoder=bent), words(1, 8), DynamicCache()
    steps = [made(text[:, a:b], past_key_values=cache).logits for a, b in ((0, 4), (4, 6))]
    torch.testing.assert_close(torch.cat(steps, dim=1), made(text[:, :6]).logits)
    with pytest.raises(PositionError, match=r"rope computes positions .* stale once the text is longer than 6 tokens"):
        made(text[:, 6:], past_key_values=cache)
    # Of one layer nobody reads what earlier words have become.
    alone, cache = model(decoder=bent, decoder_layers=1), DynamicCache()
    last = [alone(text[:, a:b], past_key_values=cache).logits for a, b in ((0, 4), (4, 8))][-1]
    torch.testing.assert_close(last[:, -1], alone(text).logits[:, -1])


def test_a_start_word_is_needed() -> None:
    made = ClockhandsForSeq2SeqLM(ClockhandsConfig(transformer=core().to_dict()))
    with pytest.raises(CheckpointError, match="set decoder_start_token_id or bos_token_id"):
        made(input_ids=words(1, 3), labels=words(1, 3))


def test_faults_of_the_configuration_are_told_together() -> None:
    with pytest.raises(
        ConfigError, match=r"config.transformer has 1 fault:\n  - unknown option of the model 'd_modle'"
    ):
        ClockhandsConfig(transformer={"d_modle": 3})
    with pytest.raises(ConfigError) as caught:
        ClockhandsConfig(transformer=core().to_dict(), label_smoothing=1.5, smoothing="al")
    assert caught.value.faults == (
        "label_smoothing is 1.5; it must be at least 0 and below 1",
        "unknown smoothing 'al'; did you mean 'all'?",
    )
    with pytest.raises(ConfigError, match="which needs pad_token_id"):
        ClockhandsConfig(transformer=core().to_dict(), smoothing="others-but-pad")


def test_configuration_round_trips() -> None:
    config = ClockhandsConfig(transformer=core(norm="post").to_dict(), label_smoothing=0.1, **WORDS)
    again = ClockhandsConfig.from_dict(config.to_dict())
    assert again.to_dict() == config.to_dict() and again.transformer_config == config.transformer_config
    assert (again.vocab_size, again.hidden_size, again.num_hidden_layers, again.head_dim) == (41, 32, 2, 8)
