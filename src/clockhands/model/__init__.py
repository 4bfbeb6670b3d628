"""The Transformer of "Attention Is All You Need", with the published variations as named options.

These classes need no transformers. A ``TransformerConfig`` is a frozen dataclass, which contains a ``PositionConfig``
for each side and validates itself; ``make_preset`` makes one by name (``paper-base``, ``tutorial``, ``tiny``). A
``Transformer`` is the model, which reads a ``TokenBatch``. Read the modules in this order: config,
input, attention, block, stack, transformer.

``clockhands.model.huggingface`` has the classes for transformers: ``ClockhandsConfig``, ``ClockhandsForSeq2SeqLM``,
``ClockhandsForCausalLM`` and ``ClockhandsForMaskedLM``. This computes a training loss::

    config = ClockhandsConfig(transformer=make_preset("tiny", {"vocab_size": 500}).to_dict(), label_smoothing=0.1,
                              pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    model = ClockhandsForSeq2SeqLM(config)
    loss = model(input_ids=..., attention_mask=..., labels=..., num_items_in_batch=...).loss

``labels`` hold -100 where nothing is to be learnt. In training mode, a call with labels smooths them and returns no
logits.
"""

from clockhands.model.config import PRESETS, TransformerConfig, make_preset
from clockhands.model.masks import EncodedSource, TokenBatch
from clockhands.model.position_config import PositionConfig
from clockhands.model.transformer import Transformer

__all__ = [
    "PRESETS", "EncodedSource", "PositionConfig", "TokenBatch", "Transformer", "TransformerConfig", "make_preset",
]  # fmt: skip
