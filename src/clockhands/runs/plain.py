"""A run that translates, opened without transformers: its weights, configuration and tokenizers alone.

Importing transformers takes longer than to translate a few sentences. A run is opened so only where everything is as
training wrote it, down to the fingerprint of its tokenizers; ``open_run`` opens all others, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn

from clockhands.data import Tokenizers
from clockhands.model.config import TransformerConfig
from clockhands.model.size import find_memory_fault
from clockhands.model.transformer import Transformer
from clockhands.pretrained import GENERATION, TOKENIZER, WEIGHTS, check_fits, count_stored_bytes, refuse_not_finite
from clockhands.reading import read_json
from clockhands.runs.folder import RECIPE
from clockhands.runs.opening import read_clockhands_config

TOKENIZER_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""The class that training saves tokenizers as, by its names in transformers."""
USUAL_GENERATION = {
    "_from_model_config", "transformers_version", "use_cache", "output_attentions", "output_hidden_states",
    "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id",
}  # fmt: skip
"""The keys that training writes into ``generation_config.json``."""


class _PlainTokenizer:
    """A tokenizer of tokenizers as those of transformers are called: ids of texts, and texts of ids."""

    is_fast = True

    def __init__(self, backend: Tokenizer, settings: Mapping[str, Any]) -> None:
        self.backend_tokenizer = backend
        self.pad_token_id = backend.token_to_id(settings["pad_token"])
        self.eos_token_id = backend.token_to_id(settings["eos_token"])

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size(with_added_tokens=True)

    def __call__(self, text: str) -> dict[str, list[int]]:
        """Return the ids of a text under ``input_ids``, with those that end it."""
        return {"input_ids": self.backend_tokenizer.encode(text).ids}

    def get_vocab(self) -> dict[str, int]:
        """Return the id of each token."""
        return self.backend_tokenizer.get_vocab(with_added_tokens=True)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Return the text of ids."""
        return self.backend_tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def batch_decode(self, rows: Sequence[Sequence[int]], skip_special_tokens: bool = False) -> list[str]:
        """Return the texts of several rows of ids."""
        return self.backend_tokenizer.decode_batch([*map(list, rows)], skip_special_tokens=skip_special_tokens)


class _PlainModel(nn.Module):
    """A ``Transformer`` on the CPU with what an engine asks of a configuration."""

    device = torch.device("cpu")

    def __init__(self, config: TransformerConfig, eos_token_id: int, start: int, pad_token_id: int) -> None:
        super().__init__()
        self.model = Transformer(config)
        self.config = SimpleNamespace(
            transformer_config=config, vocab_size=config.vocab_size, eos_token_id=eos_token_id,
            decoder_start_token_id=start, pad_token_id=pad_token_id, find_start_token=lambda: start,
        )  # fmt: skip

    @property
    def transformer(self) -> Transformer:
        """The ``Transformer`` inside."""
        return self.model


@dataclass(frozen=True)
class PlainRun:
    """What ``translate`` and ``evaluate`` ask of a run."""

    path: Path
    model: Any
    tokenizers: Tokenizers


def open_plain(folder: Path) -> PlainRun | None:
    """Open a run that translates without transformers; None where anything is not as training wrote it."""
    try:
        raw, config = read_clockhands_config(folder)
        ids = [raw.get(name) for name in ("eos_token_id", "decoder_start_token_id", "pad_token_id")]
        if (
            config.architecture != "encoder-decoder"
            or not all(type(token) is int and 0 <= token < config.vocab_size for token in ids)
            or raw.get("dtype") != "float32"
            or not all((folder / name).is_file() for name in (RECIPE, WEIGHTS))
            or ((folder / GENERATION).exists() and read_json(folder / GENERATION).keys() - USUAL_GENERATION)
            or find_memory_fault(config) is not None
        ):
            return None
        check_fits(count_stored_bytes(folder, raw), folder)
        source = _open_tokenizer(folder)
        target = _open_tokenizer(folder / "target") if (folder / "target" / TOKENIZER).is_file() else source
        if source is None or target is None:
            return None
        tokenizers = Tokenizers(source, target)
        if tokenizers.fingerprint != raw.get("tokenizer_fingerprint"):
            return None
        with torch.random.fork_rng(devices=[]):
            model = _PlainModel(config, *ids).eval()  # type: ignore[arg-type]
        report = model.load_state_dict(load_file(folder / WEIGHTS), strict=False)
        tied = {f"model.{name}" for name in model.model.map_tied_parameters()}
        if report.unexpected_keys or set(report.missing_keys) - tied:
            return None
        refuse_not_finite(model.named_parameters(), folder)
        return PlainRun(folder, model, tokenizers)
    except Exception:  # libraries raise anything for a damaged file, and the ordinary way of opening says what it is
        return None


def _open_tokenizer(folder: Path) -> Any:
    """Open a tokenizer that training saved; None for one of another class, which may do more than its file says."""
    settings = read_json(folder / TOKENIZER)
    if settings.get("tokenizer_class") not in TOKENIZER_CLASSES or settings.get("clean_up_tokenization_spaces"):
        return None
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return _PlainTokenizer(backend, settings)
