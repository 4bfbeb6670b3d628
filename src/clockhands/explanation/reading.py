"""Opens a configuration of any program: finds out which format a file has, and reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clockhands.errors import CheckpointError, UsageError, describe_unknown
from clockhands.explanation.huggingface import PROGRAMS, lay_over, read_huggingface
from clockhands.explanation.llama_cpp import read_gguf
from clockhands.explanation.llama_cpp_settings import apply_llama_flags
from clockhands.explanation.other_files import read_megatron, read_params
from clockhands.explanation.own_runs import read_own
from clockhands.explanation.table import Positions
from clockhands.explanation.unread import mark_unread
from clockhands.pretrained import is_own, read_configuration, read_json
from clockhands.reading import read_document

LARGEST_ARGUMENTS = 1 << 20


def read_positions(
    source: str | Path, program: str = "transformers5", overrides: str | None = None, llama_flags: str = ""
) -> Positions:
    """Read what a file says of positions; no weights are read.

    ``source``: a ``config.json`` or a folder that holds one, a name on the Hugging Face hub, a GGUF file, the
    ``params.json`` of Mistral, Meta or ExecuTorch, or a text file with the arguments of a Megatron training.
    ``program``: who reads a ``config.json``, a key of `PROGRAMS`. ``overrides``: vLLM's ``--hf-overrides``, laid over a
    ``config.json``. ``llama_flags``: flags about position of llama.cpp, laid over any file.

    Raises CheckpointError for what cannot be read, UsageError for an unknown program and for overrides of another file.
    """
    if program not in PROGRAMS:
        raise UsageError(describe_unknown("program", program, PROGRAMS))
    path = Path(source)
    if path.is_dir():
        path = next((path / name for name in ("config.json", "params.json") if (path / name).exists()), path)
    is_config = not path.is_file() or (path.suffix == ".json" and path.name != "params.json")
    if overrides is not None and not is_config:
        raise UsageError(f"--hf-overrides change a config.json, and {source} is none")
    if path.suffix == ".gguf" and path.is_file():
        return read_gguf(path, llama_flags)
    name, raw = str(source), dict[str, Any]()
    if is_config or path.name == "params.json":
        raw = read_json(path) if path.is_file() else read_configuration(source)
    is_params = path.name == "params.json" or ("model_type" not in raw and "dim" in raw and "n_heads" in raw)
    if overrides is not None and (is_params or is_own(raw)):
        raise UsageError(f"--hf-overrides change a config.json of transformers, and that of {source} is none")
    if is_params:
        positions = read_params(raw, name)
    elif not is_config:
        positions = read_megatron(read_document(path, CheckpointError, "the arguments", LARGEST_ARGUMENTS), name)
    elif is_own(raw):
        positions = read_own(raw, name)
    else:
        raw = raw if overrides is None else lay_over(raw, overrides)

        def read(changed: Mapping[str, Any]) -> Positions:
            return read_huggingface(changed, name, program)

        positions = mark_unread(raw, read(raw), read)
    return apply_llama_flags(positions, llama_flags) if llama_flags else positions
