"""The files that CTranslate2 reads hold the positions and the vocabularies of the model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from clockhands.errors import PositionError, UsageError
from clockhands.generation.engines.ctranslate_model import make_table, save_model
from clockhands.model import Transformer, TransformerConfig
from clockhands.model.huggingface import ClockhandsForCausalLM
from clockhands.model.huggingface_config import ClockhandsConfig
from tests.generation.engines.test_clockhands import VOCABULARY, writer


def test_a_table_holds_what_is_added_at_each_position() -> None:
    """Vaswani et al. 2017, section 3.5: sin and cos of t / 10000^(2i/d)."""
    transformer = cast(Transformer, writer("sinusoidal").model)
    assert transformer.decoder is not None
    width = transformer.config.d_model
    table_NC = make_table(transformer.decoder, 5, width)
    angle = 3 / 10_000 ** (2 / width)
    assert table_NC.shape == (5, width)
    assert table_NC[3, 2:4] == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-6)
    assert table_NC[0, :4] == pytest.approx([0, 1, 0, 1])


def test_nothing_is_added_where_the_scheme_acts_in_attention() -> None:
    transformer = cast(Transformer, writer("rope").model)
    assert transformer.decoder is not None
    assert not np.any(make_table(transformer.decoder, 3, transformer.config.d_model))


def test_a_learned_table_is_not_made_longer() -> None:
    transformer = cast(Transformer, writer({"scheme": "learned", "max_length": 12}).model)
    assert transformer.encoder is not None
    with pytest.raises(PositionError, match="outside the 12 positions"):
        make_table(transformer.encoder, 13, transformer.config.d_model)


def test_token_ids_are_the_words_of_the_vocabulary(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    save_model(writer(), tmp_path, (8, 8))
    words = json.loads((tmp_path / "shared_vocabulary.json").read_text("utf8"))
    assert words == [str(token) for token in range(VOCABULARY)]


def test_a_language_model_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    config = TransformerConfig.from_dict({
        "kind": "decoder", "d_model": 8, "num_heads": 2, "d_ff": 8, "decoder_layers": 1, "vocab_size": 9,
    })  # fmt: skip
    model = ClockhandsForCausalLM(ClockhandsConfig(config.to_dict()))
    with pytest.raises(UsageError, match="its architecture is 'decoder'"):
        save_model(model, tmp_path)
