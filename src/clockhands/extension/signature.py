"""What every measured result depends on, as one short text: results under another one are measured anew."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
import transformers

from clockhands import __version__
from clockhands.extension.text import Stream
from clockhands.models import LanguageModel
from clockhands.models.streaming import is_streamed
from clockhands.pretrained import list_weight_files, read_configuration

__all__ = ["hash_weights", "make_signature"]

CHUNK = 2**24
"""Bytes of a weight file that are read at a time."""
ELSEWHERE = ("_name_or_path", "_commit_hash", "transformers_version")
"""Keys of a configuration that say where a model was opened from and by what, not what it is."""


def make_signature(model: LanguageModel, stream: Stream, settings: dict[str, Any]) -> str:
    """Return hashes of a model's weights and configuration, of its tokenizer and of its tokens, and the settings.

    ``settings``: whatever else results depend on, such as the trained length; written as JSON. Where the model lies is
    left out: the same model in another folder gives the same results.
    """
    tokenizer = hashlib.blake2b(json.dumps(model.tokenizer.get_vocab(), sort_keys=True).encode(), digest_size=8)
    return json.dumps(
        {
            "version": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "device": model.device.type,
            "weights": hash_weights(model),
            "tokenizer": tokenizer.hexdigest(),
            "text": hashlib.blake2b(stream.tobytes(), digest_size=8).hexdigest(),
            **settings,
        },
        sort_keys=True,
    )


def hash_weights(model: LanguageModel) -> str:
    """Return a hash of a model's configuration and of its weights, or of the files that they stay in.

    Weights that stay in files of no known folder, those of a name on the hub, count by that name and its commit.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(_list_unusual(model.model.config), sort_keys=True).encode())
    if is_streamed(model.model):
        _hash_files(model, digest)
        return digest.hexdigest()
    for name, weight in sorted(model.model.state_dict().items()):
        flat = weight.detach().cpu().contiguous().reshape(-1)
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(memoryview(flat.view(torch.uint8).numpy()))
    return digest.hexdigest()


def _list_unusual(config: Any) -> Any:
    """Return what a configuration says beside the defaults of its class.

    A field that a later version of a library adds, with its old meaning as the default, changes nothing.
    """
    try:
        usual = json.loads(type(config)().to_json_string(use_diff=False))
    except Exception:  # some classes need arguments, and raise anything without
        usual = {}
    return _leave_out(json.loads(config.to_json_string(use_diff=False)), usual)


def _leave_out(value: Any, usual: Any) -> Any:
    """Return a configuration without ``ELSEWHERE`` and without what is as usual, at any depth."""
    if not isinstance(value, dict):
        return value
    known = usual if isinstance(usual, dict) else {}
    return {
        key: _leave_out(inner, known.get(key))
        for key, inner in value.items()
        if key not in ELSEWHERE and (key not in known or inner != known[key])
    }


def _hash_files(model: LanguageModel, digest: Any) -> None:
    """Add the files of weights to a digest; of a name on the hub, the name and its commit."""
    folder = Path(model.source)
    if not folder.is_dir():
        digest.update(f"{model.source} {getattr(model.model.config, '_commit_hash', None)}".encode())
        return
    for path in list_weight_files(folder, read_configuration(folder)):
        with path.open("rb") as stream:
            while piece := stream.read(CHUNK):
                digest.update(piece)
