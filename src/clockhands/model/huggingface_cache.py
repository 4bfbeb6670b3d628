"""The KV cache under the name that transformers gives it in arguments and outputs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from transformers.cache_utils import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast

from clockhands.errors import UsageError

__all__ = ["CACHE_NAME", "choose_cache", "get_cache", "name_cache"]

CACHE_NAME = "cache" if "cache" in {field.name for field in fields(CausalLMOutputWithPast)} else "past_key_values"
"""``cache`` since transformers 5.24, which takes the older name too and warns; ``past_key_values`` before."""


def choose_cache(cache: Cache | None, past_key_values: Cache | None) -> Cache | None:
    """Return the KV cache that was passed under either name, or None. Raises UsageError for one under each."""
    if cache is not None and past_key_values is not None:
        raise UsageError("cache and past_key_values are two names of the same KV cache; pass one of them")
    return past_key_values if cache is None else cache


def name_cache(cache: Any) -> dict[str, Any]:
    """Return a KV cache as the named argument, or the field of an output, that transformers calls it."""
    return {CACHE_NAME: cache}


def get_cache(output: Any) -> Any:
    """Return the KV cache of an output of ``forward`` or ``generate``; None where it has none."""
    return getattr(output, CACHE_NAME, None)
