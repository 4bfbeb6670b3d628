"""A subject: an adapter, what is known about how it encodes position, and how to build it again."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from clockhands.checking.models.adapter import Adapter, accepts, device_of
from clockhands.checking.models.copies import copy_sharing, from_files, is_large
from clockhands.schemes.scheme import Declares, Scheme

Rebuild = Callable[[int, torch.dtype], Adapter]
_TABLE = re.compile(
    r"(^|\.)(wpe|pos_emb\w*|pos_embed\w*|position_embedding\w*|embed_positions|positions?_emb\w*|embedding_?positions?|"
    r"learned_pos\w*|position_enc\w*|positional\w*|pos_encoding|position_ids_embedding)(\.|$)"
)
_SEEN = re.compile(r"(^|\.)(visual|vision\w*|audio\w*)(\.|$)")  # what reads images and sound has places of its own
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


@dataclass
class Subject:
    """A model under check. ``seed`` draws the texts; ``rebuild(seed, dtype)`` gives the model again.

    ``redraw(seed, dtype)`` gives it with other weights, in which position is audible; None where they are already.
    """

    name: str
    adapter: Adapter
    rebuild: Rebuild
    facts: Facts = field(default_factory=Facts)
    seed: int = 0
    side: str = ""
    redraw: Rebuild | None = None

    @property
    def module(self) -> nn.Module | None:
        """The PyTorch module behind the adapter, if there is one."""
        return getattr(self.adapter, "module", None)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights; float32 where there are none."""
        parameters = self.module.parameters() if self.module is not None else iter(())
        return next((p.dtype for p in parameters if p.is_floating_point()), torch.float32)

    @property
    def causal(self) -> bool:
        """Whether a token may see only those before it."""
        return bool(getattr(self.adapter, "causal", True))

    @property
    def aligned(self) -> bool:
        """Whether output i belongs to input token i (not so for the source side of an encoder-decoder)."""
        return bool(getattr(self.adapter, "per_token", True))

    def takes(self, argument: str) -> bool:
        """Return whether the model accepts ``mask``, ``positions`` or ``cache``."""
        return accepts(self.adapter, argument)

    def tokens(self, rows: int, length: int, salt: int = 0) -> Tensor:
        """Return random text [rows, length] without special tokens, drawn from the subject's seed.

        No token stands twice in a row if they suffice: equal tokens make equal scores, and a model that keeps
        the best few then chooses by chance.
        """
        generator = torch.Generator().manual_seed(1000 * self.seed + salt)
        special: set[int] = getattr(self.adapter, "special", set())
        usable = torch.tensor([n for n in range(self._first_token(), self.adapter.vocabulary) if n not in special])
        if length <= len(usable):
            chosen = torch.stack([torch.randperm(len(usable), generator=generator)[:length] for _ in range(rows)])
        else:
            chosen = torch.randint(0, len(usable), (rows, length), generator=generator)
        return usable[chosen].to(device_of(self.adapter))

    def other(self, ids: Tensor) -> Tensor:
        """Return ids of the same shape with another token at every place."""
        low = self._first_token()
        return low + (ids - low + 1 + (self.adapter.vocabulary - low) // 3) % (self.adapter.vocabulary - low)

    def _first_token(self) -> int:
        return 10 if self.adapter.vocabulary > 30 else 0

    def logits(
        self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        """Return the logits [B, S, V] of one call; arguments that are None are left out."""
        with torch.no_grad():
            return self.adapter.logits(ids, mask, positions, cache)

    def packed(self, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: Any, documents: Tensor) -> Tensor:
        """Return the logits of several documents in a row, by their numbers where the model takes them."""
        if "documents" not in getattr(self.adapter, "takes", ()):
            return self.logits(ids, mask, positions, cache)
        with torch.no_grad():
            return self.adapter.logits(ids, mask, positions, cache, documents)  # type: ignore[call-arg]

    def positions(self, mask: Tensor) -> Tensor:
        """Return the position of every token by its mask: the first real token has the number the model starts at."""
        return (mask.long().cumsum(-1) - 1).clamp(min=0) + self.facts.first

    def arange(self, rows: int, length: int, start: int = 0) -> Tensor:
        """Return the default positions [rows, length], from ``start``."""
        line = torch.arange(start, start + length, device=device_of(self.adapter)) + self.facts.first
        return line.repeat(rows, 1)

    def copy_model(self, seed: int, dtype: torch.dtype) -> Subject:
        """Return the same subject with other texts, in another precision, from a model that nothing has touched."""
        return replace(self, adapter=self.rebuild(seed, dtype), seed=seed)

    def copy_audible(self, seed: int, dtype: torch.dtype) -> Subject:
        """Return the same subject with weights in which position is audible. The laws hold for any weights."""
        assert self.redraw is not None
        return replace(self, adapter=self.redraw(seed, dtype), seed=seed, rebuild=self.redraw, redraw=None)

    def copy_untouched(self) -> Subject:
        """Return the same subject as it was before its first call; itself where it cannot be copied.

        A check that changes the model (tables that grow, frequencies that stretch) then changes no other check.
        """
        try:
            return self.copy_model(self.seed, self.dtype)
        except Exception:  # an adapter may hold what cannot be copied: a process, a connection
            return self


def copied(adapter: Adapter) -> Rebuild:
    """Return a function that copies the model as it is now: the weights stay (shared in the same precision).

    Call it before the model is. Of a large model there is no second set of weights: another precision is streamed from
    its files.
    """
    has_module = getattr(adapter, "module", None) is not None
    untouched = copy_sharing(adapter) if has_module else _copy_if_possible(adapter)

    def rebuild(seed: int, dtype: torch.dtype) -> Adapter:
        del seed  # the weights are given
        if not has_module:
            return copy.deepcopy(untouched)
        if is_large(untouched) and dtype != next(untouched.module.parameters()).dtype:
            return cast(Adapter, from_files(untouched, dtype))
        return cast(Adapter, copy_sharing(untouched, dtype))

    return rebuild


def _copy_if_possible(adapter: Adapter) -> Any:
    try:
        return copy.deepcopy(adapter)
    except Exception:  # rebuild will raise it where it is told
        return adapter


def detect(adapter: Adapter) -> Facts:
    """Read from the module and its configuration how position enters; behaviour decides the rest."""
    module = getattr(adapter, "module", None)
    if module is None:
        return Facts(absolute=bool(getattr(adapter, "absolute", False)), limit=getattr(adapter, "max_length", None))
    config = getattr(adapter, "config", None) or getattr(module, "config", None)
    promises = [m.declares for m in module.modules() if isinstance(m, Scheme)]
    if promises:
        return replace(_declared(module, promises), first=first_position(adapter, adapter.vocabulary))
    tables = [name for name, _ in _named(module) if _TABLE.search(name) and not _SEEN.search(name)]
    classes = {type(m).__name__ for name, m in module.named_modules() if not _SEEN.search(name)}
    rotary = any("rotary" in name.lower() or "rope" in name.lower() for name in classes)
    facts = Facts(
        scheme=_scheme(classes, tables, rotary, config),
        absolute=bool(tables) or bool(getattr(adapter, "absolute", False)),
        recurrent=any(_RECURRENT.search(name) for name in classes),
        hashed=any("LSH" in name for name in classes),
        window=_first(config, "sliding_window", "attention_window", "window_size", "local_attention"),
        stretches=_stretches(config),
        limit=_claimed_length(config, bool(getattr(adapter, "per_token", True)))
        or getattr(adapter, "max_length", None),
    )
    return replace(facts, first=first_position(adapter, adapter.vocabulary))


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


def _claimed_length(config: Any, writes: bool) -> int | None:
    """Return how many tokens the side that writes, or the one that reads a source, says it can hold."""
    own = ("max_target_positions", "max_decoder_position_embeddings")
    source = ("max_source_positions", "max_encoder_position_embeddings")
    named = _first(config, "max_position_embeddings", "n_positions", *(own if writes else source), "max_seq_len")
    part = getattr(config, "decoder" if writes else "encoder", None)
    return named or (None if part is None else _claimed_length(part, writes))


def _first(config: Any, *names: str) -> int | None:
    values = (getattr(config, name, None) for name in names)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def first_position(adapter: Adapter, vocabulary: int) -> int:
    """Return the number of the first default position, found by trying: explicit positions that change nothing."""
    if not accepts(adapter, "positions"):
        return 0
    ids = torch.arange(8, device=device_of(adapter)).add(min(10, vocabulary - 8)).unsqueeze(0)
    with torch.no_grad():
        default = adapter.logits(ids)
        for start in range(4):
            positions = torch.arange(start, start + 8, device=ids.device).unsqueeze(0)
            if torch.allclose(adapter.logits(ids, None, positions), default, rtol=1e-4, atol=1e-4):
                return start
    return 0
