"""Random encoder-decoders that write as trained ones do, and sources for them."""

from __future__ import annotations

import torch

from clockhands.errors import ConfigError
from clockhands.model import make_preset
from clockhands.model.huggingface import ClockhandsConfig, ClockhandsForSeq2SeqLM
from clockhands.schemes.rotary.trained_length import add_trained_length

PAD, START, END = 0, 1, 2
VOCABULARY = 256
LONGEST = 9


def writer(scheme: str | dict[str, object] = "sinusoidal", **changes: object) -> ClockhandsForSeq2SeqLM:
    """A random model that writes as a trained one does: sure of most words, and of different ones.

    An untrained model with tied matrices repeats one word, so that any search looks right. Its output matrix is its
    own and large, and the end is likely enough for texts to end at different lengths.
    """
    torch.manual_seed(3)
    sides = add_trained_length({"encoder": scheme, "decoder": scheme, **changes}, LONGEST, only_needed=True)
    core = make_preset("tiny", {"vocab_size": VOCABULARY, "tying": "none", "output_bias": True, **sides})
    model = ClockhandsForSeq2SeqLM(ClockhandsConfig(
        core.to_dict(), pad_token_id=PAD, bos_token_id=START, eos_token_id=END, decoder_start_token_id=START
    )).eval()  # fmt: skip
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "blocks" in name:
                parameter.mul_(2)
        torch.manual_seed(16)
        model.transformer.output.weight.normal_(std=0.7)
        model.transformer.output.bias.zero_()
        model.transformer.output.bias[END] = 7.0
    return model


def sources(rows: int = 4, length: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded sources of different lengths."""
    torch.manual_seed(5)
    ids_BT = torch.randint(3, VOCABULARY, (rows, length))
    lengths_B = torch.linspace(3, length, rows).long()
    mask_BT = torch.arange(length) < lengths_B[:, None]
    return ids_BT.masked_fill(~mask_BT, PAD), mask_BT


def side_of_reading(name: str) -> str:
    """The encoder's scheme beside this one in the decoder: the same, unless it is defined for decoders alone."""
    try:
        make_preset("tiny", add_trained_length({"encoder": name}, LONGEST, only_needed=True))
    except ConfigError as fault:
        assert "causal" in str(fault), fault
        return "sinusoidal"
    return name


OPTIONS = {"swin": {"scheme": "swin", "rows": 2 * LONGEST}}
"""Options that a scheme needs here besides its name."""
