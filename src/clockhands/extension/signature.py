"""What every measured result depends on, as one short text: results under another one are measured anew."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from clockhands import __version__
from clockhands.extension.text import Stream
from clockhands.pretrained import list_weight_files, read_configuration
from clockhands.runs import LanguageModel
from clockhands.runs.streaming import is_streamed

__all__ = ["hash_weights", "make_signature"]

CHUNK = 2**24
"""Bytes of a weight file that are read at a time."""


def make_signature(model: LanguageModel, stream: Stream, settings: dict[str, Any]) -> str:
    """Return the name of a model with its weights and configuration, a hash of its tokens, and the settings.

    ``settings``: whatever else results depend on, such as the trained length; written as JSON.
    """

    tokenizer = hashlib.blake2b(json.dumps(model.tokenizer.get_vocab(), sort_keys=True).encode(), digest_size=8)
    return json.dumps(
        {
            "version": __version__,
            "torch": torch.__version__,
            "device": model.device.type,
            "model": model.source,
            "weights": hash_weights(model),
            "tokenizer": tokenizer.hexdigest(),
            "text": hashlib.blake2b(stream.tobytes(), digest_size=8).hexdigest(),
            **settings,
        },
        sort_keys=True,
    )


def hash_weights(model: LanguageModel) -> str:
    """Return a hash of a model's configuration and of its weights, or of the files that they stay in."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(model.model.config.to_json_string(use_diff=False).encode())
    if is_streamed(model.model):
        digest.update(str(getattr(model.model.config, "_commit_hash", None)).encode())  # of a name on the hub
        folder = Path(model.source)
        for path in list_weight_files(folder, read_configuration(folder)) if folder.is_dir() else ():
            with path.open("rb") as stream:
                while piece := stream.read(CHUNK):
                    digest.update(piece)
        return digest.hexdigest()
    for name, weight in sorted(model.model.state_dict().items()):
        flat = weight.detach().cpu().contiguous().reshape(-1)
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(memoryview(flat.view(torch.uint8).numpy()))
    return digest.hexdigest()
