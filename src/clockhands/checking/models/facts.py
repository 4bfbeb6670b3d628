"""What is known of a model before anything is judged: how position enters, how long its texts may be."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from clockhands.attention import list_installed
from clockhands.checking.models.adapter import Adapter, accepts, device_of
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
    module = getattr(adapter, "module", None)
    stretches = bool(getattr(adapter, "stretches", False))
    if module is None:
        absolute = bool(getattr(adapter, "absolute", False))
        return Facts(absolute=absolute, limit=getattr(adapter, "max_length", None), stretches=stretches)
    config = getattr(adapter, "config", None) or getattr(module, "config", None)
    promises = [m.declares for m in module.modules() if isinstance(m, Scheme)]
    if promises:
        return replace(_declared(module, promises), first=_first_position(adapter, adapter.vocabulary))
    reads = _reads_text(module)
    tables = [name for name, _ in _named(module) if _TABLE.search(name) and reads(name)]
    tables += find_position_tables(adapter, module) if config is None else []
    classes = {type(m).__name__ for name, m in module.named_modules() if reads(name)}
    rotary = any("rotary" in name.lower() or "rope" in name.lower() for name in classes)
    facts = Facts(
        scheme=_scheme(classes, tables, rotary, config),
        absolute=bool(tables) or bool(getattr(adapter, "absolute", False)),
        recurrent=any(_RECURRENT.search(name) for name in classes),
        hashed=any("LSH" in name for name in classes),
        window=find_count(config, "sliding_window", "attention_window", "window_size", "local_attention"),
        stretches=stretches or _stretches(config),
        limit=find_claimed_length(config, source=not getattr(adapter, "per_token", True))
        or getattr(adapter, "max_length", None),
    )
    layers = list_installed(module)
    if layers:
        added = [entry.scheme for entry in layers.values() if entry is not None]
        new = _declared(nn.ModuleList(added), [scheme.declares for scheme in added])
        whole = all(entry is not None and entry.rotary == "off" for entry in layers.values())
        named = [] if facts.scheme == "none found" or (whole and facts.scheme == "RoPE") else facts.scheme.split(" + ")
        named += [name for name in new.scheme.split(" + ") if name != "NoPosition" or not named]
        facts = replace(
            facts,
            scheme=" + ".join(dict.fromkeys(named)),
            absolute=facts.absolute or new.absolute,
            stretches=new.stretches or (facts.stretches and not whole),
        )
    return replace(facts, first=_first_position(adapter, adapter.vocabulary))


def find_position_tables(adapter: Adapter, module: nn.Module) -> list[str]:
    """Return the names of the embeddings of an author's own model that are read at the place of each token.

    Whatever they are called; found by watching what a text of eight falling token ids looks up.
    """
    tables: dict[str, None] = {}

    def watch(name: str) -> Callable[..., None]:
        def look(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            ids = arguments[0] if arguments else None
            places = ids.flatten() if isinstance(ids, torch.Tensor) else torch.zeros(0)
            if len(places) == _TRIED and bool((places.diff() == 1).all()):
                tables[name] = None

        return look

    hooks = [
        part.register_forward_pre_hook(watch(name))
        for name, part in module.named_modules()
        if isinstance(part, nn.Embedding)
    ]
    try:
        falling = torch.arange(_TRIED, device=device_of(adapter)).flip(0).unsqueeze(0)
        with torch.no_grad(), contextlib.suppress(Exception):  # a model may raise anything
            adapter.logits(falling)
    finally:
        for hook in hooks:
            hook.remove()
    return list(tables)


def _reads_text(module: nn.Module) -> Callable[[str], bool]:
    """Return whether a part of the model, by its name, is of the text: what reads images has places of its own."""
    named = any("language_model" in name for name, _ in module.named_modules())
    return lambda name: "language_model" in name if named else not _SEEN.search(name)


def _declared(module: nn.Module, promises: list[Declares]) -> Facts:
    """Of one of our own models: what its schemes declare."""
    limits = [promise.max_length for promise in promises if promise.max_length is not None]
    return Facts(
        scheme=_named_schemes(module),
        absolute=not all(promise.translation_invariant for promise in promises),
        limit=min(limits, default=None),
        stretches=any(promise.depends_on_length for promise in promises),
    )


def _named_schemes(module: nn.Module) -> str:
    """The classes of the schemes; what has no positions, such as attention to a source, goes without saying."""
    names = dict.fromkeys(type(m).__name__ for m in module.modules() if isinstance(m, Scheme))
    return " + ".join([name for name in names if name not in ("NoPosition", "Composition")] or names)


def _named(module: nn.Module) -> list[tuple[str, Any]]:
    tensors = [*module.named_parameters(), *module.named_buffers()]
    sinusoids = [(name, m) for name, m in module.named_modules() if "Sinusoidal" in type(m).__name__]
    return [(name, t) for name, t in tensors if t.dim() >= 2] + [(f"{name}.pos_emb", m) for name, m in sinusoids]


def _scheme(classes: set[str], tables: list[str], rotary: bool, config: Any) -> str:
    if getattr(config, "alibi", False) or getattr(config, "model_type", "") in ("bloom", "mpt"):
        return "ALiBi"
    names = ["RoPE"] if rotary else []
    if tables:
        names.append("absolute")
    if any("Relative" in name or "T5Attention" in name for name in classes):
        names.append("relative")
    if any(_RECURRENT.search(name) for name in classes):
        names.append("recurrence")
    return " + ".join(names) or "none found"


def _stretches(config: Any) -> bool:
    kinds = ("'dynamic'", "'longrope'", "'su'")
    return any(kind in str(getattr(config, "rope_parameters", None)) for kind in kinds)


def _first_position(adapter: Adapter, vocabulary: int) -> int:
    """Return the number of the first default position, found by trying: explicit positions that change nothing."""
    if not accepts(adapter, "positions"):
        return 0
    ids = torch.arange(_TRIED, device=device_of(adapter)).add(min(10, vocabulary - _TRIED)).unsqueeze(0)
    with torch.no_grad():
        default = adapter.logits(ids)
        for start in range(4):
            positions = torch.arange(start, start + _TRIED, device=ids.device).unsqueeze(0)
            if torch.allclose(adapter.logits(ids, None, positions), default, rtol=1e-4, atol=1e-4):
                return start
    return 0
