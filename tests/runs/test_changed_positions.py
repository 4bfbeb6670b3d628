"""Other options of position after training: everything else of the configuration stays as it was."""

from __future__ import annotations

from clockhands.model import make_preset
from clockhands.model.huggingface_config import ClockhandsConfig
from clockhands.runs.changed_positions import change_positions


def test_other_options_of_a_scheme_change_no_other_field() -> None:
    transformer = make_preset("tiny", {"vocab_size": 50, "encoder": "rope"}).to_dict()
    others = {
        "label_smoothing": 0.2, "smoothing": "others", "pad_token_id": 3, "bos_token_id": 4, "eos_token_id": [5, 6],
        "decoder_start_token_id": 7, "use_cache": False, "tokenizer_fingerprint": "abc",
    }  # fmt: skip
    changed = change_positions(ClockhandsConfig(transformer=transformer, **others), {"base": 5.0})
    assert changed.transformer_config.encoder.options == {"base": 5.0}
    assert {name: getattr(changed, name) for name in others} == others
