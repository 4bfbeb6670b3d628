"""Rules that name the cause of a failure, by file and line where the source can be read, and what is safe instead."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clockhands.checking.known import Known, lookup
from clockhands.checking.runner import Outcome
from clockhands.checking.subject import Subject

_MASKS = re.compile(r"create_(?:causal|sliding_window_causal|bidirectional)_mask\(")


def explain(subject: Subject, outcomes: Sequence[Outcome], architecture: str) -> list[Outcome]:
    """The same outcomes with cause and safe use filled in, known faults recognised, declared limits set apart."""
    verdicts = {outcome.check.removeprefix(subject.side): outcome.verdict for outcome in outcomes}
    return [_explained(subject, outcome, verdicts, architecture) for outcome in outcomes]


def _explained(subject: Subject, outcome: Outcome, verdicts: Mapping[str, str], architecture: str) -> Outcome:
    if outcome.verdict not in ("FAIL", "WARN", "PROPERTY"):
        return outcome
    name = outcome.check.removeprefix(subject.side)
    known = lookup(architecture, name)
    if known is not None:
        return _recognised(outcome, known)
    if outcome.verdict != "FAIL":
        return outcome
    rule = _RULES.get(name)
    return replace(outcome, cause=rule(subject) if rule else "", safe=outcome.safe or _safe(name, verdicts))


def _recognised(outcome: Outcome, known: Known) -> Outcome:
    where = f" ({known.where})" if known.where else ""
    thread = f" Thread: {known.thread}." if known.thread else ""
    return replace(
        outcome,
        verdict=known.verdict or outcome.verdict,
        cause=f"{known.cause}{where}.{thread}",
        reason=outcome.reason if not known.verdict else known.cause,
        safe=known.safe or outcome.safe,
    )


def _safe(name: str, verdicts: Mapping[str, str]) -> str:
    """Another use of the same purpose that passed here."""
    for alternative, advice in _ALTERNATIVES.get(name, ()):
        if verdicts.get(alternative) == "PASS":
            return advice
    return ""


_ALTERNATIVES: dict[str, tuple[tuple[str, str], ...]] = {
    "packing.positions": (("packing.block_mask", "pass a four-dimensional block mask"),),
    "packing.gaps": (("cache.steps", "pass use_cache=True, or a four-dimensional mask"),),
    "precision.to": (("precision.load", "load with from_pretrained(dtype=torch.bfloat16)"),),
    "padding.left.mask": (
        ("padding.left.positions", "pass position_ids made from the mask"),
        ("padding.right", "pad on the right"),
    ),
    "padding.left.positions": (("padding.left.mask", "pass the mask alone"), ("padding.right", "pad on the right")),
    "generate.left_padded": (("padding.right", "generate row by row"),),
    "generate.resume": (("generate.forward", "generate again from the whole text"),),
    "cache.chunks": (("cache.steps", "continue one token at a time"),),
    "cache.steps": (("causal.prefix", "read the whole text again at every step (use_cache=False)"),),
    "attention.sdpa": (("cache.steps", "keep the default implementation that the model was trained with"),),
}


def _mask_without_positions(subject: Subject) -> str:
    for place, call in _mask_calls(subject):
        if "position_ids" not in call:
            return f"position_ids do not reach {call.split('(')[0]} ({place})"
    return "the mask of the model is made without position_ids"


def _mask_calls(subject: Subject) -> list[tuple[str, str]]:
    """Where the model makes its masks: (file:line, the call's text)."""
    found = []
    for module in {type(m) for m in _modules(subject)}:
        try:
            lines, first = inspect.getsourcelines(module)
        except (OSError, TypeError, AttributeError):
            continue
        source = "".join(lines)
        for match in _MASKS.finditer(source):
            line = first + source[: match.start()].count("\n")
            found.append((f"{_file(module)}:{line}", _balanced(source, match.start())))
    return sorted(found)


def _balanced(source: str, start: int) -> str:
    depth = 0
    for index in range(source.index("(", start), len(source)):
        depth += {"(": 1, ")": -1}.get(source[index], 0)
        if depth == 0:
            return source[start : index + 1]
    return source[start:]


def _tables_follow_the_cast(subject: Subject) -> str:
    for module in _modules(subject):
        if "inv_freq" in getattr(module, "_buffers", {}):
            return f"inv_freq of {type(module).__name__} is a floating buffer and follows .to() ({_at(type(module))})"
    return "the tables are floating buffers and follow .to()"


def _gaps_are_borders(subject: Subject) -> str:
    from transformers import masking_utils

    place = _at(masking_utils.find_packed_sequence_indices)
    return f"any step other than one between position_ids is taken for a new document ({place})"


def _generation_positions(subject: Subject) -> str:
    if not subject.facts.first:
        return ""
    from transformers import generation

    place = _at(generation.utils.GenerationMixin.prepare_inputs_for_generation)
    return f"generate() passes position_ids from 0, the model itself counts from {subject.facts.first} (near {place})"


def _theta_unread(subject: Subject) -> str:
    return "the value is stored in the configuration and never read by the rotary module"


def _short_table(subject: Subject) -> str:
    return "the table of positions has fewer usable rows than max_position_embeddings says"


def _kept_frequencies(subject: Subject) -> str:
    if not subject.facts.stretches:
        return ""
    from transformers import modeling_rope_utils

    return f"frequencies stretched for a long text are kept ({_at(modeling_rope_utils.dynamic_rope_update)})"


def _restarted_state(subject: Subject) -> str:
    return "the running state starts again at nought with the second piece" if subject.facts.recurrent else ""


_RULES: dict[str, Callable[[Subject], str]] = {
    "packing.positions": _mask_without_positions,
    "packing.gaps": _gaps_are_borders,
    "precision.to": _tables_follow_the_cast,
    "generate.forward": _generation_positions,
    "config.theta": _theta_unread,
    "length.claimed": _short_table,
    "state.medium": _kept_frequencies,
    "state.short": _kept_frequencies,
    "cache.chunks": _restarted_state,
    "generate.resume": _restarted_state,
}


def _modules(subject: Subject) -> list[Any]:
    return list(subject.module.modules()) if subject.module is not None else []


def _at(thing: Any) -> str:
    try:
        return f"{_file(thing)}:{inspect.getsourcelines(thing)[1]}"
    except (OSError, TypeError):
        return "source not readable"


def _file(thing: Any) -> str:
    return (inspect.getsourcefile(thing) or "?").replace("\\", "/").rpartition("/")[2]
