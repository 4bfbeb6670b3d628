"""Open Hugging Face models of other projects, and refuse those that cannot be measured before weights are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.pretrained import (
    count_bytes,
    explain_faults,
    is_known,
    is_own,
    list_weight_files,
    load_model,
    read_configuration,
    refuse_code,
    refuse_not_finite,
)

__all__ = ["load_foreign_model", "measure_weight_files", "read_checked_config", "refuse_unknown_positions"]


def read_checked_config(source: str | Path, *, trust_remote_code: bool = False) -> dict[str, Any]:
    """Read the ``config.json`` of a folder or hub name, and return it as it is written; no weights are read.

    Raises CheckpointError for a missing path, a model type that transformers does not know, and a model that needs code
    of its own unless ``trust_remote_code``.
    """
    raw = read_configuration(source)
    refuse_code(raw, source, trust_remote_code=trust_remote_code)
    if not is_own(raw) and not is_known(raw) and "auto_map" not in raw:
        raise CheckpointError(f"{source} has model_type {raw.get('model_type')!r}, which transformers does not know")
    return raw


def measure_weight_files(source: str | Path, raw: Mapping[str, Any]) -> int:
    """Return the size of a folder's weights in bytes as float32; 0 for a hub name, whose files are not downloaded yet.

    Only headers are read. Raises CheckpointError for pickled, missing or damaged weights.
    """
    return sum(map(count_bytes, list_weight_files(Path(source), raw))) if Path(source).is_dir() else 0


def load_foreign_model(auto_class: Any, source: str | Path, what: str = "the model in", **options: Any) -> Any:
    """Load a model of transformers, from a folder or by its hub name; weights are read from safetensors only.

    Args:
        auto_class: an Auto class of transformers, which decides what is built around the layers.
        source: the folder or the hub name.
        what: what the message calls it, in front of the source.
        options: those of ``from_pretrained``.

    Raises CheckpointError for weights that are NaN or infinite, and for whatever a library raises: "cannot open
    ``what`` ``source``: ...".
    """
    with explain_faults(source, what):
        model = load_model(auto_class, source, **options)
    refuse_not_finite(model.named_parameters(), source)
    return model


def refuse_unknown_positions(raw: Mapping[str, Any], source: str | Path) -> None:
    """Raise CheckpointError for a position setting that transformers would ignore or that no formula here covers."""
    embedding_type = raw.get("position_embedding_type")
    if isinstance(embedding_type, str) and embedding_type.startswith("relative"):
        raise CheckpointError(
            f"{source} sets position_embedding_type = {embedding_type!r}; transformers 5 ignores that and would load "
            "the model as if its positions were absolute, so nothing measured would be true of it"
        )
    if raw.get("model_type") == "mpt" and (raw.get("attn_config") or {}).get("alibi") is False:
        raise CheckpointError(
            f"{source} sets attn_config.alibi = False; transformers ignores that and adds ALiBi all the same, while "
            "the learned table that the model was trained with is never read, so nothing measured would be true of it"
        )
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    known = {"default", *ROPE_INIT_FUNCTIONS}
    for key, value in _list_rope_types(raw):
        if value not in known:
            raise CheckpointError(
                f"{source} sets {key} = {value!r}; the rope types understood are {', '.join(sorted(known))}"
            )


def _list_rope_types(
    raw: Mapping[str, Any], prefix: str = "", *, inside_rope: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield every rope type of a configuration with its key; a model may have one for each kind of layer or part.

    ``inside_rope``: ``raw`` lies within the rope parameters of a model.
    """
    for key, value in raw.items():
        if not isinstance(value, dict) or key in ("vision_config", "audio_config"):
            continue  # nothing is measured in the parts of a model that read images or sound
        where = f"{prefix}{key}"
        is_rope = inside_rope or key in ("rope_scaling", "rope_parameters")
        if is_rope:
            for name in ("rope_type", "type"):
                if isinstance(value.get(name), str):
                    yield f"{where}.{name}", value[name]
                    break
        yield from _list_rope_types(value, f"{where}.", inside_rope=is_rope)
