"""Language models of other projects, converted to ours, so that a page runs them.

Whether the conversion is true of a checkpoint is measured: converted, it has to compute the logits that it computes as
it is.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

from clockhands.data import Tokenizers
from clockhands.errors import ClockhandsError, UsageError
from clockhands.exploring.support import LARGEST
from clockhands.interchange.weights import copy_from_transformers
from clockhands.models.subject import Subject
from clockhands.runs import Run

FAMILIES = ("gpt2", "llama")
"""The architectures that a page runs, by the ``model_type`` of their configuration."""
ALIKE = 1e-3
"""The largest difference of a logit from that of the original, in standard deviations: rounding alone."""
_PROBED = 128
"""The most tokens of the texts on which both are compared."""


def convert_checkpoint(subject: Subject, source: str | Path) -> Run:
    """Return a language model of another project as a run of ours, with its model and tokenizer in memory.

    Raises UsageError with the reason where it cannot be converted, or does not compute the same afterwards.
    """
    original = getattr(subject, "language_model", None)
    if original is None:
        raise UsageError("it is no language model that continues text")
    config = original.config
    if config.model_type not in FAMILIES:
        raise UsageError(f"a page runs models of Clockhands and of {', '.join(FAMILIES)}, not of {config.model_type}")
    rule = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rule != "default":
        raise UsageError(f"its frequencies are changed by the rule {rule!r}, and a page has none")
    count = sum(parameter.numel() for parameter in original.parameters())
    if count > LARGEST:
        raise UsageError(f"it has {count:,} parameters, and a page runs at most {LARGEST:,}")
    if subject.tokenizer is None:
        raise UsageError("it came without a tokenizer")
    try:
        model = copy_from_transformers(copy.deepcopy(original).cpu().float()).eval()
    except ClockhandsError as fault:
        raise UsageError(f"it is no model of ours by its configuration: {fault}") from fault
    _check_logits(model, original)
    run = Run(Path(source), device="cpu")
    # Where cached_property keeps what it has computed: there is no folder of ours to open.
    vars(run).update(model=model, tokenizers=Tokenizers(subject.tokenizer, subject.tokenizer))
    return run


@torch.no_grad()
def _check_logits(model: Any, original: Any) -> None:
    """Raise UsageError unless both compute the same logits of random tokens."""
    length = min(_PROBED, getattr(original.config, "max_position_embeddings", _PROBED))
    generator = torch.Generator().manual_seed(0)
    ids_2S = torch.randint(model.config.vocab_size, (2, length), generator=generator)
    theirs = original(input_ids=ids_2S.to(original.device), use_cache=False).logits.cpu().float()
    ours = model(input_ids=ids_2S, use_cache=False).logits
    difference = float((ours - theirs).abs().max() / theirs.std())
    if not difference < ALIKE:
        raise UsageError(
            "as a model of ours it computes something else: logits differ by up to "
            f"{difference:.2g} standard deviations"
        )
