"""CTranslate2 writes what ``generate`` writes; a model that it cannot express is refused with reasons."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clockhands.errors import PositionError, UsageError
from clockhands.generation import DecodedSequence, Search, translate
from clockhands.generation.engines import TransformersEngine
from clockhands.generation.engines.ctranslate import (
    TABLE_LENGTH,
    CTranslate2Engine,
    list_obstacles,
    make_table,
    save_model,
)
from clockhands.generation.translate import LARGEST_PENALTY, choose_engine
from clockhands.model import TransformerConfig
from clockhands.model.huggingface import ClockhandsForCausalLM
from clockhands.model.huggingface_base import ClockhandsConfig
from clockhands.runs import Run
from clockhands.schemes import CATALOGUE, RoPE
from tests.generation.engines.writers import END, LONGEST, VOCABULARY, side_of_reading, sources, writer

pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")

EXPRESSIBLE = {"rope"} | {name for name in CATALOGUE if CATALOGUE[name].hooks() <= {"encode"}}
"""The schemes that the engine can express: RoPE, and those that act at the embedding alone."""
BLOCKS: list[dict[str, Any]] = [
    {"norm": "post"},
    {"norm": "post", "final_norm": True, "activation": "gelu", "ffn_bias": False},
    {"norm": "pre", "norm_kind": "rms", "gated": True, "activation": "silu"},
    {"norm": "pre", "num_kv_heads": 1, "attention_bias": True, "head_dim": 24},
    {"norm": "pre", "final_norm": False, "norm_bias": False, "activation": "gelu-tanh", "norm_eps": 0.1},
    {"embedding_norm": True, "token_scale": "one", "attention_scale": 0.5, "output_scale": 0.9},
]


def check_alike(
    model: Any, ids_BT: torch.Tensor, mask_BT: torch.Tensor | None, *decoding: float, engine: Any = None
) -> None:
    """Both engines write the same with a model, and score it alike."""
    options: Any = decoding or (LONGEST,)
    got = (engine or CTranslate2Engine(model)).generate(ids_BT, mask_BT, *options)
    wanted = TransformersEngine(model).generate(ids_BT, mask_BT, *options)
    assert [one.tokens for one in got] == [one.tokens for one in wanted]
    assert [one.log_probability for one in got] == pytest.approx([one.log_probability for one in wanted], abs=1e-3)


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_every_scheme_is_written_alike_or_refused_by_name(name: str) -> None:
    model = writer(name, encoder=side_of_reading(name))
    if name in EXPRESSIBLE:
        check_alike(model, *sources())
        return
    with pytest.raises(UsageError, match=repr(name)):
        CTranslate2Engine(model)


def test_a_scheme_that_is_made_of_rope_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """CTranslate2 would rotate by RoPE's own frequencies, without a word."""
    made = writer("rope")
    monkeypatch.setattr(made.transformer.decoder.schemes.at_input, "__class__", type("Slower", (RoPE,), {}))
    assert any("plain rotary embedding only" in reason for reason in list_obstacles(made.transformer))


def test_rotated_values_are_refused() -> None:
    with pytest.raises(UsageError, match=r"decoder: positions of the scheme 'rope' .*plain rotary embedding only"):
        CTranslate2Engine(writer("none", decoder={"scheme": "rope", "values": True}))


@pytest.mark.parametrize("scheme", ["sinusoidal", {"scheme": "rope", "layout": "interleaved", "base": 100.0}])
@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_is_written_alike(block: dict[str, Any], scheme: Any) -> None:
    model = writer(scheme, **block)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.05)
    check_alike(model, *sources())


@pytest.mark.parametrize("penalty", [-LARGEST_PENALTY, LARGEST_PENALTY])
def test_the_log_probability_is_the_model_s_under_every_penalty(penalty: float) -> None:
    model = writer()
    ids_BT, mask_BT = sources()
    for row, text in enumerate(CTranslate2Engine(model).generate(ids_BT, mask_BT, LONGEST, 2, penalty)):
        with torch.no_grad():
            read = model(ids_BT[[row]], mask_BT[[row]], labels=torch.tensor([text.tokens]))
        assert text.log_probability == pytest.approx(-float(read.loss) * len(text.tokens), abs=1e-3)


@pytest.mark.parametrize("penalty", [1.0, 0.4])
def test_beams_are_alike_where_no_text_ends_by_itself(penalty: float) -> None:
    """When a source is done is the engine's own rule; what is likeliest is not."""
    model = writer()
    model.transformer.output.bias.data[END] = -100.0
    check_alike(model, *sources(), LONGEST, 3, penalty)


def test_a_text_longer_than_the_first_table() -> None:
    model = writer()
    torch.manual_seed(0)
    ids_BT = torch.randint(3, VOCABULARY, (1, TABLE_LENGTH + 30))
    engine = CTranslate2Engine(model)
    check_alike(model, ids_BT[:, :4], None, engine=engine)
    check_alike(model, ids_BT, None, engine=engine)


def test_the_end_of_a_learned_table() -> None:
    model = writer({"scheme": "learned", "max_length": 12})
    model.transformer.output.bias.data[END] = 11.0
    ids_BT, mask_BT = sources()
    engine = CTranslate2Engine(model)
    ends = [len(text.tokens) < 12 for text in TransformersEngine(model).generate(ids_BT, mask_BT, 12)]
    assert any(ends)
    check_alike(model, ids_BT[ends], mask_BT[ends], 50, engine=engine)  # those that end in time
    with pytest.raises(PositionError, match="outside the 12 positions"):
        engine.generate(torch.full((1, 13), 5), None, 3)
    model.transformer.output.bias.data[END] = -100.0
    endless = CTranslate2Engine(model)
    assert len(endless.generate(ids_BT, mask_BT, 12)[0].tokens) == 12
    with pytest.raises(PositionError, match="position 12 is outside the 12 positions of learned"):
        endless.generate(ids_BT, mask_BT, 13)


def test_all_reasons_are_named() -> None:
    added = {"scheme": "sinusoidal", "every_layer": True, "skip_every": 2, "transform": "scaled"}
    beside = {"scheme": "sinusoidal", "combine": "concatenate", "width": 8}
    with pytest.raises(UsageError) as fault:
        CTranslate2Engine(
            writer(added, decoder=beside, residual=False, causal_encoder=True, output_transform=True, cross="alibi")
        )
    for reason in (
        "residual = false", "causal_encoder", "output_transform", "encoder: positions that are added again",
        "skip_every", "scaled", "decoder: positions that are not added but concatenated",
        "cross-attention: positions of the scheme 'alibi'",
    ):  # fmt: skip
        assert reason in str(fault.value)
    projected = {"scheme": "sinusoidal", "combine": "project", "width": 8}
    with pytest.raises(UsageError, match="decoder: positions that are not added but projected"):
        CTranslate2Engine(writer(decoder=projected))


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        # CTranslate2 would end its texts at another token, where ``generate`` goes on.
        (("eos_token_id",), r"no token that ends a text \(eos_token_id\)"),
        (("decoder_start_token_id", "bos_token_id"), "no token that a translation begins with"),
    ],
)
def test_a_model_without_its_tokens_is_refused_before_the_first_batch(names: tuple[str, ...], reason: str) -> None:
    model = writer()
    for name in names:
        setattr(model.config, name, None)
    with pytest.raises(UsageError, match=reason):
        CTranslate2Engine(model)


def test_a_run_is_translated_by_either_engine(translator: Run) -> None:
    texts = ["Tom saw Anna", "Anna saw Tom", "", "Anna saw Anna"]
    ours = list(translate(translator, texts, Search(engine="transformers")))
    theirs = list(translate(translator, texts, Search(engine="ctranslate2")))
    assert [one.text for one in ours] == [one.text for one in theirs]
    assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-4)


def test_integers_of_eight_bits_are_really_used(translator: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """How near their results are is decided by the processor: without VNNI sums of two products saturate at 16 bits."""
    types, generate = [], CTranslate2Engine.generate

    def watched(self: CTranslate2Engine, *given: Any, **options: Any) -> list[DecodedSequence]:
        written = generate(self, *given, **options)
        types.append(self.translator.compute_type)
        return written

    monkeypatch.setattr(CTranslate2Engine, "generate", watched)
    texts = ["Tom saw Anna", "Anna saw Tom"]
    plain, coarse = (
        list(translate(translator, texts, Search(engine="ctranslate2", compute_type=kind)))
        for kind in ("float32", "int8")
    )
    assert types[0] == "float32" and types[-1].startswith("int8") and len(set(types)) == 2
    for one, other in zip(plain, coarse, strict=True):
        assert math.isfinite(other.score) and other.score < 0
        assert abs(one.score - other.score) > 1e-6, "the numbers were not rounded"


def test_faults(translator: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="unknown engine 'ctranslate'; did you mean 'ctranslate2'"):
        Search(engine="ctranslate")
    with pytest.raises(UsageError, match="compute_type is 'int8', but the engine transformers"):
        translate(translator, ["Tom"], Search(engine="transformers", compute_type="int8"))
    with pytest.raises(UsageError, match="compute_type is int8, but no engine is given; name one of"):
        Search(compute_type="int8")
    with pytest.raises(UsageError, match="unknown compute type of CTranslate2 on this cpu 'int7'; did you mean 'int8'"):
        next(translate(translator, ["Tom"], Search(engine="ctranslate2", compute_type="int7")))
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(UsageError, match=r"extra 'workbench'.*pip install '\.\[workbench\]'"):
        next(translate(translator, ["Tom"], Search(engine="ctranslate2")))


def test_the_faster_engine_is_chosen_only_where_both_write_the_same() -> None:
    assert choose_engine(writer("rope"), 1) == "ctranslate2"
    assert choose_engine(writer("rope"), 4) == "transformers", "its beams stop earlier"
    assert choose_engine(writer("alibi"), 1) == "transformers", "it has no such positions"
    assert choose_engine(writer("rope").bfloat16(), 1) == "transformers", "it would compute in another type"


def make_decoder_table(scheme: Any, length: int) -> Any:
    model: Any = writer(scheme).model
    return make_table(model.decoder, length, model.config.d_model)


def test_a_table_holds_what_is_added_at_each_position() -> None:
    """Vaswani et al. 2017, section 3.5: sin and cos of t / 10000^(2i/d)."""
    table_NC = make_decoder_table("sinusoidal", 5)
    width = table_NC.shape[1]
    angle = 3 / 10_000 ** (2 / width)
    assert len(table_NC) == 5
    assert table_NC[3, 2:4] == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-6)
    assert table_NC[0, :4] == pytest.approx([0, 1, 0, 1])


def test_nothing_is_added_where_the_scheme_acts_in_attention_and_a_learned_table_is_not_made_longer() -> None:
    assert not np.any(make_decoder_table("rope", 3))
    with pytest.raises(PositionError, match="outside the 12 positions"):
        make_decoder_table({"scheme": "learned", "max_length": 12}, 13)


def test_token_ids_are_the_words_of_the_vocabulary(tmp_path: Path) -> None:
    save_model(writer(), tmp_path, (8, 8))
    words = json.loads((tmp_path / "shared_vocabulary.json").read_text("utf8"))
    assert words == [str(token) for token in range(VOCABULARY)]


def test_a_language_model_is_refused(tmp_path: Path) -> None:
    config = TransformerConfig.from_dict({
        "kind": "decoder", "d_model": 8, "num_heads": 2, "d_ff": 8, "decoder_layers": 1, "vocab_size": 9,
    })  # fmt: skip
    model = ClockhandsForCausalLM(ClockhandsConfig(config.to_dict()))
    with pytest.raises(UsageError, match="its architecture is 'decoder'"):
        save_model(model, tmp_path)
