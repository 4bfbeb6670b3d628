"""A scheme in somebody's model: its own changes nothing, another acts, and afterwards the model is as it was."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    BloomConfig,
    BloomForCausalLM,
    DynamicCache,
    StaticCache,
    T5Config,
    T5ForConditionalGeneration,
)

import clockhands
from clockhands.attention import install, list_installed, record
from clockhands.errors import UsageError
from clockhands.schemes import (
    Alibi,
    Composition,
    Forgetting,
    Linear,
    NoPosition,
    PoPE,
    RoPE,
    Scheme,
    Sinusoidal,
    T5Bias,
    Window,
)
from tests.conftest import HAS_WORKBENCH

HEADS, WIDTH, LAYERS, VOCABULARY = 4, 16, 4, 99
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": HEADS * WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": 2, "intermediate_size": 32, "head_dim": WIDTH, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attn_implementation": "eager",
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {}, "mistral": {"sliding_window": 6}, "qwen2": {}, "qwen3": {}, "gemma": {}, "gemma3_text": {},
    "phi3": {}, "gpt_neox": {}, "olmo2": {}, "olmo3": {}, "cohere": {"layout": "interleaved"},
    "cohere2": {"layout": "interleaved"}, "smollm3": {}, "stablelm": {}, "granite": {},
    "glm": {"layout": "interleaved"}, "starcoder2": {}, "phi": {},
    "helium": {"layout": "interleaved"}, "exaone4": {}, "arcee": {}, "seed_oss": {},
}  # fmt: skip
"""Architectures with a rotation, and how their pairs lie where it is not in halves, or what else is set."""

needs_workbench = pytest.mark.skipif(not HAS_WORKBENCH, reason="the core alone is installed")


def tokens(rows: int = 2, length: int = 12) -> Tensor:
    return torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(1))


def build(family: str, auto: Any = AutoModelForCausalLM, **more: Any) -> Any:
    """A tiny model with random weights, loud enough that positions matter."""
    torch.manual_seed(0)
    sizes = {k: v for k, v in SIZES.items() if family != "bert" or k not in ("head_dim", "num_key_value_heads")}
    config = AutoConfig.for_model(family, **{**sizes, **more})
    model = auto.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2)
    return model


def list_own(model: Any, layout: str) -> dict[int, Scheme]:
    """The rotation of each layer, from the model's own configuration; layers that have none get none."""
    config, found = model.config, {}
    for layer in range(LAYERS):
        table = config.rope_parameters
        kind = (getattr(config, "layer_types", None) or ["full_attention"] * LAYERS)[layer]
        table = table.get(kind, table)
        rotates = bool((getattr(config, "no_rope_layers", None) or [1] * LAYERS)[layer])
        if config.model_type in ("cohere2", "exaone4"):
            rotates = kind == "sliding_attention"
        share = table.get("partial_rotary_factor", 1.0)
        found[layer] = (
            RoPE(WIDTH, base=table["rope_theta"], fraction=share, layout=layout) if rotates else NoPosition()  # type: ignore[arg-type]
        )
    return found


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_models_own_scheme_changes_no_logit(family: str) -> None:
    more = {key: value for key, value in FAMILIES[family].items() if key != "layout"}
    model = build(family, **more)
    ids, mask = tokens(), torch.ones(2, 12, dtype=torch.long)
    mask[0, :5] = 0
    expected = [model(ids).logits, model(ids, attention_mask=mask).logits]
    own = list_own(model, FAMILIES[family].get("layout", "half"))
    installed = [install(model, scheme, layers=[layer]) for layer, scheme in own.items()]
    got = [model(ids).logits, model(ids, attention_mask=mask).logits]
    for each in installed:
        each.remove()
    scale = max(1.0, float(expected[0].abs().max()))
    assert (got[0] - expected[0]).abs().max() < 1e-5 * scale
    assert (got[1] - expected[1])[mask.bool()].abs().max() < 1e-5 * scale
    with install(model, NoPosition()):
        assert (model(ids).logits - expected[0]).abs().max() > 1e-3 * scale
    torch.testing.assert_close(model(ids).logits, expected[0], atol=0, rtol=0)


@torch.no_grad()
def test_alibi_in_place_of_the_rotation_is_alibi_of_queries_that_nothing_rotated() -> None:
    """By hand: the projections of the first layer of a Llama, and the paper's slopes."""
    model, ids = build("llama", num_hidden_layers=1, num_key_value_heads=HEADS), tokens()
    layer, heard = model.model.layers[0].self_attn, []
    layer.o_proj.register_forward_pre_hook(lambda module, args: heard.append(args[0]))
    with install(model, Alibi(HEADS)):
        model(ids)
    x = model.model.layers[0].input_layernorm(model.model.embed_tokens(ids))
    q, k, v = (p(x).view(2, 12, HEADS, WIDTH).transpose(1, 2) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    slopes = torch.tensor([2 ** (-8 * (head + 1) / HEADS) for head in range(HEADS)])
    distance = torch.arange(12)[:, None] - torch.arange(12)
    logits = q @ k.mT / WIDTH**0.5 - slopes[:, None, None] * distance
    weights = logits.masked_fill(distance < 0, -torch.inf).softmax(-1)
    torch.testing.assert_close(heard[0], (weights @ v).transpose(1, 2).flatten(2), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("scheme", "rotary"),
    [
        (Alibi(HEADS), "off"), (RoPE(WIDTH, base=500.0, spectrum=Linear(4.0)), "off"),
        (Window(HEADS, left=3), "keep"), (Composition(RoPE(WIDTH), Window(HEADS, left=3)), "off"),
        (T5Bias(HEADS, HEADS * WIDTH), "keep"), (NoPosition(), "off"),
    ],
    ids=repr,
)  # fmt: skip
@torch.no_grad()
def test_generating_with_a_cache_and_left_padding_is_what_the_whole_text_gives(scheme: Scheme, rotary: Any) -> None:
    model, ids = build("llama"), tokens()
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    plain = model.generate(ids, attention_mask=mask, min_new_tokens=6, max_new_tokens=6, do_sample=False)
    with install(model, scheme, rotary=rotary):
        options: dict[str, Any] = {"min_new_tokens": 6, "max_new_tokens": 6, "do_sample": False}
        cached = model.generate(ids, attention_mask=mask, **options)
        assert torch.equal(cached, model.generate(ids, attention_mask=mask, use_cache=False, **options))
        # Each row alone, without the padding.
        alone = model.generate(ids[:1, 4:], attention_mask=mask[:1, 4:], **options)
        assert torch.equal(alone[0], cached[0, 4:])
        static = model.generate(
            ids, attention_mask=mask, cache_implementation="static", disable_compile=True, **options
        )
        assert torch.equal(cached, static)
    assert torch.equal(plain, model.generate(ids, attention_mask=mask, **options))


@torch.no_grad()
def test_layers_that_are_not_named_stay_as_they_are() -> None:
    model, ids = build("llama"), tokens()
    heard: list[Tensor] = []
    model.model.layers[2].register_forward_pre_hook(
        lambda module, args, named: heard.append(args[0] if args else named["hidden_states"]), with_kwargs=True
    )
    expected = model(ids).logits
    with install(model, NoPosition(), layers=[3]), install(model, Window(HEADS, left=1), rotary="keep", layers=[2]):
        other = model(ids).logits
    torch.testing.assert_close(heard[1], heard[0], atol=1e-5, rtol=1e-5)  # layers 0 and 1 ran as before
    assert (other - expected).abs().max() > 1e-3
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_layers_are_computed_again_where_their_own_tokens_stood(reentrant: bool) -> None:
    """Two passes with other positions and masks, and one backward pass for both, as in preference training."""
    model, ids, gradients = build("llama"), tokens(), []
    mask, model = torch.ones_like(ids), model.train()
    mask[0, :4] = 0
    model.enable_input_require_grads()
    with install(model, Alibi(HEADS)):
        for on in (False, True):
            if on:
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
            passes = ({"attention_mask": mask}, {"position_ids": 3 * torch.arange(12)[None]})
            sum(model(ids, use_cache=False, **arguments).logits.logsumexp(-1).sum() for arguments in passes).backward()
            gradients.append(model.model.layers[0].self_attn.q_proj.weight.grad.clone())
            model.zero_grad()
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-4, rtol=1e-4)


def test_gradients_reach_the_model_and_the_scheme() -> None:
    model, scheme = build("llama"), Alibi(HEADS, learned=True)
    with install(model, scheme):
        model(tokens(), labels=tokens()).loss.backward()
    for name, parameter in (*model.named_parameters(), *scheme.named_parameters()):
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@torch.no_grad()
def test_what_is_saved_is_the_model_as_it_was(tmp_path: Path) -> None:
    model, ids = build("llama"), tokens()
    expected = model(ids).logits
    with install(model, Alibi(HEADS)):
        model.save_pretrained(tmp_path)
    opened = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(opened(ids).logits, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_positions_that_are_given_are_those_that_schemes_read() -> None:
    model, ids = build("llama"), tokens()
    with install(model, Alibi(HEADS)):
        plain = model(ids).logits
        shifted = model(ids, position_ids=torch.arange(12)[None] + 7).logits
        double = 2 * torch.arange(12)[None]
        doubled, cache = model(ids, position_ids=double).logits, DynamicCache(config=model.config)
        model(ids[:, :7], position_ids=double[:, :7], past_key_values=cache)
        step = model(ids[:, 7:], position_ids=double[:, 7:], past_key_values=copy.deepcopy(cache)).logits
    torch.testing.assert_close(plain, shifted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(step, doubled[:, 7:], atol=1e-4, rtol=1e-4)  # the cache keeps where its tokens stand
    assert (plain - doubled).abs().max() > 1e-3
    for filled in (copy.deepcopy(cache), cache):
        with pytest.raises(UsageError, match="filled under a scheme that has been taken out"):
            model(ids[:, 7:], past_key_values=filled)
    with install(model, NoPosition()), pytest.raises(UsageError, match=r"7 tokens read without .*new cache"):
        model(ids[:, 7:], past_key_values=cache)
    cache.crop(-7)  # an emptied cache serves again
    torch.testing.assert_close(model(ids, past_key_values=cache).logits, model(ids).logits)


@torch.no_grad()
def test_a_model_that_reads_in_both_directions_has_schemes_too() -> None:
    model, ids = build("bert", auto=AutoModelForMaskedLM), tokens()
    expected = model(ids).logits
    with install(model, NoPosition()):
        torch.testing.assert_close(model(ids).logits, expected, atol=1e-5, rtol=1e-5)
    with install(model, Alibi(HEADS, causal=False)):
        first, last = model(ids).logits, model(torch.cat([ids[:, :-1], ids[:, -1:] % 50 + 3], 1)).logits
        assert (first - expected).abs().max() > 1e-4
        assert (first - last)[:, 0].abs().max() > 0  # the first token reads the last


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda model: install(model, Sinusoidal(64)), "Sinusoidal acts at the embedding"),
        (lambda model: install(model, Forgetting(64, HEADS)), "Forgetting acts on the input of each layer"),
        (lambda model: install(model, RoPE(WIDTH), rotary="keep"), "would rotate them again; set rotary='off'"),
        (lambda model: install(model, PoPE(HEADS, WIDTH)), "PoPE makes queries and keys wider"),
        (lambda model: install(model, Alibi(HEADS), layers=[4]),
         r"layers are \[4\], and .* attention layers \[0, 1, 2, 3\]"),
        (lambda model: install(model, "alibi"), "takes a scheme that is made"),
        (lambda model: install("llama", Alibi(HEADS)), "takes a model of transformers that is loaded, .* given str"),
        (lambda model: install(model, Alibi(HEADS), layers=[True, False]), r"layers are \[True, False\]"),
        (lambda model: install(model, Alibi(HEADS), layers=[]), r"layers are \[\], and .* \[0, 1, 2, 3\]"),
        (lambda model: install(build("bert", auto=AutoModelForMaskedLM), Alibi(HEADS)),
         "BertForMaskedLM reads in both"),
        (lambda model: install(build("recurrent_gemma"), Alibi(HEADS)), "rotates by itself, which cannot be undone"),
        (lambda model: install(model, Alibi(8)), "made with num_heads=8, and LlamaAttention has 4; set num_heads=4$"),
        (lambda model: install(model, RoPE(8)),
         r"RoPE was made with head_dim=8, and LlamaAttention has 16; set head_dim=16 \(.*RoPE has fraction\)"),
        (lambda model: install(model, Alibi(HEADS), rotary="on"), "rotary is 'on', but must be 'keep' or 'off'"),
        (
            lambda model: install(
                T5ForConditionalGeneration(T5Config(d_model=8, num_layers=1, d_ff=8, vocab_size=9)), NoPosition()
            ),
            "T5ForConditionalGeneration",
        ),
        (lambda model: install(BloomForCausalLM(BloomConfig(hidden_size=8, n_layer=1, n_head=2)), NoPosition()),
         "BloomForCausalLM does not run through the attention interface"),
        (lambda model: (install(model, Alibi(HEADS)), install(model, Alibi(HEADS))), "in layers .0, 1, 2, 3. already"),
    ],
)  # fmt: skip
def test_what_cannot_be_installed_is_refused_with_the_reason(made: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        made(build("llama"))


@torch.no_grad()
def test_another_attention_set_in_the_meantime_does_not_drop_the_scheme_in_silence() -> None:
    model = build("llama")
    with install(model, Alibi(HEADS)):
        model.set_attn_implementation("sdpa")
        with pytest.raises(UsageError, match=r"has been set to .sdpa. since, which does not know .*Alibi"):
            model(tokens())


@torch.no_grad()
def test_a_copy_has_the_scheme_too_and_a_model_of_the_same_configuration_says_that_it_has_none() -> None:
    model = build("llama")
    plain = model(tokens()).logits
    with install(model, Alibi(HEADS)):
        wanted, copies = model(tokens()).logits, (copy.deepcopy(model), pickle.loads(pickle.dumps(model)))
        with pytest.raises(UsageError, match="made from the configuration of one in which a scheme was installed"):
            type(model)(copy.deepcopy(model.config))(tokens())
    torch.testing.assert_close(model(tokens()).logits, plain)
    for copied in copies:
        cache = copied(tokens()[:, :7], use_cache=True).past_key_values
        torch.testing.assert_close(copied(tokens()[:, 7:], past_key_values=cache).logits, wanted[:, 7:])
    assert not (wanted - plain).abs().max() < 1e-3


@torch.no_grad()
def test_a_static_cache_and_autocast_are_what_they_are_without() -> None:
    model = build("llama")
    with install(model, Alibi(HEADS)):
        wanted = model(tokens()).logits
        cache = StaticCache(config=model.config, max_cache_len=40)
        torch.testing.assert_close(model(tokens(), past_key_values=cache).logits, wanted, atol=1e-5, rtol=1e-4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = model(tokens()).logits.float()
        assert (rounded - wanted).abs().max() < 0.1 * wanted.abs().max()


@needs_workbench
def test_check_reads_a_model_with_a_scheme_and_extend_refuses_it() -> None:
    from clockhands.extension.extend import ExtensionPlan
    from clockhands.models import LanguageModel

    model = build("llama")
    with install(model, Alibi(HEADS)):
        found = clockhands.check(model, only=["cache", "load", "attention"])
        with pytest.raises(UsageError, match=r"a scheme is installed in LlamaForCausalLM.*take it out first"):
            clockhands.extend(
                LanguageModel("here", model, None),
                ExtensionPlan(["a"], "a text", trained=8, longest=16),
                Path("nowhere"),
            )
    assert found.facts["encoding"] == "Alibi"
    assert found["check.cache.static"].light == found["check.cache.steps"].light == "good"
    assert "a scheme is installed in it" in found["check.load.round_trip"].verdict


@needs_workbench
@pytest.mark.parametrize(
    ("scheme", "layers", "kernel", "sentence"),
    [
        (NoPosition(), None, "skip", "Nothing tells the model position, except a causal mask where it has one. "
         "Installed: NoPosition() in place of the rotation in every layer."),
        (Alibi(HEADS), [1, 3], "info", "Queries and keys are rotated by an angle that grows with their position and "
         "position enters the attention itself. Installed: Alibi(4) in place of the rotation in layer 2 and 4. "
         "Not so in layers 2 and 4: nothing is rotated there."),
    ],
)  # fmt: skip
def test_evaluate_and_inspect_read_it(scheme: Scheme, layers: list[int] | None, kernel: str, sentence: str) -> None:
    """The loss is that of the logits that the model itself gives with the scheme; its untrained control has it too."""
    from clockhands.generation.score import cut_evaluation_windows
    from clockhands.models import LanguageModel
    from tests.runs.tiny import make_tokenizer

    model, tokenizer, texts = build("llama"), make_tokenizer(), ["a quick brown fox " * 12]
    with install(model, scheme, layers=layers):
        evaluation = clockhands.evaluate(model, texts, tokenizer=tokenizer, length=16)
        ids = cut_evaluation_windows(LanguageModel("", model, tokenizer), texts, 16).ids_NS
        with torch.no_grad():
            loss = model(torch.from_numpy(ids), labels=torch.from_numpy(ids)).loss
        found = clockhands.inspect(model, ids=torch.from_numpy(ids), length=16, count=8)
    assert evaluation.loss.mean == pytest.approx(float(loss), rel=1e-5)
    assert found.facts["position"] == sentence and found["kernel"].light == kernel
    assert clockhands.evaluate(model, texts, tokenizer=tokenizer, length=16).loss.mean != evaluation.loss.mean
    with pytest.raises(UsageError, match="LlamaForCausalLM is open already: give its tokenizer too"):
        clockhands.evaluate(model, texts)
    with pytest.raises(UsageError, match="with LlamaModel, which is no model of transformers with an output layer"):
        clockhands.evaluate(model.model, texts, tokenizer=tokenizer)


@torch.no_grad()
def test_every_layer_is_recorded_with_what_is_installed() -> None:
    """The weights of a layer with ALiBi fall with the distance where queries are zeros; the others stay rotated."""
    model, heard = build("llama"), []
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.zero_()
    with install(model, Alibi(HEADS), layers=[1]), record(heard.append):
        model(tokens())
    assert [type(computed.scheme) for computed in heard] == [NoPosition, Alibi, NoPosition, NoPosition]
    even = torch.ones(12, 12).tril() / torch.arange(1, 13)[:, None]
    torch.testing.assert_close(heard[0].weights_BHST[0, 0], even)
    assert (heard[1].weights_BHST[0, 0, -1].diff() > 0).all()


@torch.no_grad()
def test_sinks_and_limited_logits_are_not_dropped_in_silence() -> None:
    own = {"gpt_oss": "sinks of its own", "gemma2": "limits its logits", "inkling_text": "adds a bias of its own"}
    for family, what in own.items():
        model = build(family, **({"layer_types": ["full_attention"] * LAYERS} if "inkling" in family else {}))
        with install(model, NoPosition(), rotary="keep"), pytest.raises(UsageError, match=what):
            model(tokens())


class Wrapper(torch.nn.Module):
    """What holds a model, as PEFT does."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.base_model = model


@torch.no_grad()
def test_a_wrapped_model_has_the_scheme_and_tells_its_weights() -> None:
    model, ids = build("llama"), tokens()
    with install(Wrapper(model), Alibi(HEADS)):
        first = model(ids, output_attentions=True).attentions[0]
        torch.testing.assert_close(first.sum(-1), torch.ones(2, HEADS, 12))
        assert model(ids, use_cache=True, return_dict=False)[1].get_seq_length() == 12


OTHERS = [
    "opt:causal", "bart:causal", "longcat_flash:causal", "hrm_text:causal", "phi4_multimodal:causal",
    "qwen2_vl:causal", "exaone4_5:causal", "idefics2:causal", "qwen4_exp_text:causal", "whisper:causal",
    "gpt2:causal", "bert:masked",
]  # fmt: skip
"""Architectures of other builds: a stack inside, two attentions a layer, cross-attention, parts that read images."""


@needs_workbench
@pytest.mark.parametrize("name", OTHERS)
@torch.no_grad()
def test_an_architecture_of_another_build_has_the_scheme_in_every_layer(name: str) -> None:
    from clockhands.checking.models.tiny import build_model, find, tiny_config

    (build,) = (build for build in find(name) if not build.variant)
    model = build_model(tiny_config(build), build.task)
    ids = torch.randint(10, 80, (2, 12), generator=torch.Generator().manual_seed(1))
    mask, expected = torch.ones_like(ids), model(ids).logits
    mask[0, :4] = 0
    counts: list[int] = []
    with (
        install(model, NoPosition(), rotary="keep"),
        record(lambda attention: counts.append(attention.q_BHSK.shape[1])),
    ):
        torch.testing.assert_close(model(ids).logits, expected, atol=1e-5, rtol=1e-5)
        layers = list(list_installed(model))
    with pytest.raises(UsageError, match=f"made with num_heads=.*has {counts[0]}"):
        install(model, Window(counts[0] + 1), rotary="keep")
    for layer in layers:
        with install(model, Window(counts[0], left=1), rotary="keep", layers=[layer]):
            assert (model(ids).logits - expected).abs().max() > 1e-4
    if build.task == "causal":
        options = {"attention_mask": mask, "max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
        with install(model, Alibi(counts[0]), rotary="keep"):
            texts = [model.generate(ids, use_cache=cached, eos_token_id=None, **options) for cached in (True, False)]
        assert torch.equal(*texts)
    if getattr(model.config.get_text_config(), "rope_parameters", None) is not None:
        positions = torch.arange(12).expand(2, -1)
        with install(model, NoPosition()):
            near, far = (model(ids, attention_mask=mask, position_ids=n * positions).logits for n in (1, 3))
        torch.testing.assert_close(near, far, atol=1e-5, rtol=1e-5)  # nothing tells where the tokens stand
    torch.testing.assert_close(model(ids).logits, expected, atol=0, rtol=0)
