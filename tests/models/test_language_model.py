"""Any causal model is opened with its tokenizer; what is none is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, LlamaModel, T5Config, T5ForConditionalGeneration

from clockhands.errors import CheckpointError, UsageError
from clockhands.models import find_trained_length, is_run, open_language_model
from clockhands.models.language_model import find_position_table
from clockhands.models.streaming import is_streamed
from tests.inspection.tiny import CONFIGS, tiny
from tests.runs.tiny import LENGTH, make_config, make_tokenizer, save_masked_model, save_model


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mpt"])
def test_the_logits_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path, kind)
    model = open_language_model(folder)
    ids_BS = torch.arange(3, 23)[None]
    with torch.inference_mode():
        theirs = AutoModelForCausalLM.from_pretrained(folder).eval()(input_ids=ids_BS).logits
    torch.testing.assert_close(model.compute_logits(ids_BS), theirs)
    assert model.trained_length == LENGTH == find_trained_length(folder)
    assert model.max_length == (LENGTH if kind == "gpt2" else None)
    assert not is_run(folder)


def test_weights_may_stay_in_their_files(tmp_path: Path) -> None:
    folder = save_model(tmp_path, "llama")
    ids_BS = torch.arange(3, 23)[None]
    streamed = open_language_model(folder, weights="streamed")
    assert is_streamed(streamed.model)
    torch.testing.assert_close(streamed.compute_logits(ids_BS), open_language_model(folder).compute_logits(ids_BS))


def test_what_stands_before_every_text_is_found(tmp_path: Path) -> None:
    assert open_language_model(save_model(tmp_path / "plain", "llama")).start_ids == ()
    assert open_language_model(save_model(tmp_path / "started", "llama", start=True)).start_ids == (2,)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_text_longer_than_the_table_is_refused(tmp_path: Path, frozen: bool) -> None:
    model = open_language_model(save_model(tmp_path, "gpt2"))
    model.model.requires_grad_(not frozen)
    with pytest.raises(UsageError, match="has a table of 32 positions, and the window has 40 tokens"):
        model.compute_logits(torch.arange(40)[None])


def test_sinusoids_are_no_learned_table_whether_trainable_or_not() -> None:
    """In transformers 5 those of DistilBERT have a gradient."""
    model = AutoModel.from_config(CONFIGS["distilbert-sinusoid"]())
    assert find_position_table(model) is find_position_table(model.requires_grad_(False)) is None
    assert find_position_table(tiny("distilbert").requires_grad_(False)) is not None


def test_a_model_that_continues_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\(BertForMaskedLM\) does not continue text; .*AutoModelForCausalLM$"):
        open_language_model(save_masked_model(tmp_path / "bert"))
    config = T5Config(vocab_size=100, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path / "t5")
    with pytest.raises(UsageError, match=r"does not continue text; .*or one that fills in masked tokens"):
        open_language_model(tmp_path / "t5", masked=True)
    LlamaModel(make_config("llama")).save_pretrained(tmp_path / "headless")
    make_tokenizer().save_pretrained(tmp_path / "headless")
    with pytest.raises(UsageError, match=r"\(LlamaModel\) was saved without its output layer"):
        open_language_model(tmp_path / "headless")


def test_the_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path, "llama")
    larger = make_tokenizer()
    larger.add_tokens([f"word{n}" for n in range(9)])
    larger.save_pretrained(folder)
    with pytest.raises(CheckpointError, match="has ids up to 107, and the model has 100 embeddings"):
        open_language_model(folder)


def test_code_that_comes_with_a_model_runs_where_it_is_trusted_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a folder is a run was asked in a way that refused such a folder before trust was looked at."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = save_model(tmp_path / "theirs", "llama")
    raw = json.loads((folder / "config.json").read_text())
    raw |= {"model_type": "theirs", "architectures": ["TheirsForCausalLM"]}
    raw["auto_map"] = {"AutoConfig": "theirs.TheirConfig", "AutoModelForCausalLM": "theirs.TheirsForCausalLM"}
    (folder / "config.json").write_text(json.dumps(raw))
    (folder / "theirs.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n\n\n"
        "class TheirConfig(LlamaConfig):\n    model_type = 'theirs'\n\n\n"
        "class TheirsForCausalLM(LlamaForCausalLM):\n    config_class = TheirConfig\n"
    )
    assert not is_run(folder)
    with pytest.raises(CheckpointError, match=r"brings its own code .*--trust-remote-code"):
        open_language_model(folder)
    opened = open_language_model(folder, trust_remote_code=True)
    ids_BS = torch.arange(3, 23)[None]
    plain = open_language_model(save_model(tmp_path / "plain", "llama"))
    torch.testing.assert_close(opened.compute_logits(ids_BS), plain.compute_logits(ids_BS))


def test_a_table_of_settings_that_says_no_length_has_none(tmp_path: Path) -> None:
    folder = save_model(tmp_path, "mpt")
    raw = json.loads((folder / "config.json").read_text())
    del raw["max_seq_len"]
    (folder / "config.json").write_text(json.dumps(raw))
    assert find_trained_length(folder) is None
