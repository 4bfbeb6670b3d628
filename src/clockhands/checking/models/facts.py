"""What is known of a model before anything is judged: how position enters, how long its texts may be."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from clockhands.attention import list_installed
from clockhands.checking.models.adapter import Adapter, accepts, device_of, list_lookups
from clockhands.models.facts import find_claimed_length, find_count
from clockhands.schemes.scheme import Declares, Scheme

_TABLE = re.compile(
    r"(^|\.)(wpe|pos_emb\w*|pos_embed\w*|position_embedding\w*|embed_positions|positions?_emb\w*|embedding_?positions?|"
    r"learned_pos\w*|position_enc\w*|positional\w*|pos_encoding|position_ids_embedding)(\.|$)"
)
_TRIED = 8
_SEEN = re.compile(r"(^|\.)(visual|vision\w*|audio\w*)(\.|$)")
_RECURRENT = re.compile(
    r"Mamba|Rwkv|xLSTM|mLSTM|Recurrent|GatedDelta|LinearAttention|LightningAttention|ShortConv|KimiDelta|Mixer2|Conv1d"
)
_STRETCHED = ("'dynamic'", "'longrope'", "'su'")


@dataclass(frozen=True)
class Facts:
    """What is known before anything is judged.

    ``absolute``: position enters as a vector of its own, so a common shift must change the logits. ``recurrent``: a
    state runs along the text, so pads and documents before a token reach it unless they are kept out by hand.
    ``stretches``: the frequencies depend on the length read so far (dynamic NTK, LongRoPE).
    ``first``: the number of the first position by default (RoBERTa counts from ``padding_idx + 1``).
    """

    scheme: str = "unknown"
    absolute: bool = False
    recurrent: bool = False
    hashed: bool = False
    window: int | None = None
    limit: int | None = None
    first: int = 0
    stretches: bool = False


def detect(adapter: Adapter) -> Facts:
    """Read from the module and its configuration how position enters; behaviour decides the rest."""
    module: nn.Module | None = getattr(adapter, "module", None)
    stretches, absolute = bool(getattr(adapter, "stretches", False)), bool(getattr(adapter, "absolute", False))
    longest: int | None = getattr(adapter, "max_length", None)
    if module is None:
        return Facts(absolute=absolute, limit=longest, stretches=stretches)
    promises = [part.declares for part in module.modules() if isinstance(part, Scheme)]
    if promises:
        return replace(_read_declared(module, promises), first=_find_first_position(adapter))
    config = getattr(adapter, "config", None) or getattr(module, "config", None)
    # Of a model that reads images too, only the parts of the text: what reads images has places of its own.
    parts = dict(module.named_modules())
    wraps_text = any("language_model" in name for name in parts)

    def is_of_text(name: str) -> bool:
        return "language_model" in name if wraps_text else not _SEEN.search(name)

    tensors = [*module.named_parameters(), *module.named_buffers()]
    names_of_tables = [name for name, tensor in tensors if tensor.dim() >= 2 and _TABLE.search(name)]
    names_of_tables += [name for name, part in parts.items() if "Sinusoidal" in type(part).__name__]
    tables = [name for name in names_of_tables if is_of_text(name)]
    tables += find_position_tables(adapter, module) if config is None else []
    classes = {type(part).__name__ for name, part in parts.items() if is_of_text(name)}
    recurrent = any(_RECURRENT.search(name) for name in classes)
    shown = {
        "RoPE": any("rotary" in name.lower() or "rope" in name.lower() for name in classes),
        "absolute": bool(tables),
        "relative": any("Relative" in name or "T5Attention" in name for name in classes),
        "recurrence": recurrent,
    }
    alibi = getattr(config, "alibi", False) or getattr(config, "model_type", "") in ("bloom", "mpt")
    facts = Facts(
        scheme="ALiBi" if alibi else " + ".join(name for name, present in shown.items() if present) or "none found",
        absolute=bool(tables) or absolute,
        recurrent=recurrent,
        hashed=any("LSH" in name for name in classes),
        window=find_count(config, "sliding_window", "attention_window", "window_size", "local_attention"),
        limit=find_claimed_length(config, source=not getattr(adapter, "per_token", True)) or longest,
        stretches=stretches or any(kind in str(getattr(config, "rope_parameters", None)) for kind in _STRETCHED),
        first=_find_first_position(adapter),
    )
    layers = list_installed(module)
    if not layers:
        return facts
    added = [entry.scheme for entry in layers.values() if entry is not None]
    new = _read_declared(nn.ModuleList(added), [scheme.declares for scheme in added])
    whole = all(entry is not None and entry.rotary == "off" for entry in layers.values())
    named = [] if facts.scheme == "none found" or (whole and facts.scheme == "RoPE") else facts.scheme.split(" + ")
    named += [name for name in new.scheme.split(" + ") if name != "NoPosition" or not named]
    return replace(
        facts,
        scheme=" + ".join(dict.fromkeys(named)),
        absolute=facts.absolute or new.absolute,
        stretches=new.stretches or (facts.stretches and not whole),
    )


def _read_declared(module: nn.Module, promises: list[Declares]) -> Facts:
    names = dict.fromkeys(type(part).__name__ for part in module.modules() if isinstance(part, Scheme))
    # What has no positions, such as attention to a source, goes without saying.
    named = [name for name in names if name not in ("NoPosition", "Composition")]
    return Facts(
        scheme=" + ".join(named or names),
        absolute=not all(promise.translation_invariant for promise in promises),
        limit=min((promise.max_length for promise in promises if promise.max_length is not None), default=None),
        stretches=any(promise.depends_on_length for promise in promises),
    )


def find_position_tables(adapter: Adapter, module: nn.Module) -> list[str]:
    """Return the names of the embeddings of an author's own model that are read at the place of each token.

    Whatever they are called; found by watching what a text of eight falling token ids looks up.
    """
    falling = torch.arange(_TRIED, device=device_of(adapter)).flip(0).unsqueeze(0)
    looked_up = list_lookups(module, partial(adapter.logits, falling))
    rising = [name for name, _, ids in looked_up if len(ids) == _TRIED and bool((ids.diff() == 1).all())]
    return list(dict.fromkeys(rising))


def _find_first_position(adapter: Adapter) -> int:
    """Return the number of the first default position, found by trying: explicit positions that change nothing."""
    if not accepts(adapter, "positions"):
        return 0
    ids = torch.arange(_TRIED, device=device_of(adapter)).add(min(10, adapter.vocabulary - _TRIED)).unsqueeze(0)
    with torch.no_grad():
        default = adapter.logits(ids)
        for start in range(4):
            positions = torch.arange(start, start + _TRIED, device=ids.device).unsqueeze(0)
            if torch.allclose(adapter.logits(ids, None, positions), default, rtol=1e-4, atol=1e-4):
                return start
    return 0
