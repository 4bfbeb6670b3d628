"""ONNX Runtime: a decoder exported by Optimum or torch.onnx, with or without position_ids and a KV cache."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clockhands.checking.runtimes.program import Program, import_engine
from clockhands.errors import CheckpointError
from clockhands.reading import read_json

_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
_KNOWN = ("input_ids", "attention_mask", "position_ids", "use_cache_branch")


@dataclass
class Past:
    """The keys and values of what was read: one array [batch, heads, tokens, width] for each output ``present…``."""

    arrays: list[Any] | None = None
    length: int = 0


class OnnxProgram(Program):
    """An exported decoder in ONNX Runtime, on the CPU.

    Read by their names: the inputs ``input_ids``, ``attention_mask``, ``position_ids`` and ``past…``, the outputs
    ``logits`` and ``present…``, as Optimum writes them. Only ``input_ids`` and ``logits`` must be there. Where the
    export wants a mask or positions and none are given, they are made as Optimum makes them.
    """

    def __init__(self, path: str) -> None:
        library = import_engine("onnxruntime", "onnxruntime", f"checking {path}")
        try:
            options = library.SessionOptions()
            options.log_severity_level = 4
            options.intra_op_num_threads = 1
            self._session = library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as fault:  # ONNX Runtime raises several types of its own
            raise CheckpointError(f"{path} cannot be opened by ONNX Runtime: {_shorten(fault)}") from fault
        self.name, self.engine = path, ("onnxruntime", str(library.__version__))
        self._inputs = {entry.name: entry for entry in self._session.get_inputs()}
        outputs = {entry.name: entry for entry in self._session.get_outputs()}
        lacking = [f"has no {n}" for n, there in (("input_ids", self._inputs), ("logits", outputs)) if n not in there]
        unknown = [name for name in self._inputs if name not in _KNOWN and not name.startswith("past")]
        if faults := [*lacking, *(f"needs {name}, which is not known here" for name in unknown)]:
            raise CheckpointError(
                f"{path} {' and '.join(faults)}: export a decoder with the inputs input_ids, attention_mask, "
                "position_ids, past_key_values.* and the outputs logits, present.*"
            )
        self._past = [name for name in self._inputs if name.startswith("past")]
        self._outputs = ["logits", *(name for name in outputs if name.startswith("present"))]
        batch, length = self._inputs["input_ids"].shape
        self._batch = batch if isinstance(batch, int) else None
        self._length = length if isinstance(length, int) else None
        config: dict[str, Any] = {}
        with contextlib.suppress(CheckpointError):  # what Optimum writes beside an export
            config = read_json(Path(path).parent / "config.json")
        limit = self._length or config.get("max_position_embeddings") or config.get("n_positions")
        self.max_length = limit if isinstance(limit, int) and limit > 0 else None
        cached = bool(self._past) and len(self._past) == len(self._outputs) - 1 and self._length is None
        known = {"mask": "attention_mask" in self._inputs, "positions": "position_ids" in self._inputs, "cache": cached}
        self.takes = frozenset(name for name, there in known.items() if there)
        width, tried = outputs["logits"].shape[-1], torch.zeros(self._batch or 1, 1, dtype=torch.long)
        self.vocabulary = width if isinstance(width, int) else self.logits(tried).shape[-1]

    def new_cache(self) -> Past:
        """Return an empty cache."""
        return Past()

    def roll_back(self, cache: Past, tokens: int) -> None:
        """Forget the last ``tokens``."""
        cache.arrays = [array[:, :, :-tokens] for array in cache.arrays or []]
        cache.length -= tokens

    def reorder(self, cache: Past, rows: Tensor) -> None:
        """Make row i a copy of ``rows[i]``."""
        cache.arrays = [array[rows.numpy()] for array in cache.arrays or []]

    def logits(
        self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, cache: Past | None = None
    ) -> Tensor:
        """Return the logits [B, S, V]. Raises CheckpointError with what ONNX Runtime says."""
        rows, length = ids.shape
        if self._batch not in (None, rows):
            raise NotImplementedError(f"the export reads {self._batch} texts at a time")
        if mask is not None and mask.dim() != 2:
            raise NotImplementedError("the export takes no four-dimensional mask")
        past = 0 if cache is None else cache.length
        seen = torch.ones(rows, past + length, dtype=torch.long) if mask is None else mask.long()
        places = (seen.cumsum(1) - 1).clamp(min=0)[:, -length:] if positions is None else positions.expand(rows, -1)
        pads = (self._length or length) - length  # an export of one length alone reads shorter texts with pads behind
        inputs = [torch.nn.functional.pad(tensor, (0, max(pads, 0))).numpy() for tensor in (ids, seen, places)]
        filled = None if cache is None else cache.arrays
        values = dict(zip(_KNOWN, (*inputs, np.array([filled is not None])), strict=True))
        feeds = {name: value for name, value in values.items() if name in self._inputs}
        for place, name in enumerate(self._past):
            feeds[name] = self._make_empty(name, rows) if filled is None else filled[place]
        for name, value in feeds.items():
            if self._inputs[name].type == "tensor(int32)":
                feeds[name] = value.astype(np.int32)
        try:
            logits, *present = self._session.run(self._outputs, feeds)
        except Exception as fault:  # as above
            raise CheckpointError(_shorten(fault)) from fault
        if cache is not None:
            cache.arrays, cache.length = present, past + length
        return torch.from_numpy(logits[:, :length].astype(np.float32))

    def _make_empty(self, name: str, rows: int) -> Any:
        """Make a KV cache of no tokens: of [batch, heads, tokens, width], only the second and last size are fixed."""
        shape = self._inputs[name].shape
        if len(shape) != 4 or not isinstance(shape[1], int) or not isinstance(shape[3], int):
            raise CheckpointError(
                f"{self.name}: the input {name} has the shape {shape}; "
                "only caches [batch, heads, tokens, width] with fixed heads and width can be filled"
            )
        return np.zeros((rows, shape[1], 0, shape[3]), _TYPES.get(self._inputs[name].type, np.float32))


def _shorten(fault: Exception) -> str:
    return re.sub(r"\s+", " ", str(fault).rpartition("Status Message: ")[2])[:160]
