"""ONNX Runtime: a decoder exported by Optimum or torch.onnx, with or without position_ids and a KV cache."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.checking.runtimes.runtime import RUNTIMES, WHOLE, Offer, Texts, Way, import_engine
from clockhands.checking.runtimes.scores import log_softmax
from clockhands.errors import CheckpointError, UsageError
from clockhands.reading import read_json

_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
_KNOWN = ("input_ids", "attention_mask", "position_ids", "use_cache_branch")


class OnnxRuntime:
    """An exported decoder in ONNX Runtime, on the CPU.

    Read by their names: the inputs ``input_ids``, ``attention_mask``, ``position_ids`` and ``past…``, the outputs
    ``logits`` and ``present…``, as Optimum writes them. Only ``input_ids`` and ``logits`` must be there.
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
        outputs = [entry.name for entry in self._session.get_outputs()]
        _check_names(path, list(self._inputs), outputs)
        self._past = [name for name in self._inputs if name.startswith("past")]
        self._outputs = ["logits", *(name for name in outputs if name.startswith("present"))]
        batch, length = self._inputs["input_ids"].shape
        self._batch, self._length = (size if isinstance(size, int) else None for size in (batch, length))
        config = _read_config(Path(path))
        self.limit = self._length or config.get("max_position_embeddings") or config.get("n_positions")
        self.vocabulary = self._count_tokens()
        self.offers = frozenset(self._list_offers())

    def _list_offers(self) -> list[Offer]:
        offers: list[Offer] = []
        masked = "attention_mask" in self._inputs
        if self._batch is None:
            offers += ["together", "right", *(["left"] if masked else [])]  # type: ignore[list-item]
        if "position_ids" in self._inputs:
            offers += ["positions", "begin"]
        if self._past and len(self._past) == len(self._outputs) - 1 and self._length is None:
            offers.append("chunk")
        return offers

    def _count_tokens(self) -> int:
        width = next(entry for entry in self._session.get_outputs() if entry.name == "logits").shape[-1]
        if isinstance(width, int):
            return width
        ids = np.zeros((1, self._length or 1), np.int64)
        logits = self._call(ids, np.ones_like(ids), np.arange(ids.shape[1])[None], None)[0]
        return int(logits.shape[-1])

    def score(self, texts: Texts, way: Way = WHOLE) -> list[list[float]]:
        """Return the log-probability of every token but the first of each text."""
        if way.together:
            return self._score_batch(texts, way)
        return [scores for text in texts for scores in self._score_batch([text], way)]

    def _score_batch(self, texts: Texts, way: Way) -> list[list[float]]:
        lengths = [len(text) for text in texts]
        width = max([*lengths, self._length or 0]) + way.pads
        ids, mask, positions = (np.zeros((len(texts), width), np.int64) for _ in range(3))
        firsts = [width - length if way.side == "left" else 0 for length in lengths]
        for row, (text, first) in enumerate(zip(texts, firsts, strict=True)):
            place = slice(first, first + len(text))
            ids[row, place], mask[row, place] = text, 1
            positions[row, place] = range(len(text)) if way.positions is None else way.positions[: len(text)]
        scores, past = np.zeros((len(texts), width)), None
        chunk = way.chunk or width
        last = None
        for start in range(0, width, chunk):
            stop = min(start + chunk, width)
            logits, *past = self._call(ids[:, start:stop], mask[:, :stop], positions[:, start:stop], past)
            logits = log_softmax(logits.astype(np.float64))
            before = logits if last is None else np.concatenate([last, logits], 1)
            wanted = ids[:, stop - before.shape[1] + 1 : stop, None]
            scores[:, stop - before.shape[1] + 1 : stop] = np.take_along_axis(before[:, :-1], wanted, 2)[..., 0]
            last = logits[:, -1:]
        pairs = zip(scores, firsts, lengths, strict=True)
        return [row[first + 1 : first + length].tolist() for row, first, length in pairs]

    def _call(self, ids: Any, mask: Any, positions: Any, past: Sequence[Any] | None) -> list[Any]:
        values = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        values["use_cache_branch"] = np.array([past is not None])
        feeds = {name: values[name] for name in _KNOWN if name in self._inputs}
        for place, name in enumerate(self._past):
            feeds[name] = self._make_empty(name, len(ids)) if past is None else past[place]
        for name, value in feeds.items():
            kind = self._inputs[name].type
            if kind == "tensor(int32)":
                feeds[name] = value.astype(np.int32)
        try:
            return list(self._session.run(self._outputs, feeds))
        except Exception as fault:  # as above
            raise CheckpointError(_shorten(fault)) from fault

    def _make_empty(self, name: str, rows: int) -> Any:
        """Make a KV cache of no tokens: of [batch, heads, tokens, width], only the second and last size are fixed."""
        shape = [size if isinstance(size, int) else None for size in self._inputs[name].shape]
        if len(shape) != 4 or shape[1] is None or shape[3] is None:
            raise CheckpointError(
                f"{self.name}: the input {name} has the shape {self._inputs[name].shape}; "
                "only caches [batch, heads, tokens, width] with fixed heads and width can be filled"
            )
        return np.zeros((rows, shape[1], 0, shape[3]), _TYPES.get(self._inputs[name].type, np.float32))


def _check_names(path: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    unknown = [name for name in inputs if name not in _KNOWN and not name.startswith("past")]
    missing = [name for name, names in (("input_ids", inputs), ("logits", outputs)) if name not in names]
    if missing or unknown:
        faults = [f"has no {name}" for name in missing] + [f"needs {name}, which is not known here" for name in unknown]
        raise CheckpointError(
            f"{path} {' and '.join(faults)}: export a decoder with the inputs input_ids, attention_mask, position_ids, "
            "past_key_values.* and the outputs logits, present.*"
        )


def _read_config(path: Path) -> dict[str, Any]:
    """Return the configuration that Optimum writes beside an export; empty where there is none that can be read."""
    try:
        return read_json(path.parent / "config.json")
    except CheckpointError:
        return {}


def _shorten(fault: Exception) -> str:
    """Return what ONNX Runtime says on one line, without its codes."""
    return re.sub(r"\s+", " ", str(fault).rpartition("Status Message: ")[2])[:160]


class _Opener:
    """A file ``*.onnx``, or a folder of Optimum with ``model.onnx``."""

    def recognises(self, name: str) -> bool:
        """Return whether it is such a file, or a folder with one and no weights of torch."""
        path = Path(name)
        return path.suffix == ".onnx" or ((path / "model.onnx").is_file() and not any(path.glob("*.safetensors")))

    def open(self, name: str, model: str | None = None) -> OnnxRuntime:
        """Open it. Raises UsageError where there is no such file, CheckpointError where it cannot be read."""
        path = Path(name) if Path(name).suffix == ".onnx" else Path(name) / "model.onnx"
        if not path.is_file():
            raise UsageError(f"{name} is no file: name an exported model, model.onnx")
        return OnnxRuntime(str(path))


RUNTIMES["onnx"] = _Opener()
