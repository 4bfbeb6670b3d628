"""Models in half precision are measured in float32, and stay as they are; damaged ones are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from clockhands.errors import CheckpointError
from clockhands.inspection import inspect
from clockhands.models.subject import Subject
from tests.inspection import planted
from tests.inspection.tiny import VOCAB, tiny


def _ids() -> torch.Tensor:
    return torch.randint(7, VOCAB, (12, 20), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["gpt2", "llama", "bart"])
def test_a_model_in_float16_is_measured_as_its_weights_in_float32(name: str) -> None:
    """Queries and keys so large that their products overflow float16."""
    model = tiny(name)
    with torch.no_grad():
        for label, weight in model.named_parameters():
            if "c_attn" in label or "q_proj" in label or "k_proj" in label:
                weight.mul_(120)
    narrow = model.half()
    kept = {label: weight.clone() for label, weight in narrow.state_dict().items()}
    found = inspect(narrow, texts=_ids(), control=False, name="m")
    assert next(narrow.parameters()).dtype == torch.float16
    assert all(torch.equal(weight, kept[label]) for label, weight in narrow.state_dict().items())
    for item in found:
        assert "nan" not in item.verdict and "inf " not in item.verdict, item.verdict
    wide = inspect(narrow.float(), texts=_ids(), control=False, name="m")
    assert [item.verdict for item in found] == [item.verdict for item in wide]
    assert found.facts["precision"] == "float32; the weights are float16"
    assert "precision" not in wide.facts


def test_float64_stays_float64() -> None:
    subject = Subject.of(tiny("gpt2").double())
    assert subject.to_float32() is subject


def test_what_a_model_shares_its_copy_shares_too() -> None:
    model = hf.BartModel(hf.BartConfig(vocab_size=50, d_model=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
        max_position_embeddings=32)).half()  # fmt: skip
    copy = Subject.of(model, side="decoder").to_float32()
    assert copy.encoder_decoder is not None and copy.encoder_decoder is not model
    assert copy.model is copy.encoder_decoder.get_decoder()
    own = Subject.of(planted.uniform().half()).to_float32()
    assert own.model is own.transformer.encoder  # type: ignore[attr-defined]
    assert next(own.model.parameters()).dtype == torch.float32


def test_states_that_are_no_numbers_are_refused_with_their_layer() -> None:
    model = tiny("gpt2")
    with torch.no_grad():
        model.h[1].mlp.c_proj.bias[3] = torch.inf
    with pytest.raises(CheckpointError, match="GPT2Model gives NaN or infinite hidden states after layer 2"):
        inspect(model, texts=_ids(), control=False)


def test_an_encoder_without_a_configuration_is_drawn_again_with_its_whole_model() -> None:
    """FSMT's encoder has no configuration; an encoder of BART has, and is drawn alone."""
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    fsmt = hf.FSMTModel(hf.FSMTConfig(langs=["a", "b"], src_vocab_size=9, tgt_vocab_size=9, **sizes))
    for model in (fsmt, tiny("bart")):
        subject = Subject.of(model, side="encoder")
        fresh = subject.build_untrained(seed=1)
        assert type(fresh.model) is type(subject.model)
        assert (fresh.encoder_decoder is None) == (subject.encoder_decoder is None)
        again = subject.build_untrained(seed=1)
        first, second, other = (
            torch.cat([p.flatten() for p in one.model.parameters()])
            for one in (fresh, again, subject.build_untrained(seed=2))
        )
        assert torch.equal(first, second) and not torch.equal(first, other)


def test_what_enters_without_a_table_is_told_by_what_the_model_shows() -> None:
    """A model of which nothing is known, and whose table was not found: its input depends on the position, or not."""
    subject: Any = Subject.of(tiny("bert"))
    subject.table, subject.mechanisms = None, ()
    assert subject.explain_missing_table("Nothing.") == (
        "Position enters the input of a BertModel, but not as the rows of one table that are added."
    )
    with torch.no_grad():
        subject.model.embeddings.position_embeddings.weight.zero_()
    assert subject.explain_missing_table("Nothing.") == (
        "Nothing. What a BertModel adds at its input is the same at every position."
    )
    assert subject.mechanism_sentence.startswith("How position enters is not known for this architecture;")


def test_the_precisions_of_a_model_that_mixes_them_are_all_told() -> None:
    """That of the first weight was: with an output layer in float16, all weights were said to be in float32."""
    config = hf.GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=64, tie_word_embeddings=False)
    model = hf.GPT2LMHeadModel(config).eval()
    model.lm_head.half()
    found = inspect(model, ids=torch.randint(3, 40, (8, 12)), control=False)
    assert found.facts["precision"] == "float32; the weights are float16 and float32"
