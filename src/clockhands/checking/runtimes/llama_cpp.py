"""llama.cpp with a GGUF file, through its Python binding llama-cpp-python, on the CPU."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clockhands.checking.runtimes.program import Program, count_real, import_engine
from clockhands.errors import CheckpointError

_TOKENS, _ROWS = 1_024, 8  # places in the KV cache, and texts that may share it


@dataclass
class Slots:
    """What the one KV cache of a context holds for a check: the position that comes next."""

    next: int = 0

    def __deepcopy__(self, memo: Any) -> Slots:
        raise NotImplementedError("llama.cpp holds one cache")


class LlamaCpp(Program):
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
        self._owner: Slots | None = None
        self._kept: list[int] = []
        self._kept_logits = torch.zeros(0)
        self.name, self.engine = path, ("llama-cpp-python", str(library.__version__))
        self.vocabulary = int(library.llama_vocab_n_tokens(library.llama_model_get_vocab(model)))
        claimed = int(library.llama_model_n_ctx_train(model))
        self.max_length = claimed if 0 < claimed < _TOKENS else None  # longer texts are not tried here
        moves = {"move"} if library.llama_memory_can_shift(self._memory) else set()
        self.takes = frozenset({"mask", "positions", "cache", "reuse", *moves})

    def new_cache(self) -> Slots:
        """Return the context's cache, emptied; what was read into it before is lost."""
        self._forget(0)
        self._owner = Slots()
        return self._owner

    def roll_back(self, cache: Slots, tokens: int) -> None:
        """Forget the last ``tokens``."""
        cache.next -= tokens
        self._library.llama_memory_seq_rm(self._memory, -1, cache.next, -1)

    def move(self, cache: Slots, by: int) -> None:
        """Move all keys on by so many positions, as is done where the beginning of a long dialogue is dropped."""
        self._library.llama_memory_seq_add(self._memory, 0, -1, -1, by)
        cache.next += by

    def reuse(self, ids: Tensor) -> Tensor:
        """Return the logits of one text, of which what the last such text had too is not read again."""
        text = ids[0].tolist()
        pairs = zip(text[:-1], self._kept, strict=False)  # the last token is always read
        common = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
        kept = self._kept_logits[:common]
        self._forget(common)
        logits = torch.cat([kept, self._decode([text[common:]], common)[0]])
        self._kept, self._kept_logits = text, logits
        return logits.unsqueeze(0)

    def logits(
        self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, cache: Slots | None = None
    ) -> Tensor:
        """Return the logits [B, S, V], 0 for pads. Raises CheckpointError where llama.cpp reads it not."""
        if len(ids) > _ROWS:
            raise NotImplementedError(f"at most {_ROWS} texts at a time are read here")
        if cache is not None and cache is not self._owner:
            raise NotImplementedError("llama.cpp holds one cache")
        past = 0 if cache is None else cache.next
        counts = [len(row) for row in ids] if mask is None else [count - past for count in count_real(mask)]
        if past and min(counts) < ids.shape[1]:
            raise NotImplementedError("texts of unequal length are not read on from the cache here")
        first = past
        if positions is not None:
            if positions.dim() != 2 or (positions.diff(dim=1) != 1).any() or (positions != positions[:1]).any():
                raise NotImplementedError("the program takes no positions that have gaps")
            first = int(positions[0, 0])
        if cache is None:
            self._forget(0)
        else:
            cache.next = first + ids.shape[1]
        parts = self._decode([row[:count] for row, count in zip(ids.tolist(), counts, strict=True)], first)
        return torch.stack([torch.nn.functional.pad(part, (0, 0, 0, ids.shape[1] - len(part))) for part in parts])

    def _forget(self, kept: int) -> None:
        """Empty the KV cache but for the first ``kept`` places of the first text."""
        self._library.llama_memory_seq_rm(self._memory, -1, kept or -1, -1)
        self._owner, self._kept = None, self._kept[:kept]

    def _decode(self, texts: Sequence[Sequence[int]], first: int) -> list[Tensor]:
        """Read the next tokens of each text, from position ``first``, and return their logits [S, V]."""
        batch, n = self._batch, 0
        for row, text in enumerate(texts):
            for place, token in enumerate(text, first):
                batch.token[n], batch.pos[n], batch.logits[n] = token, place, True
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, row
                n += 1
        batch.n_tokens = n
        if status := self._library.llama_decode(self._context, batch):
            raise CheckpointError(f"llama_decode gave {status} for {n} tokens from position {first}")
        rows = [self._library.llama_get_logits_ith(self._context, place) for place in range(n)]
        logits = torch.from_numpy(np.stack([np.ctypeslib.as_array(row, (self.vocabulary,)) for row in rows]))
        return list(logits.split([len(text) for text in texts]))


def _free(library: Any, batch: Any, context: Any, model: Any) -> None:
    library.llama_batch_free(batch)
    library.llama_free(context)
    library.llama_model_free(model)
