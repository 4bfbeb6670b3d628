"""The Transformer of "Attention Is All You Need", with the published variations as named options.

Without transformers: ``TransformerConfig`` and ``Position`` (config.py: plain frozen dataclasses that validate
themselves), ``preset`` (presets.py: ``paper-base``, ``tutorial``, ``tiny``), ``Transformer`` (transformer.py), which
reads ``Text`` (masks.py). It reads top to bottom as config, input, attention, block, transformer.

With transformers (``clockhands.model.huggingface``): ``ClockhandsConfig``, ``ClockhandsForSeq2SeqLM``,
``ClockhandsForCausalLM``, ``ClockhandsForMaskedLM``::

    config = ClockhandsConfig(transformer=preset("tiny", {"vocab_size": 500}).to_dict(), label_smoothing=0.1,
                              pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    model = ClockhandsForSeq2SeqLM(config)
    loss = model(input_ids=..., attention_mask=..., labels=..., num_items_in_batch=...).loss

``labels`` hold -100 where nothing is to be learnt. While training, label smoothing acts and no logits are returned.
"""

from clockhands.model.config import Position, TransformerConfig
from clockhands.model.masks import Encoded, Text
from clockhands.model.presets import PRESETS, preset
from clockhands.model.transformer import Transformer

__all__ = ["PRESETS", "Encoded", "Position", "Text", "Transformer", "TransformerConfig", "preset"]
