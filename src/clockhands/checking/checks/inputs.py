"""What enters in place of token ids gives what the ids give."""

from __future__ import annotations

from typing import Any

import torch

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference
from clockhands.checking.models.subject import Subject
from clockhands.models.facts import list_arguments


@check(
    "inputs.embeds",
    "inputs_embeds of the model's own embedding give what the ids give.",
    "positions that are made from ids alone",
    uses=("inputs_embeds",),
    huggingface=True,
)
def embeds(subject: Subject) -> Measurement:
    """Look the tokens up by hand, with the embedding that the model gives out."""
    module, adapter = _parts(subject)
    table = module.get_input_embeddings()
    if adapter.task == "seq2seq":
        raise Inapplicable("of an encoder-decoder encoder_outputs are compared")
    if "inputs_embeds" not in list_arguments(module) or table is None:
        raise Inapplicable("the model takes no inputs_embeds")
    ids = subject.tokens(2, 12)
    with torch.no_grad():
        vectors = table(ids)
        if not isinstance(vectors, torch.Tensor):
            raise Inapplicable("the embedding of the model gives more than vectors")
        try:
            output = module(inputs_embeds=vectors, **({"use_cache": False} if adapter.cache_name else {}))
        except ValueError as fault:
            if "input_ids" not in str(fault):
                raise
            raise Inapplicable(f"the model refuses: {' '.join(str(fault).split())[:160]}") from fault
    logits = output.logits if "logits" in output else output.last_hidden_state
    return Measurement(difference(logits[:, -ids.shape[1] :], subject.logits(ids)))


@check(
    "inputs.encoder_outputs",
    "A source that was encoded before gives what its ids give.",
    "a mask or a bias that is made from the source's ids",
    uses=("encoder_outputs",),
    huggingface=True,
)
def encoder_outputs(subject: Subject) -> Measurement:
    """Encode the source with the model's encoder, and pass what it returns to the whole model."""
    module, adapter = _parts(subject)
    if adapter.task != "seq2seq" or not subject.aligned:
        raise Inapplicable("about encoder-decoders")
    ids = subject.tokens(2, 12)
    source = adapter.inputs(ids)["input_ids"]
    with torch.no_grad():
        encoded = module.get_encoder()(input_ids=source)
        output = module(encoder_outputs=encoded, decoder_input_ids=ids, use_cache=False)
    return Measurement(difference(output.logits, subject.logits(ids)))


def _parts(subject: Subject) -> tuple[Any, Any]:
    return subject.module, subject.adapter
