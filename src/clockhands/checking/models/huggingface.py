"""Models of transformers behind the adapter: decoders, encoders, and the two sides of an encoder-decoder."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from clockhands.checking.models.tiny import multimodal
from clockhands.model.huggingface_base import CACHE_NAME
from clockhands.models.facts import list_arguments, list_special_ids

KV_CACHES = tuple(dict.fromkeys((CACHE_NAME, "past_key_values")))
"""The arguments that take a cache of keys and values; code from outside may keep the older name."""
_CACHES = (*KV_CACHES, "cache_params", "state")
_SOURCE_SEED = 99


class HFModel:
    """A decoder or encoder of transformers; an encoder-decoder is seen from its decoder, over one fixed source.

    Its cache is a namespace whose ``state`` is what the model returned last; ``special`` are the token ids with a
    meaning of their own, which the checks do not use as text. It is ``shrunk`` if built here from a configuration.
    """

    per_token, shrunk = True, False

    def __init__(self, model: PreTrainedModel, task: str, source: str | None = None) -> None:
        self.source = source
        self.module = model.eval()
        self.task = task
        self.prefix = "decoder_" if task == "seq2seq" else ""
        self.config = model.config.get_text_config(decoder=True) if task == "causal" else model.config
        self.vocabulary, self.opposite = _vocabularies(model, task)
        self.causal = task != "masked"
        self.cache_name = _cache_name(model) if self.causal else None
        self.takes = self._list_taken()
        self.special = list_special_ids(self.module.config, self.config)

    def _list_taken(self) -> frozenset[str]:
        names = list_arguments(self.module)
        spellings = {"mask": "attention_mask", "positions": "position_ids", "documents": "document_ids"}
        takes = {what for what, name in spellings.items() if f"{self.prefix}{name}" in names}
        if self.cache_name:
            takes.add("cache")
        if getattr(self.module.config, "model_type", "") in multimodal()["axes"]["types"]:
            takes.add("axes")
        return frozenset(takes)

    def new_cache(self) -> Any:
        """Return an empty cache; the model makes its own at the first call."""
        return SimpleNamespace(state=None)

    def roll_back(self, cache: Any, tokens: int) -> None:
        """Forget the last ``tokens``. Raises NotImplementedError where the cache cannot."""
        if not hasattr(cache.state, "crop"):
            raise NotImplementedError(f"{type(cache.state).__name__} cannot be cropped")
        cache.state.crop(-tokens)

    def reorder(self, cache: Any, rows: Tensor) -> None:
        """Make row i a copy of ``rows[i]``, as beam search does. Raises NotImplementedError where the cache cannot."""
        if not hasattr(cache.state, "reorder_cache"):
            raise NotImplementedError(f"the rows of {type(cache.state).__name__} cannot be reordered")
        cache.state.reorder_cache(rows)

    def logits(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Any = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """Logits of every token (hidden states where there is no head); ``cache=None`` means that none is used."""
        arguments = self.inputs(ids)
        if mask is not None and mask.dim() == 2:
            arguments[f"{self.prefix}attention_mask"] = mask.long()
        elif mask is not None:
            added = torch.zeros(mask.shape, dtype=next(self.module.parameters()).dtype, device=mask.device)
            arguments[f"{self.prefix}attention_mask"] = added.masked_fill(~mask, torch.finfo(added.dtype).min)
        for name, value in (("position_ids", positions), ("document_ids", documents)):
            if value is not None:
                arguments[f"{self.prefix}{name}"] = value
        if self.cache_name is not None:
            arguments["use_cache"] = cache is not None
        if cache is not None and cache.state is not None:
            arguments[str(self.cache_name)] = cache.state
        with torch.no_grad():
            if cache is not None and self.task == "seq2seq" and "use_cache" not in list_arguments(self.module):
                # Its ``forward`` hands ``use_cache`` on to the encoder too, which refuses it; ``generate`` does it so.
                arguments["encoder_outputs"] = self.module.get_encoder()(input_ids=arguments.pop("input_ids"))
            output: Any = self.module(**arguments)
        if cache is not None:
            cache.state = getattr(output, str(self.cache_name), None)
            if cache.state is None:
                raise NotImplementedError("the model returns no cache")
        logits: Tensor = output.logits if "logits" in output else output.last_hidden_state
        return logits[:, -ids.shape[1] :]

    def inputs(self, ids: Tensor) -> dict[str, Any]:
        """Return the token arguments of one call."""
        if self.task != "seq2seq":
            return {"input_ids": ids}
        return {"input_ids": fixed_source(self, ids.shape[0]).to(ids.device), "decoder_input_ids": ids}


class HFSource(HFModel):
    """The source side of an encoder-decoder: what the decoder answers to a fixed prefix, as the source changes."""

    per_token = False

    def __init__(self, model: PreTrainedModel, task: str = "seq2seq", source: str | None = None) -> None:
        super().__init__(model, task, source)
        self.vocabulary, self.opposite = self.opposite, self.vocabulary
        self.causal = False
        self.cache_name = None
        self.takes = frozenset({"mask"})

    def logits(self, ids: Tensor, mask: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logits of the fixed target prefix; the axis S is the target's, not that of ``ids``."""
        target = fixed_source(self, 1)[:, :8].repeat(ids.shape[0], 1).to(ids.device)
        arguments = {"input_ids": ids, "decoder_input_ids": target, "use_cache": False}
        with torch.no_grad():
            return self.module(**arguments, attention_mask=None if mask is None else mask.long()).logits


def fixed_source(adapter: HFModel, rows: int) -> Tensor:
    """Return one text of 16 tokens for the other side, the same at every call."""
    generator = torch.Generator().manual_seed(_SOURCE_SEED)
    low, high = (10 if adapter.opposite > 20 else 0), adapter.opposite
    return torch.randint(low, high, (1, 16), generator=generator).repeat(rows, 1)


def _vocabularies(model: PreTrainedModel, task: str) -> tuple[int, int]:
    """How many tokens the model writes, and how many it reads on the source side, which may have tokens of its own."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    read = getattr(embedding, "num_embeddings", None) or getattr(model.config, "vocab_size", None) or 160
    written = getattr(head, "weight", None) if task == "seq2seq" else None
    return int(read if written is None else written.shape[0]), int(read)


def _cache_name(model: PreTrainedModel) -> str | None:
    """Return the argument for the cache; a wrapper hands ``use_cache`` on to its text part without naming it."""
    names, parameters = set(list_arguments(model)), inspect.signature(model.forward).parameters
    if "use_cache" not in names and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return None
    # XLM and FlauBERT fill a dict of their own called ``cache``, and do not return it.
    names -= {name for name, parameter in parameters.items() if "dict" in str(parameter.annotation)}
    # What the model names itself comes first: what it hands on to the base would pass by its own code.
    known = [*(name for name in _CACHES if name in parameters), *_CACHES]
    return next((name for name in known if name in names), None)
