"""What is given to the encoder of a pair while its decoder is checked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import transformers

from clockhands.checking.checks.check import select
from clockhands.checking.models.huggingface import HFModel, _vocabularies, fixed_source
from clockhands.checking.models.make_subjects import from_model
from clockhands.checking.models.tiny import build_model, find, tiny_config
from clockhands.checking.verdict.judge import run_checks
from clockhands.model.huggingface_base import CACHE_NAME, name_cache


def test_every_row_gets_the_same_text_of_sixteen_tokens_and_so_it_stays() -> None:
    adapter: Any = SimpleNamespace(opposite=30)
    source = fixed_source(adapter, 3)
    assert source.shape == (3, 16)
    assert torch.equal(source[0], source[2]) and torch.equal(source, fixed_source(adapter, 3))
    assert int(source.min()) >= 10 and int(source.max()) < 30, "low ids are special tokens"


def test_a_model_may_write_other_tokens_than_it_reads() -> None:
    """FSMT has a vocabulary for each language; a model that continues text has one."""
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    config = transformers.FSMTConfig(langs=["a", "b"], src_vocab_size=9, tgt_vocab_size=11, **sizes)
    assert _vocabularies(transformers.FSMTForConditionalGeneration(config), "seq2seq") == (11, 9)
    gpt2 = transformers.GPT2Config(vocab_size=13, n_embd=8, n_layer=1, n_head=2)
    assert _vocabularies(transformers.GPT2LMHeadModel(gpt2), "causal") == (13, 13)


def test_an_encoder_that_refuses_a_cache_is_not_given_one() -> None:
    """Switch Transformers does not name ``use_cache`` and hands it on to its encoder too."""
    (build,) = find("switch_transformers")
    subject, *_ = from_model(build_model(tiny_config(build), "seq2seq"))
    outcomes = run_checks(subject, select(["cache.steps", "cache.reorder", "inputs.encoder_outputs"]))
    assert [outcome.verdict for outcome in outcomes] == ["PASS"] * 3


def test_the_cache_has_the_name_of_the_model_s_own_forward() -> None:
    """Code from outside may keep the older name; the dict that XLM calls ``cache`` is none that it returns."""

    class Older(transformers.LlamaForCausalLM):
        def forward(self, input_ids: Any = None, past_key_values: Any = None, **rest: Any) -> Any:
            self.given = past_key_values
            return super().forward(input_ids, **rest, **name_cache(past_key_values))

    sizes = {"vocab_size": 32, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=2)
    older = HFModel(Older(config), "causal")
    assert HFModel(transformers.LlamaForCausalLM(config), "causal").cache_name == CACHE_NAME
    assert older.cache_name == "past_key_values"
    held, ids = older.new_cache(), torch.arange(10, 16)[None]
    pieces = [older.logits(ids[:, :4], cache=held), older.logits(ids[:, 4:], cache=held)]
    torch.testing.assert_close(torch.cat(pieces, 1), older.logits(ids))
    assert held.state.get_seq_length() == 6 and older.module.given is None
    older.logits(ids[:, :1], cache=held)
    assert older.module.given is held.state, "it is passed by the name that the model's own code looks at"
    xlm = transformers.XLMConfig(vocab_size=32, emb_dim=8, n_layers=1, n_heads=2)
    assert HFModel(transformers.XLMWithLMHeadModel(xlm), "causal").cache_name is None
