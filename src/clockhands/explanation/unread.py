"""Finds the keys about position of a ``config.json`` that change nothing: each is changed, and the file read again."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clockhands.errors import CheckpointError, show_value
from clockhands.explanation.filled import NOT_POSITION
from clockhands.explanation.numbers import POSITION
from clockhands.explanation.table import NOT_KNOWN, Positions

ConfigReader = Callable[[Mapping[str, Any]], Positions]
"""Reads a whole configuration."""

KNOWN = re.compile(
    "rope_theta|rope_scaling|rope_parameters|rope_type|type|factor|attention_factor|attn_factor|"
    "original_max_position_embeddings|beta_fast|beta_slow|mscale|mscale_all_dim|truncate|low_freq_factor|"
    "high_freq_factor|short_factor|long_factor|partial_rotary_factor|head_dim|rope_local_base_freq|global_rope_theta|"
    "local_rope_theta|rotary_pct|rotary_emb_base|rotary_dim|sliding_window|use_sliding_window|max_window_layers|"
    "_?sliding_window_pattern|layer_types|attention_chunk_size|no_rope_layers|no_rope_layer_interval|"
    "max_position_embeddings|rope_interleave|llama_4_scaling_beta|global_head_dim|local_attention|"
    "attn_temperature_tuning|floor_scale|attn_scale|qk_rope_head_dim|qk_nope_head_dim|v_head_dim|qk_head_dim|"
    "index_head_dim"
)
"""Keys whose meaning is known: where they change nothing, they are not read. Others may mean what is not known here."""
TABLES = ("rope_scaling", "rope_parameters")
"""Tables of which every key is about position."""


def mark_unread(raw: Mapping[str, Any], positions: Positions, read: ConfigReader) -> Positions:
    """Return what was read with the keys about position that change nothing: ``unread``; ``strange`` if not known."""
    unread: list[str] = []
    strange: list[tuple[str, str]] = []
    bare = copy.deepcopy(dict(raw))
    for path, value in _list_keys(raw, ()):
        if any(_differs(changed, positions, read) for changed in _change(raw, path, value)):
            continue
        _set(bare, path, None)
        if KNOWN.fullmatch(path[-1]) and not positions.entry.startswith(NOT_KNOWN):
            unread.append(".".join(path))
        else:
            strange.append((".".join(path), show_value(value)))
    # Without them the other keys are found in which the same numbers stand.
    if (unread or strange) and not _differs(bare, positions, read):
        positions = dataclasses.replace(positions, layers=read(bare).layers)
    return dataclasses.replace(positions, unread=(*positions.unread, *unread), strange=tuple(strange))


def _set(raw: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set a key within tables, or take it out (None)."""
    for key in path[:-1]:
        raw = raw[key]
    if value is None:
        del raw[path[-1]]
    else:
        raw[path[-1]] = value


def _list_keys(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield keys about position with their values: those of rope tables all, but for the parts that read pictures."""
    for key, value in table.items():
        if isinstance(value, Mapping) and not path and key not in TABLES and _looks_like_position(key):
            yield (key,), value
        elif isinstance(value, Mapping):
            if not any(word in key for word in ("vision", "audio", "quantization", "2label", "label2")):
                yield from _list_keys(value, (*path, key))
        elif value is not None and key not in ("rope_type", "type"):
            inside = any(table in TABLES for table in path)
            yield from [((*path, key), value)] if inside or _looks_like_position(key) else []


def _looks_like_position(key: str) -> bool:
    return bool(POSITION.search(key)) and not NOT_POSITION.search(key)


def _change(raw: Mapping[str, Any], path: tuple[str, ...], value: Any) -> Iterator[dict[str, Any]]:
    """Yield the configuration without a key, and with other values of it."""
    others: list[Any] = []
    if isinstance(value, bool):
        others = [not value]
    elif isinstance(value, (int, float)):
        others = [2 * value + 2]
    elif isinstance(value, list) and value:
        others = [value[::-1], [2 * item + 2 if isinstance(item, float) else item for item in value], value[:1]]
    for other in (None, *others):
        changed = copy.deepcopy(dict(raw))
        _set(changed, path, other)
        yield changed


def _differs(changed: Mapping[str, Any], positions: Positions, read: ConfigReader) -> bool:
    """Whether a changed configuration means something else, or nothing any more."""
    try:
        other = read(changed)
    except CheckpointError:
        return True
    same = ("layers", "entry", "trained_length", "claimed_length")
    return any(getattr(other, name) != getattr(positions, name) for name in same)
