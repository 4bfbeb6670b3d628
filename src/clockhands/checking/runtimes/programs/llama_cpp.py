"""llama.cpp with a GGUF file, through its Python binding llama-cpp-python, on the CPU."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.checking.runtimes.runtime import RUNTIMES, WHOLE, Offer, Texts, Way, import_engine
from clockhands.checking.runtimes.scores import read_scores
from clockhands.errors import CheckpointError, UsageError

_TOKENS, _ROWS = 1_024, 8  # places in the KV cache, and texts that may share it


class LlamaCpp:
    """A GGUF file in llama.cpp, with a KV cache in float32.

    Each text is a sequence of its own: texts of unequal length need no pads. Positions must follow each other; they may
    begin anywhere. What two texts have in common at their beginning can stay in the KV cache, as its servers do it.
    """

    def __init__(self, path: str) -> None:
        self._library: Any = import_engine("llama_cpp", "llama-cpp-python", f"checking {path}")
        library = self._library
        self._log = library.llama_log_callback(lambda *_: None)  # kept: llama.cpp calls it as long as it lives
        library.llama_log_set(self._log, None)
        library.llama_backend_init()
        loading = library.llama_model_default_params()
        # Weights laid out again for one processor: with AMX, llama_decode ends the process for 8-bit weights (0.3.36).
        loading.use_extra_bufts = False
        model = library.llama_model_load_from_file(os.fsencode(path), loading)
        if not model:
            raise CheckpointError(f"{path} cannot be opened by llama.cpp: it is damaged, or of an unknown architecture")
        settings = library.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = _TOKENS
        settings.n_seq_max, settings.kv_unified = _ROWS, True
        settings.n_threads = settings.n_threads_batch = 1
        settings.type_k = settings.type_v = library.GGML_TYPE_F32
        settings.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._context = library.llama_init_from_model(model, settings)
        if not self._context:
            raise CheckpointError(f"{path}: llama.cpp has no context of {_TOKENS} tokens in float32 for it")
        self._memory = library.llama_get_memory(self._context)
        self._batch = library.llama_batch_init(_TOKENS, 0, 1)
        weakref.finalize(self, _free, library, self._batch, self._context, model)
        self._kept: list[int] = []
        self._kept_logits: list[Any] = []
        self.name, self.engine = path, ("llama-cpp-python", str(library.__version__))
        self.vocabulary = int(library.llama_vocab_n_tokens(library.llama_model_get_vocab(model)))
        self.limit = int(library.llama_model_n_ctx_train(model)) or None
        offers: list[Offer] = ["together", "right", "begin", "chunk", "reuse"]
        if library.llama_memory_can_shift(self._memory):
            offers.append("shift")
        self.offers = frozenset(offers)

    def score(self, texts: Texts, way: Way = WHOLE) -> list[list[float]]:
        """Return the log-probability of every token but the first of each text."""
        if way.together and len(texts) <= _ROWS:
            return self._score_rows(texts, way)
        return [scores for text in texts for scores in self._score_rows([text], way)]

    def _score_rows(self, texts: Texts, way: Way) -> list[list[float]]:
        common = self._find_common(texts[0]) if way.reuse else 0
        logits = self._kept_logits[:common] if common else []
        self._library.llama_memory_seq_rm(self._memory, -1, common if common else -1, -1)
        begin = way.positions[0] if way.positions else 0
        rows: list[list[Any]] = [list(logits), *([] for _ in texts[1:])]
        length = max(map(len, texts))
        for start in range(common, length, way.chunk or length):
            moved = way.shift if start and way.shift else 0
            if moved:
                self._library.llama_memory_seq_add(self._memory, 0, -1, -1, moved)
                begin += moved
            self._decode([text[start : start + (way.chunk or length)] for text in texts], begin + start, rows)
        self._kept, self._kept_logits = list(texts[0]) if way.reuse else [], rows[0]
        return [read_scores(text, np.array(row)) for text, row in zip(texts, rows, strict=True)]

    def _find_common(self, text: Sequence[int]) -> int:
        """Return how many tokens at the beginning are in the KV cache already; the last is always read."""
        pairs = zip(text[:-1], self._kept, strict=False)
        return next((n for n, (token, kept) in enumerate(pairs) if token != kept), min(len(text) - 1, len(self._kept)))

    def _decode(self, texts: Texts, first: int, rows: list[list[Any]]) -> None:
        """Read the next tokens of each text, from position ``first``, and add their logits to its row."""
        batch, owners = self._batch, list[int]()
        for row, text in enumerate(texts):
            for place, token in enumerate(text):
                n = len(owners)
                batch.token[n], batch.pos[n], batch.logits[n] = token, first + place, True
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, row
                owners.append(row)
        batch.n_tokens = len(owners)
        status = self._library.llama_decode(self._context, batch)
        if status:
            raise CheckpointError(f"llama_decode gave {status} for {len(owners)} tokens from position {first}")
        for n, row in enumerate(owners):
            logits = self._library.llama_get_logits_ith(self._context, n)
            rows[row].append(np.ctypeslib.as_array(logits, (self.vocabulary,)).astype(np.float64))


def _free(library: Any, batch: Any, context: Any, model: Any) -> None:
    library.llama_batch_free(batch)
    library.llama_free(context)
    library.llama_model_free(model)


class _Opener:
    """A file ``*.gguf``."""

    def recognises(self, name: str) -> bool:
        """Return whether it is such a file."""
        return Path(name).suffix == ".gguf"

    def open(self, name: str, model: str | None = None) -> LlamaCpp:
        """Open it. Raises UsageError where there is no such file, CheckpointError where it cannot be read."""
        if not Path(name).is_file():
            raise UsageError(f"{name} is no file: name a model in the format of llama.cpp, model.gguf")
        return LlamaCpp(name)


RUNTIMES["gguf"] = _Opener()
