"""Models of transformers: loaded from safetensors, or built with fresh weights; code runs only where it is trusted."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from clockhands.errors import CheckpointError
from clockhands.pretrained.guards import forbid_questions
from clockhands.quiet import quiet, without_bars

__all__ = ["build_model", "count_numbers", "load_model"]


POOLER = re.compile(r"(^|\.)pooler\.")
"""Names of weights that pool a state for classification, which nothing here reads; many checkpoints lack them."""
MASKS = re.compile(r"\.attn(\.attention)?\.(masked_)?bias$")
"""Names under which older versions of transformers saved the causal masks of GPT-J and GPT-Neo."""


def load_model(
    opener: Any,
    source: str | Path,
    *,
    trust_remote_code: bool = False,
    may_differ: tuple[str, ...] = (),
    strict: bool = False,
    **options: Any,
) -> Any:
    """Load a model from safetensors, with every weight that it has; raises what its opener raises.

    Args:
        opener: an Auto class, or the class of the model.
        source: a folder or a hub name.
        trust_remote_code: whether code that comes with the model may run.
        may_differ: beginnings of names of weights that may be missing or too many.
        strict: whether weights that have no place in the model are refused; otherwise they are told.
        options: those of ``from_pretrained``.

    Raises CheckpointError for weights that are missing, which transformers would draw at random, and for those of
    another shape. No bar is drawn meanwhile.
    """
    # Weights of other sizes are ignored here so that the report names them.
    with forbid_questions(), without_bars(), quiet("transformers"):
        model, report = opener.from_pretrained(
            str(source), use_safetensors=True, trust_remote_code=trust_remote_code, ignore_mismatched_sizes=True,
            output_loading_info=True, **options,
        )  # fmt: skip
    _judge_report(model, report, source, may_differ, strict=strict)
    return model


def _judge_report(
    model: Any, report: Mapping[str, Any], source: str | Path, may_differ: tuple[str, ...], *, strict: bool
) -> None:
    """Raise CheckpointError unless the weights are those of the model; tell those that have no place in it.

    ``report``: what transformers found, without tied weights and those that a class documents as made again.
    """
    missing, unplaced = (
        sorted(name for name in report[kind] if not name.startswith(may_differ) and not POOLER.search(name))
        for kind in ("missing_keys", "unexpected_keys")
    )
    unplaced = [name for name in unplaced if not MASKS.search(name)]
    prefix, is_base = f"{model.base_model_prefix}.", model.base_model is model
    if is_base:  # it may be opened without the head that it was saved with, whose class documents more
        parts = {name for name, _ in model.named_children()}
        unplaced = [name for name in unplaced if name.removeprefix(prefix).partition(".")[0] in parts]
        unplaced = [name for name in unplaced if ".lm_head." not in name]
        documented = _list_made_again(model.config)
        missing = [name for name in missing if not any(re.search(pattern, prefix + name) for pattern in documented)]
    faults = [
        f"{name} has shape {list(stored)}, not {list(needed)}"
        for name, stored, needed in sorted(report["mismatched_keys"])[:1]
    ]
    if missing:
        faults.append(f"{_name_some(missing, 'is', 'are')} missing")
    if unplaced and (faults or strict):
        faults.append(f"{_name_some(unplaced, 'has', 'have')} no place in it")
    if faults:
        headless = missing and not is_base and not any(name.startswith(prefix) for name in missing)
        hint = "it was saved without its output layer" if headless else "put back the files that were saved together"
        raise CheckpointError(
            f"the weights in {source} are not those of the model that its config.json describes: "
            f"{'; '.join(faults)}; {hint}"
        )
    if unplaced:
        logging.getLogger(__name__).warning(
            "%s holds weights that its %s has no place for: %s not read",
            source, type(model).__name__, _name_some(unplaced, "is", "are"),
        )  # fmt: skip


def _list_made_again(config: Any) -> list[str]:
    """List the patterns of the weights that the classes which a model was saved from make again, such as sinusoids."""
    import transformers

    saved_from = (getattr(transformers, name, None) for name in config.architectures or ())
    return [name for kind in saved_from for name in getattr(kind, "_keys_to_ignore_on_load_missing", None) or ()]


def _name_some(names: list[str], singular: str, plural: str) -> str:
    """Name the first weights, count the others, and add the verb: "a is", "a, b are", "a, b, c and 35 more are"."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} {singular if len(names) == 1 else plural}"


def build_model(opener: Any, config: Any, *, trust_remote_code: bool = False, **options: Any) -> Any:
    """Build a model with fresh weights. ``opener``: an Auto class; raises what that raises."""
    with forbid_questions():
        return opener.from_config(config, trust_remote_code=trust_remote_code, **options)


def count_numbers(opener: Any, config: Any, *, trust_remote_code: bool = False) -> int | None:
    """Count the numbers of a model, parameters and tables, by building it without storage.

    ``opener``: an Auto class. None where the model cannot be built so; opening it says what is wrong.
    """
    try:
        with torch.device("meta"), quiet("accelerate.big_modeling"):
            model = build_model(opener, config, trust_remote_code=trust_remote_code)
    except Exception:  # code of a model's own may do anything here
        return None
    return sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
