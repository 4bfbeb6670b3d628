"""What does not run in a page is refused by name, everything at once; models of other projects run as their own."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from tokenizers import processors

from clockhands.cli import main
from clockhands.data import Corpus, Pair
from clockhands.data.tokens import train_tokenizers
from clockhands.errors import CheckpointError, UsageError
from clockhands.exploring import support
from clockhands.exploring.model_data import describe_model
from clockhands.exploring.page import EXAMPLES, describe_offer, make_page, prepare_checkpoint
from clockhands.exploring.support import (
    OPTIONS,
    check_support,
    convert_checkpoint,
    describe_tokens,
    find_tokenizer_faults,
    read_rules,
    translate_pattern,
)
from clockhands.inspection import Subject, open_subject
from clockhands.model import TransformerConfig
from clockhands.model.position_config import PositionConfig
from tests.exploring.engine import ask, open_page
from tests.exploring.models import make_run
from tests.report.chromium import Browser


@pytest.mark.parametrize("scheme", OPTIONS)
def test_every_scheme_that_is_listed_is_taken(scheme: str, tmp_path: Path) -> None:
    check_support(make_run(tmp_path, encoder=scheme, decoder=scheme))


def test_every_reason_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "LARGEST", 100)
    run = make_run(
        tmp_path,
        kind="unigram",
        output_transform=True,
        encoder={
            "scheme": "sinusoidal",
            "random_phases": True,
            "transform": "scaled",
            "transform_options": {"factor": 2.0},
        },
        decoder={"scheme": "rope", "spectrum": "linear", "factor": 2.0, "values": True},
        cross="rope",
    )
    with pytest.raises(UsageError) as told:
        check_support(run)
    first, *reasons = str(told.value).splitlines()
    assert first == f"the model in {tmp_path} does not run in a page:"
    for reason in (
        "model.output_transform", "cross.scheme = 'rope'", "encoder.transform = 'scaled'",
        "encoder.random_phases = True", "decoder.spectrum = 'linear'", "decoder.factor = 2.0",
        "decoder.values = True",
        "source tokenizer is of the kind Unigram", "and a page runs at most 100",
    ):  # fmt: skip
        assert sum(reason in line for line in reasons) == 1, reason
    assert len(reasons) == 9


def test_another_scheme_is_named_with_those_there_are(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder="kerple", decoder="kerple")
    with pytest.raises(UsageError, match=r"encoder.scheme = 'kerple': the page computes none, sinusoidal, learned"):
        check_support(run)


def test_layers_with_schemes_of_their_own_are_named(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder_layers=2, encoder={"scheme": "rope", "layers": ["none", "alibi"]})
    with pytest.raises(UsageError, match=r"encoder\.layers: the page has one scheme for all layers of a side"):
        check_support(run)


def test_every_field_of_a_configuration_is_computed_or_refused() -> None:
    """A field that is new in the model has to be computed by the page or refused here before it is listed."""
    sizes = (
        "kind vocab_size source_vocab_size d_model num_heads num_kv_heads head_dim d_ff encoder_layers decoder_layers"
    )
    norms = "norm final_norm norm_kind norm_eps norm_bias embedding_norm token_scale tying output_bias output_scale"
    layers = "attention_bias ffn_bias activation gated attention_scale residual causal_encoder encoder decoder"
    in_training = "initialisation dropout dropout_places"
    refused = "output_transform cross query_key_norm first_norm latent_width experts"
    # These need one of the refused ones.
    of_refused = "latent_query_width shared_key_dim value_dim experts_per_token expert_width expert_layers"
    of_refused += " shared_expert_width router router_scale expert_groups expert_groups_per_token"
    # With cross-attention the model itself refuses `parallel`.
    known = {*f"{sizes} {norms} {layers} {in_training} {refused} {of_refused} parallel".split()}
    assert {field.name for field in dataclasses.fields(TransformerConfig)} == known
    computed = "scheme options combine width every_layer skip_every"
    refused = "layers kinds transform transform_options"
    assert {field.name for field in dataclasses.fields(PositionConfig)} == {*f"{computed} {refused}".split()}


def test_parallel_layers_of_a_language_model_are_refused() -> None:
    config = TransformerConfig.from_dict({"kind": "decoder", "norm": "pre", "parallel": True, "decoder": "rope"})
    (reason,) = support._find_faults(config)
    assert reason.startswith("model.parallel")


HALF, SINGLE = 1e-2, 1e-5
"""The largest error of a logit, in standard deviations of the logits, with weights of half and of single precision."""
TEXTS = ("Tom bit a dog", "A dog's tail, and 12 cats: Caf\u00e9 \u4f60\u597d!", "the end of it")
VOCABULARY = 300
_LLAMA = {"hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 40,
          "num_hidden_layers": 2, "max_position_embeddings": 64, "vocab_size": VOCABULARY}  # fmt: skip
_GPT2 = {"n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 80, "vocab_size": VOCABULARY}
_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
MODELS: dict[str, Any] = {
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**_GPT2, **IDS)),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**_LLAMA, **IDS)),
    "llama-biases": lambda: hf.LlamaForCausalLM(
        hf.LlamaConfig(**_LLAMA, **IDS, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                       rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    ),
}  # fmt: skip


def make_model(name: str) -> Any:
    """A random model whose attention and norms matter."""
    torch.manual_seed(3)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def make_tokenizer(*, starts: bool) -> Any:
    """Pairs of bytes, cut as GPT-2 cuts them; with ``starts`` it puts <s> in front of a text, as Llama's does."""
    corpus = Corpus("texts", "language modelling", {"train": list(TEXTS)})
    tokenizer = train_tokenizers(corpus, kind="bpe", vocabulary=VOCABULARY - 5).source
    if starts:
        template = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
        tokenizer.backend_tokenizer.post_processor = template
    return tokenizer


@pytest.fixture(scope="module", params=MODELS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and its tokenizer, whose model has more embeddings than that has tokens."""
    folder = tmp_path_factory.mktemp("foreign") / str(request.param)
    make_model(request.param).save_pretrained(folder)
    make_tokenizer(starts=request.param != "gpt2").save_pretrained(folder)
    return folder


def test_its_logits_and_texts_in_the_page_are_its_own(
    checkpoint: Path, engine: str, browser: Browser, tmp_path: Path
) -> None:
    """Token ids too; greedily it writes what ``generate`` of transformers writes."""
    model = hf.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    tokenizer = hf.AutoTokenizer.from_pretrained(checkpoint)
    prepared = prepare_checkpoint(str(checkpoint), "theirs", "theirs", TEXTS)
    assert prepared.is_live and prepared.data["texts"] == list(TEXTS)
    run = convert_checkpoint(open_subject(checkpoint), checkpoint)
    whole = describe_model(run, "whole", "whole", "", [], dtype="float32")
    whole.data["measured"] = []
    open_page(browser, engine, [prepared, whole], tmp_path)
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        assert ask(browser, f"models.theirs.encodeText({json.dumps(text)}).ids") == ids
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits.flatten()
        for name, most in (("theirs", HALF), ("whole", SINGLE)):
            values = ask(browser, f"Array.from(models.{name}.forward({{ ids: {ids}, controls: {{}} }}).logits.values)")
            assert float((torch.tensor(values) - logits).abs().max() / logits.std()) < most
        written = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=24)[0, len(ids) :]
        said = ask(browser, f"models.theirs.translate({{ ids: {ids}, controls: {{}} }}).text")
        assert said == tokenizer.decode(written, skip_special_tokens=True)
    assert browser.faults() == []


METERS = """[...document.querySelector('.written ol.tokens')?.querySelectorAll('[role=meter]') ?? []]
    .map((meter) => Number(meter.getAttribute('aria-valuenow')))"""
"""How sure the model is of each token that it wrote, as the page shows it first."""


def test_the_written_page_shows_the_probabilities_of_transformers(
    checkpoint: Path, browser: Browser, tmp_path: Path
) -> None:
    """The file that the command writes, with the script that is shipped: of each token that the model writes."""
    page = tmp_path / "page.html"
    assert main(["explore", str(checkpoint), "--text", TEXTS[0], "--out", str(page), "--quiet"]) == 0
    browser.open(page, 1000)
    until = time.monotonic() + 120
    while not (shown := browser.evaluate(METERS)) and time.monotonic() < until:
        time.sleep(0.1)
    model = hf.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    ids = hf.AutoTokenizer.from_pretrained(checkpoint)(TEXTS[0])["input_ids"]
    written = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=len(shown))[0]
    with torch.no_grad():
        rows = model(written[None]).logits[0, len(ids) - 1 : -1].softmax(-1)
    assert shown and len(shown) == len(rows)
    assert shown == pytest.approx(rows.gather(1, written[len(ids) :, None]).flatten().tolist(), abs=HALF)
    told = browser.evaluate("document.querySelector('.compare').textContent")
    assert told.count("Not counted: which texts its training never saw is not known.") == 1
    assert browser.faults() == []


def test_a_page_of_it_says_what_runs_and_counts_nothing(checkpoint: Path) -> None:
    prepared = prepare_checkpoint(str(checkpoint), "theirs", "theirs", [])
    assert prepared.data["measured"] == [] and prepared.data["texts"] == list(EXAMPLES)
    page = make_page([prepared], "clockhands explore x")
    told = page[: page.index('<script type="application/json"')]
    assert "which continues text" in told and "It runs whole" in told


def convert(model: Any, tokenizer: Any = None) -> None:
    convert_checkpoint(Subject.of(model, tokenizer or make_tokenizer(starts=False)), "theirs")


def test_the_reason_for_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    opt = hf.OPTConfig(hidden_size=16, num_attention_heads=2, ffn_dim=16, num_hidden_layers=1, word_embed_proj_dim=16)
    cases = {
        "not of opt": hf.OPTForCausalLM(opt),
        "by the rule 'yarn'": hf.LlamaForCausalLM(hf.LlamaConfig(**_LLAMA, rope_parameters=_YARN)),
        "activation": hf.GPT2LMHeadModel(hf.GPT2Config(**_GPT2, activation_function="tanh")),
        "no language model": hf.GPT2Model(hf.GPT2Config(**_GPT2)),
        # A setting that no option of ours says is refused by its name.
        "scale_attn_by_inverse_layer_idx is True": hf.GPT2LMHeadModel(
            hf.GPT2Config(**_GPT2, scale_attn_by_inverse_layer_idx=True)
        ),
    }
    for reason, model in cases.items():
        with pytest.raises(UsageError, match=reason):
            convert(model.eval())
    monkeypatch.setattr(support, "LARGEST", 100)
    with pytest.raises(UsageError, match="and a page runs at most 100"):
        convert(make_model("gpt2"))


def test_what_computes_something_else_is_found_by_its_logits() -> None:
    """A change that no configuration tells: the weights of a layer are turned round when it is called."""
    model = make_model("gpt2")
    model.transformer.h[0].register_forward_pre_hook(lambda _, inputs: (inputs[0].flip(-1), *inputs[1:]))
    with pytest.raises(UsageError, match=r"computes something else: logits differ by up to \d"):
        convert(model)


def test_what_a_page_does_not_run_is_recorded_with_the_reason(tmp_path: Path) -> None:
    torch.manual_seed(0)
    hf.LlamaForCausalLM(hf.LlamaConfig(**_LLAMA, **IDS, rope_parameters=_YARN)).save_pretrained(tmp_path)
    make_tokenizer(starts=True).save_pretrained(tmp_path)
    recorded = prepare_checkpoint(str(tmp_path), "theirs", "theirs", ["Tom bit a dog"])
    assert not recorded.is_live
    assert recorded.data["reason"].startswith("It does not run in a page: its frequencies are changed by the rule")
    subject = open_subject(tmp_path)
    assert subject.tokenizer is not None
    offer = describe_offer(subject, str(tmp_path))
    assert (
        offer == f'clockhands explore {tmp_path} --text "..." writes a page that shows its attention in your sentences'
    )
    subject.tokenizer = None
    assert describe_offer(subject, str(tmp_path)) == ""


@pytest.mark.parametrize("texts", [[], ["Tom bit a dog"]])
@pytest.mark.parametrize("weight", ["lm_head.weight", "model.layers.0.self_attn.q_proj.weight"])
@torch.no_grad()
def test_a_model_whose_logits_overflow_is_refused(tmp_path: Path, weight: str, texts: list[str]) -> None:
    """A page was written: its logits "differ by up to nan", or without sentences nothing was run."""
    model = make_model("llama")
    model.get_parameter(weight).mul_(3e38)
    model.save_pretrained(tmp_path)
    make_tokenizer(starts=True).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="gives NaN or infinite numbers for random tokens"):
        prepare_checkpoint(str(tmp_path), "theirs", "theirs", texts)


@torch.no_grad()
def test_weights_beyond_half_precision_are_named(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.model.transformer.encoder.blocks[0].feed_forward.up.weight[0, 0] = 7e4
    with pytest.raises(UsageError, match=r"up to 65,504, and those of encoder.blocks.0.feed_forward.up.weight are"):
        describe_model(run, "key", "label", "task", [])


def test_inspect_offers_a_page_in_which_the_model_runs_and_counts_its_parameters_alike(checkpoint: Path) -> None:
    subject, prepared = open_subject(checkpoint), prepare_checkpoint(str(checkpoint), "theirs", "theirs", [])
    offer = describe_offer(subject, str(checkpoint))
    assert offer == f"clockhands explore {checkpoint} writes a page in which it runs and its positions can be changed"
    assert prepared.is_live and subject.count_parameters() == prepared.data["config"]["parameters"]


PAIRS = [Pair("Tom bit a dog.", "Tom mordis hundon."), Pair("ein-zwei  Straße", "one-two street!")]
SENTENCES = ["Tom bit a dog.", "  Straße\tund 12_3 Café, e\u0301t\u00e9!", "你好 x-y", "ein\nzwei", "😀 dog"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r" ?\w+| ?[^\s\w]|\s", r" ?[\p{L}\p{M}\p{N}\p{Pc}]+| ?[^\s\p{L}\p{M}\p{N}\p{Pc}]|\s"),
        (r"(?m).", r"[\s\S]"),
        (r"[\s\-]*(?:a\-b|c\ d|e\.)[^\w\s\-]*|(?m:.)", r"[\s\-]*(?:a-b|c d|e\.)[^\p{L}\p{M}\p{N}\p{Pc}\s\-]*|[\s\S]"),
        (r"x\#y\&z", "x#y&z"),
    ],
)
def test_a_pattern_is_rewritten(pattern: str, expected: str) -> None:
    assert translate_pattern(pattern) == expected


@pytest.mark.parametrize("kind", ["word", "character"])
def test_javascript_cuts_as_the_tokenizer_does(kind: str) -> None:
    """With Node, where there is one: the pieces of texts of many scripts."""
    if shutil.which("node") is None:
        pytest.skip("there is no node to run the pattern")
    tokenizer = train_tokenizers(Corpus("few", "translation", {"train": PAIRS}), kind=kind).source
    rules = read_rules(tokenizer)
    code = (
        f"const texts = {json.dumps(SENTENCES)}, rules = {json.dumps(rules)};"
        "console.log(JSON.stringify(texts.map((text) => "
        '[...(rules.prefix + text.normalize("NFC")).matchAll(new RegExp(rules.pattern, "gu"))].map((one) => one[0]))))'
    )
    pieces = json.loads(subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True).stdout)
    backend = tokenizer.backend_tokenizer
    for text, ours in zip(SENTENCES, pieces, strict=True):
        theirs = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))
        assert ours == [piece for piece, _ in theirs]


def test_rules_and_tokens_are_those_of_the_tokenizer() -> None:
    tokenizers = train_tokenizers(Corpus("few", "translation", {"train": PAIRS}), kind="word", lowercase=True)
    rules = read_rules(tokenizers.source)
    assert (rules["nfc"], rules["nfkc"], rules["lowercase"], rules["prefix"]) == (True, False, True, " ")
    assert (rules["unknownId"], rules["endId"], rules["stripsSpace"]) == (3, 2, True)
    tokens = describe_tokens(tokenizers.source, len(tokenizers.source) + 1)
    assert tokens.pop() == {"text": "", "special": True}, "an embedding that no token has"
    assert [token["text"] for token in tokens] == tokenizers.source.convert_ids_to_tokens(list(range(len(tokens))))
    assert [token["special"] for token in tokens[:5]] == [True, True, True, True, False]
    assert list(find_tokenizer_faults(tokenizers)) == []


def test_a_tokenizer_of_pieces_is_named() -> None:
    tokenizers = train_tokenizers(Corpus("few", "translation", {"train": PAIRS}), kind="unigram")
    (fault,) = find_tokenizer_faults(tokenizers)
    assert "of the kind Unigram" in fault


def test_byte_pairs_are_their_merges() -> None:
    tokenizer = train_tokenizers(Corpus("few", "translation", {"train": PAIRS}), kind="bpe", vocabulary=300).source
    rules = read_rules(tokenizer)
    assert (rules["prefix"], rules["stripsSpace"], rules["endId"]) == (" ", True, 2)
    assert len(rules["merges"]) == 300 - 256 - 4 and all(len(merge) == 2 for merge in rules["merges"])
