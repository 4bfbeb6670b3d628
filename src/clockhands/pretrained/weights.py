"""Weights that somebody else saved: safetensors only, judged by their headers before memory is taken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from clockhands.errors import CheckpointError, ClockhandsError
from clockhands.machine import measure_free_memory
from clockhands.pretrained.file_names import ADAPTER, CONFIG, INDEX, PICKLES, WEIGHTS
from clockhands.pretrained.guards import first_line
from clockhands.reading import read_json, refuse_strange_file
from clockhands.shapes import Tensor

__all__ = ["ROOM", "check_fits", "check_weights", "count_bytes", "list_weight_files", "load_state", "refuse_not_finite"]

ROOM = 1.2
"""What a model needs besides its weights, as a factor."""


def check_weights(folder: Path, raw: Mapping[str, Any] | None = None) -> None:
    """Raise CheckpointError unless the weights of a folder can be read without running code and fit the memory.

    ``raw``: its configuration, which may name the file. Only the headers are read.
    """
    check_fits(sum(map(count_bytes, list_weight_files(folder, raw or {}))), folder)


def list_weight_files(folder: Path, raw: Mapping[str, Any]) -> list[Path]:
    """List the safetensors files that hold a model's weights.

    Raises CheckpointError for weights that are pickled or missing, for an index that leads elsewhere, and for an
    adapter, which is a part of another model.
    """
    if (folder / ADAPTER).exists():
        raise CheckpointError(
            f"{folder} holds an adapter of another model ({ADAPTER}), which is not put into it here; merge the two "
            "(merge_and_unload of peft), and save that"
        )
    named = raw.get("transformers_weights")
    if named is not None and not (isinstance(named, str) and named.endswith((".safetensors", f".{INDEX[6:]}"))):
        raise CheckpointError(f"{folder} names {named!r} as its weights in {CONFIG}; only safetensors are read")
    chosen = [named] if named else [WEIGHTS, INDEX]
    first = next((folder / name for name in chosen if (folder / name).exists() or (folder / name).is_symlink()), None)
    shards = sorted(path for path in folder.glob("shard-*.safetensors"))
    if first is None and not shards:
        _refuse_pickle(folder)
        raise CheckpointError(f"{folder} holds no weights ({WEIGHTS})")
    files = shards if first is None else _list_shards(first) if first.name.endswith(".json") else [first]
    for path in files:
        refuse_strange_file(path)
    return files


def _list_shards(index: Path) -> list[Path]:
    """List the files that an index names, all of them safetensors beside it."""
    table = read_json(index).get("weight_map")
    names = set(table.values()) if isinstance(table, dict) and all(isinstance(n, str) for n in table.values()) else ()
    if not names:
        raise CheckpointError(f"{index} cannot be read: it names no files (weight_map)")
    for name in sorted(names):
        if not name.endswith(".safetensors") or Path(name).name != name:
            raise CheckpointError(f"{index} names {name!r} for weights; only safetensors files beside it are read")
    return [index.parent / name for name in sorted(names)]


def _refuse_pickle(folder: Path) -> None:
    """Raise CheckpointError if a folder holds its weights as a pickle only."""
    pickles = sorted(path.name for path in folder.iterdir() if path.name.endswith((*PICKLES, ".bin.index.json")))
    if pickles:
        raise CheckpointError(
            f"{folder} holds its weights only as pickle ({pickles[0]}), which can run any code when it is read; where "
            "you trust it, load it with transformers and write it again with save_pretrained, as safetensors"
        )


def count_bytes(path: Path) -> int:
    """Count what the tensors of a safetensors file take as float32; only its header is read. Raises CheckpointError."""
    try:
        refuse_strange_file(path)
        with safe_open(path, framework="pt") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    except ClockhandsError:
        raise
    except Exception as fault:
        raise CheckpointError(
            f"{path} is no safetensors file, or a damaged one: {first_line(fault)}; put back a whole copy"
        ) from fault
    return sum(4 * math.prod(shape) for shape in shapes)


def check_fits(needed: int, source: str | Path, available: int | None = None) -> None:
    """Raise CheckpointError if a model of ``needed`` bytes does not fit into ``available`` (default: what is free)."""
    if available is None:
        available = measure_free_memory()
    if needed * ROOM > available:
        raise CheckpointError(
            f"{source} needs {needed / 2**30:.1f} GiB for its weights and more to run, and {available / 2**30:.1f} GiB "
            "of memory are free; use a machine with more, or a smaller model of the family"
        )


def load_state(path: Path) -> Any:
    """Read what torch saved of an optimiser, a schedule or random numbers: tensors and plain data, and no code.

    Raises what torch raises for anything else.
    """
    from transformers.trainer_pt_utils import safe_globals

    refuse_strange_file(path)
    with safe_globals():
        return torch.load(path, map_location="cpu", weights_only=True)


@torch.no_grad()
def refuse_not_finite(weights: Iterable[tuple[str, Tensor]], source: str | Path) -> None:
    """Raise CheckpointError for the first weight that is NaN or infinite, by name: whatever it touches is NaN.

    The least and the greatest number take one pass over the memory (some seconds for a model of seven billion) and are
    finite only if every number is.
    """
    for name, weight in weights:
        if weight.is_meta or not weight.is_floating_point() or not weight.numel():
            continue
        # No order is defined for numbers of 8 bits.
        numbers = weight if weight.itemsize > 1 else weight.float()
        ends = torch.aminmax(numbers)
        if math.isfinite(float(ends.min)) and math.isfinite(float(ends.max)):
            continue
        bad = int((~torch.isfinite(numbers)).sum())
        raise CheckpointError(
            f"the weights in {source} are damaged: {bad:,} of {weight.numel():,} numbers of {name} are NaN or "
            "infinite; put back a whole copy, or an earlier checkpoint"
        )
