"""What was measured already, in a file beside the result, under all that it depends on; a stopped command goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from clockhands import __version__
from clockhands.errors import ClockhandsError, DataError
from clockhands.extension.reading import Drift, Stream
from clockhands.extension.retrieval import Retrieval
from clockhands.files import write_text
from clockhands.models import LanguageModel
from clockhands.models.streaming import is_streamed
from clockhands.pretrained import list_weight_files, read_configuration, read_json
from clockhands.shapes import Float

ELSEWHERE = ("_name_or_path", "_commit_hash")
"""Keys of a configuration that say where a model was opened from, not what it is."""


class Archive:
    """Results by what they are of; each is written as soon as it is measured.

    ``path``: the file; None keeps nothing. ``signature``: what all results depend on; a file with another one is left
    aside and written again. Raises DataError for a file that this class did not write, or that was changed since.
    """

    def __init__(self, path: Path | None, signature: str = "") -> None:
        self.path, self.signature = path, signature
        self.results: dict[str, Any] = {}
        if path is None or not path.exists():
            return
        try:
            read = read_json(path)
            sound = read["digest"] == _hash_text(json.dumps([read["signature"], read["results"]]))
        except (ClockhandsError, KeyError, TypeError):
            sound = False
        if not sound:
            raise DataError(f"{path} is damaged, so the command cannot go on from it; remove the file")
        if read["signature"] == signature:
            self.results = read["results"]

    def keep(self, key: str, measure: Callable[[], Any]) -> Any:
        """Return what is kept under a key, as JSON holds it; measure and keep it, if nothing is."""
        if key not in self.results:
            self.results[key] = json.loads(json.dumps(measure(), default=lambda array: array.tolist()))
            if self.path is not None:
                digest = _hash_text(json.dumps([self.signature, self.results]))
                kept = {"signature": self.signature, "results": self.results, "digest": digest}
                write_text(self.path, json.dumps(kept))
        return self.results[key]

    def keep_array(self, key: str, measure: Callable[[], Float[np.ndarray, " N"]]) -> Float[np.ndarray, " N"]:
        """Do as ``keep`` with an array."""
        return np.array(self.keep(f"{key}/array", measure))

    def keep_drift(self, key: str, measure: Callable[[], Drift]) -> Drift:
        """Do as ``keep`` with a ``Drift``."""
        kept = self.keep(f"{key}/drift", lambda: asdict(measure()))
        return Drift(tuple(kept["lengths"]), kept["tail"], np.array(kept["losses_NR"]))

    def keep_retrieval(self, key: str, measure: Callable[[], Retrieval]) -> Retrieval:
        """Do as ``keep`` with a ``Retrieval``."""
        kept = dict(self.keep(f"{key}/retrieval", lambda: asdict(measure())))
        for name in ("ranks", "control", "by_depth"):
            kept[name] = {task: np.array(rows) for task, rows in kept[name].items()}
        return Retrieval(**{**kept, "lengths": tuple(kept["lengths"])})


def _hash_text(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def make_signature(model: LanguageModel, stream: Stream, settings: dict[str, Any]) -> str:
    """Return hashes of a model's weights and configuration, of its tokenizer and of its tokens, and the settings.

    ``settings``: whatever else results depend on, such as the trained length; written as JSON. Where the model lies is
    left out: the same model in another folder gives the same results.
    """
    parts = {
        "version": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": model.device.type,
        "weights": hash_weights(model),
        "tokenizer": _hash_text(json.dumps(model.tokenizer.get_vocab(), sort_keys=True)),
        "text": hashlib.blake2b(stream.tobytes(), digest_size=8).hexdigest(),
    }
    return json.dumps({**parts, **settings}, sort_keys=True)


def hash_weights(model: LanguageModel) -> str:
    """Return a hash of a model's configuration and of its weights, or of the files that they stay in.

    Weights that stay in files of no known folder, those of a name on the hub, count by that name and its commit.
    """
    digest, folder = hashlib.blake2b(digest_size=16), Path(model.source)
    raw = {key: value for key, value in model.model.config.to_dict().items() if key not in ELSEWHERE}
    digest.update(json.dumps(raw, sort_keys=True, default=str).encode())
    if not is_streamed(model.model):
        for name, weight in sorted(model.model.state_dict().items()):
            flat = weight.detach().cpu().contiguous().reshape(-1)
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            digest.update(memoryview(flat.view(torch.uint8).numpy()))
    elif folder.is_dir():
        for path in list_weight_files(folder, read_configuration(folder)):
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "blake2b").digest())
    else:
        digest.update(f"{model.source} {getattr(model.model.config, '_commit_hash', None)}".encode())
    return digest.hexdigest()
