"""What is not understood is refused before weights are read; all else opens as it was saved."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers as hf

from clockhands.data import open_corpus, train_tokenizer
from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.inspection import inspect
from clockhands.inspection.reading.reading import _find_influence
from clockhands.inspection.reading.sentences import NOUNS, VERBS
from clockhands.models import choose_class, find_task, refuse_unknown_positions
from clockhands.models.door import _open_training_corpus, open_subject, open_tokenizer
from tests.inspection.tiny import tiny
from tests.shared import Logged

UNKNOWN: dict[str, Any] = {"rope_type": "spiral", "factor": 2.0}


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ({"rope_scaling": {"type": "spiral"}}, "rope_scaling.type"),
        ({"rope_parameters": {"full_attention": UNKNOWN}}, "rope_parameters.full_attention.rope_type"),
        ({"text_config": {"rope_scaling": UNKNOWN}}, "text_config.rope_scaling.rope_type"),
        ({"text_config": {"rope_parameters": {"full_attention": UNKNOWN}}},
         "text_config.rope_parameters.full_attention.rope_type"),
    ],
)  # fmt: skip
def test_an_unknown_rope_type_is_named_wherever_it_lies(raw: dict[str, Any], key: str) -> None:
    with pytest.raises(CheckpointError, match=f"there sets {key} = 'spiral'; the rope types understood are .*yarn"):
        refuse_unknown_positions(raw, "there")


def test_known_rope_types_and_those_of_images_pass() -> None:
    refuse_unknown_positions({"text_config": {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}}, "there")
    refuse_unknown_positions({"vision_config": {"rope_parameters": UNKNOWN}, "notes": {"rope_type": "spiral"}}, "there")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, ("causal", True)),
        ({"model_type": "gpt2", "architectures": ["GPT2Model"]}, ("causal", False)),
        ({"model_type": "gpt2"}, ("causal", True)),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, ("masked", True)),
        ({"model_type": "bert", "architectures": ["BertForPreTraining"]}, ("masked", True)),
        ({"model_type": "bert", "architectures": ["BertLMHeadModel"], "is_decoder": True}, ("causal", True)),
        ({"model_type": "bert", "architectures": ["BertModel"]}, ("masked", False)),
        ({"model_type": "flaubert", "architectures": ["FlaubertWithLMHeadModel"]}, ("masked", True)),
        ({"model_type": "electra", "architectures": ["ElectraForPreTraining"]}, ("masked", False)),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
         ("seq2seq", True)),
        ({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"]}, ("causal", True)),
        ({"model_type": "theirs", "architectures": ["M"], "auto_map": {"AutoModelForCausalLM": "modelling.M"}},
         ("causal", True)),
        ({"model_type": "theirs", "architectures": ["M"], "auto_map": {"AutoModelForCausalLM": "a/b--m.M"}},
         ("causal", True)),
        ({"model_type": "theirs", "architectures": ["M"], "auto_map": {"AutoModel": "modelling.M"}},
         ("causal", False)),
    ],
)  # fmt: skip
def test_the_declared_class_says_what_a_model_is_for(keys: dict[str, Any], expected: tuple[str, bool]) -> None:
    config = SimpleNamespace(**{"architectures": None, **keys})
    assert find_task(config) == expected


@pytest.mark.parametrize(
    ("kind", "saved_from", "opener"),
    [
        ("gpt2", "GPT2LMHeadModel", "AutoModelForCausalLM"),
        ("gpt2", "GPT2Model", "AutoModel"),
        ("flaubert", "FlaubertWithLMHeadModel", "AutoModelForMaskedLM"),
        ("gemma3", "Gemma3ForConditionalGeneration", "AutoModelForCausalLM"),  # which opens that very class
        ("qwen2_vl", "Qwen2VLForConditionalGeneration", "AutoModelForMultimodalLM"),  # no causal class at all
        ("qwen3_5", "Qwen3_5ForConditionalGeneration", "AutoModelForMultimodalLM"),  # the causal one is its text part
        ("qwen3_5", "Qwen3_5ForCausalLM", "AutoModelForCausalLM"),
    ],
)
def test_a_model_is_opened_as_the_class_that_it_was_saved_from(kind: str, saved_from: str, opener: str) -> None:
    assert choose_class(SimpleNamespace(model_type=kind, architectures=[saved_from])).__name__ == opener


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny("bert").save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def _change(folder: Path, **keys: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))
    return folder


def test_a_folder_opens_with_its_weights(folder: Path) -> None:
    subject = open_subject(folder)
    assert subject.mechanisms == ("learned",)
    assert subject.tokenizer is None
    torch.testing.assert_close(subject.read_token_table(), tiny("bert").get_input_embeddings().weight.detach())
    assert not _find_influence(subject.forward, torch.randint(3, 97, (4, 8))).causal


def test_a_hub_name_that_cannot_be_had(capsys: pytest.CaptureFixture[str], logged: Logged) -> None:
    with pytest.raises(CheckpointError, match="neither a folder here nor a model that the hub gives"):
        open_subject("nobody-at-all/no-such-model")
    assert capsys.readouterr().err == "", "one message, not one for each attempt"
    assert not [record for record in logged.records if record.name.startswith("huggingface_hub")]


def _pickle(folder: Path) -> None:
    torch.save({}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


THEIRS = {"AutoConfig": "configuration.C", "AutoModel": "modelling.M"}
HUGE = {"hidden_size": 2**17, "num_attention_heads": 2**10, "num_hidden_layers": 64, "intermediate_size": 2**19}
"""Some 10^13 parameters, counted from config.json alone: the weights that lie beside it are small."""


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (shutil.rmtree, "there is no folder"),
        (lambda folder: (folder / "config.json").write_text("{not json"),
         r"cannot read .*config\.json: it is not JSON"),
        (lambda folder: _change(folder, position_embedding_type="relative_key"), "embedding_type = 'relative_key'"),
        (lambda folder: _change(folder, rope_scaling=UNKNOWN), "rope_type = 'spiral'; the rope types understood are"),
        (_pickle, r"only as pickle \(pytorch_model\.bin\).*can run any code"),
        (lambda folder: (folder / "model.safetensors").unlink(), "holds no weights"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"broken"), "is no safetensors file"),
        (lambda folder: _change(folder, model_type="theirs", auto_map=THEIRS), "--trust-remote-code"),
        (lambda folder: _change(folder, model_type="theirs"), "model_type 'theirs', which transformers does not know"),
        (lambda folder: _change(folder, **HUGE),
         r"needs \d{5,}\.\d GiB for its weights and more to run, and .* are free"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused_before_weights_are_read(folder: Path, spoil: Any, message: str) -> None:
    spoil(folder)
    with pytest.raises(CheckpointError, match=message):
        open_subject(folder)


def test_alibi_that_cannot_be_left_out(tmp_path: Path) -> None:
    tiny("mpt").save_pretrained(tmp_path)
    assert open_subject(tmp_path).mechanisms == ("alibi",)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf8"))
    with pytest.raises(CheckpointError, match=r"attn_config\.alibi = False; transformers ignores that"):
        open_subject(_change(tmp_path, attn_config={**config["attn_config"], "alibi": False}))


def test_a_run_is_measured_on_what_it_was_trained_on(tmp_path: Path) -> None:
    assert _open_training_corpus(tmp_path) is None
    (tmp_path / "recipe.toml").write_text('[data]\ncorpus = "numbers"\nsource = "de"\ntrain = 50\nlonger = 9\n')
    corpus = _open_training_corpus(tmp_path)
    assert corpus is not None
    assert corpus.sources("train") == open_corpus("numbers", source="de", train=50).sources("train")


def test_no_data_set_of_the_hub_is_opened_to_look_into_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def load(*given: object) -> dict[str, list[dict[str, str]]]:
        asked.append(given)
        return {"train": [{"source": f"zwei {n}", "target": f"two {n}"} for n in range(100)]}

    monkeypatch.setattr("clockhands.data.sources.load_data_set", load)
    for dataset, opened in (("somebody/tracker", 0), (str(tmp_path), 1)):
        (tmp_path / "recipe.toml").write_text(f'[data]\ncorpus = "huggingface"\ndataset = "{dataset}"\n')
        assert (_open_training_corpus(tmp_path) is not None) == bool(opened)
        assert len(asked) == opened


def test_a_tokenizer_that_is_larger_than_the_embedding_is_one_sentence_before_anything_is_measured() -> None:
    model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=64)).eval()
    words = [f"word{i}" for i in range(100)]
    tokenizer = train_tokenizer([" ".join(words)] * 2, kind="word", task="language modelling")
    with pytest.raises(DataError) as fault:
        inspect(model, tokenizer, [" ".join(words) for _ in range(20)], control=False)
    assert "has 40 rows of tokens (ids 0 to 39) and was given the id" in str(fault.value)
    assert "give the model's own tokenizer (--tokenizer NAME, tokenizer=...)" in str(fault.value)


def test_sentences_of_ids_that_a_model_does_not_know_leave_out_one_measure() -> None:
    """The text itself has only ids that the model knows; the English sentences have others."""
    english = [f"{first} {verb} {second}." for first in NOUNS for verb in VERBS for second in NOUNS]
    tokenizer = train_tokenizer(english, kind="word", task="language modelling")
    model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=15, n_embd=16, n_layer=1, n_head=2, n_positions=64)).eval()
    ids = torch.randint(3, 15, (8, 20), generator=torch.Generator().manual_seed(0))
    found = inspect(model, tokenizer, ids, control=False)
    assert found["cause.swap"].light == "skip"
    assert "the tokenizer belongs to another model" in found["cause.swap"].verdict
    assert found["loudness"].light != "skip"


@pytest.mark.parametrize("model_type", ["gpt2", "bert", "t5", "deberta-v2", "xlnet", "gemma"])
def test_what_transformers_makes_of_a_folder_without_a_tokenizer_is_none(tmp_path: Path, model_type: str) -> None:
    """It makes one of special tokens, T5's with one more token; DeBERTa's, with two numbers more, was taken for one."""
    hf.AutoConfig.for_model(model_type).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="holds no tokenizer: none of its files lists any tokens"):
        open_tokenizer(tmp_path)


def test_why_a_tokenizer_could_not_be_opened_is_told_once_text_needs_one(folder: Path) -> None:
    (folder / "vocab.txt").write_bytes(b"\xff\xfe broken")
    subject = open_subject(folder)
    assert subject.tokenizer is None and subject.tokenizer_fault
    reason = re.escape(subject.tokenizer_fault)
    message = f"text needs a tokenizer, and this model came without one that can be opened .{reason}.; give one"
    with pytest.raises(UsageError, match=message):
        inspect(subject, texts=["some text"], control=False)
    with pytest.raises(UsageError, match=f"--sentence needs a tokenizer.*{reason}"):
        inspect(subject, ids=torch.randint(3, 97, (8, 12)), sentences=["two words"], control=False)
