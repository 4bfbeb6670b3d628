"""Models and weights of anybody, from safetensors alone; sizes are judged before memory is taken.

torch is imported where it is needed: whoever reads a configuration does without it.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from clockhands.errors import CheckpointError, ClockhandsWarning, show_value
from clockhands.machine import measure_free_memory
from clockhands.pretrained.configuration import read_configuration
from clockhands.pretrained.files import (
    ADAPTER,
    CONFIG,
    GENERATION,
    INDEX,
    PICKLES,
    WEIGHTS,
    first_line,
    forbid_questions,
)
from clockhands.progress import quiet, without_bars
from clockhands.reading import read_json, refuse_strange_file

if TYPE_CHECKING:
    from torch import Tensor

_POOLER = re.compile(r"(^|\.)pooler\.")
"""Names of weights that pool a state for classification, which nothing here reads; many checkpoints lack them."""
MASKS = re.compile(r"\.attn(\.attention)?\.(masked_)?bias$")
"""Names under which older versions of transformers saved the causal masks of GPT-J and GPT-Neo."""
_SCALES = re.compile(r"(weight_scale(_inv|_2)?|\.scales|SCB|absmax|qzeros|weight_zero_point)$")
"""Names of what quantised weights are multiplied by and shifted by: without it they are other numbers."""
_QUANTISED = {"quantization_config", "compression_config"}
_WHOLE = re.compile(r"^[IU]\d")
"""Types of whole numbers, as safetensors names them."""


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

    Raises CheckpointError for weights that are missing, which transformers would draw at random, for those of another
    shape, for quantised ones that nothing undoes, for two that should be one, and for a damaged generation_config.json.
    """
    if os.path.lexists(settings := Path(source) / GENERATION):
        # transformers passes over a damaged one in silence, and ends texts by another token.
        saved = read_json(settings)
        for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
            ids = saved.get(name)
            if ids is not None and any(type(token) is not int for token in (ids if isinstance(ids, list) else [ids])):
                raise CheckpointError(f"{settings} sets {name} = {show_value(ids)}, which is no id of a token")
    from huggingface_hub import try_to_load_from_cache

    # Weights of other sizes are ignored here so that the report names them.
    with forbid_questions(), without_bars(), quiet("transformers"):
        model, report = opener.from_pretrained(
            str(source), use_safetensors=True, trust_remote_code=trust_remote_code, ignore_mismatched_sizes=True,
            output_loading_info=True, **options,
        )  # fmt: skip
    _judge_report(model, report, source, may_differ, strict=strict)
    refuse_untied(model, dict(model.named_parameters(remove_duplicate=False)), source)
    folder = Path(source)
    if not folder.is_dir():  # a name of the hub, whose files are in its cache by now
        cached = try_to_load_from_cache(str(source), CONFIG) if str(source).count("/") <= 1 else None
        if not isinstance(cached, str) or not any((Path(cached).parent / name).exists() for name in (WEIGHTS, INDEX)):
            return model
        folder = Path(cached).parent
        count_stored_bytes(folder, read_configuration(folder))  # judged before, where the source is a folder
    _warn_of_other_frequencies(model, folder)
    return model


def _warn_of_other_frequencies(model: Any, folder: Path) -> None:
    """Warn of stored frequencies of rotation that are not the model's: transformers passes over them in silence."""
    import torch

    own = [made for name, made in model.named_buffers() if name.endswith("inv_freq") and not made.is_meta]
    for path in list_weight_files(folder, read_configuration(folder)) if own else ():
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                if not name.endswith("rotary_emb.inv_freq"):
                    continue
                stored = file.get_tensor(name).flatten()
                rounded = [made.cpu().to(stored.dtype).double() for made in own if made.numel() == len(stored)]
                # Files of linear scaling hold them unscaled: the first, 1, says by how much the model's are slower.
                slowed = [(made * (stored[0] / made[0]).clamp(min=1), stored.double()) for made in rounded]
                if rounded and not any(torch.allclose(*pair, rtol=0.01, atol=1e-7) for pair in slowed):
                    warnings.warn(
                        f"{path} holds frequencies of rotation ({name}) that are not those of {CONFIG}, by which the "
                        "model is run here; programs that read the stored ones rotate by other angles",
                        ClockhandsWarning,
                        stacklevel=3,
                    )
                    return


def refuse_untied(model: Any, weights: Mapping[str, Tensor], source: str | Path) -> None:
    """Raise CheckpointError where the files hold two values of a weight that the configuration has once.

    transformers then reads two weights, and other programs one of them. ``weights``: those in memory, by name.
    """
    for name, other in model.get_expanded_tied_weights_keys(all_submodels=True).items():
        ours, theirs = weights.get(name), weights.get(other)
        if ours is None or theirs is None or ours is theirs or ours.is_meta or theirs.is_meta:
            continue
        theirs = theirs.to(ours.device)
        if ours.equal(theirs) or ours.nan_to_num().equal(theirs.nan_to_num()):
            continue
        # The classes of T5 say themselves that the two are one, and read both where the file says that they are two.
        raw, head = read_configuration(source), model.get_output_embeddings()
        parts = [part for part in (raw, raw.get("text_config")) if isinstance(part, dict)]
        heads = [f"{at}.weight" for at, module in model.named_modules() if module is head and head is not None]
        untied = any(part.get("tie_word_embeddings") is False for part in parts)
        if not (untied and {name, other} & set(heads)):
            raise CheckpointError(
                f"the weights in {source} are not those of the model that its {CONFIG} describes: it ties {name} to "
                f"{other}, and the files hold both with different values; set tie_word_embeddings = false if two are "
                f"meant, else take {name} out of the files"
            )


def _judge_report(
    model: Any, report: Mapping[str, Any], source: str | Path, may_differ: tuple[str, ...], *, strict: bool
) -> None:
    """Raise CheckpointError unless the weights are those of the model; tell those that have no place in it."""
    import transformers

    missing, unplaced = (
        sorted(name for name in report[kind] if not name.startswith(may_differ) and not _POOLER.search(name))
        for kind in ("missing_keys", "unexpected_keys")
    )
    unplaced = [name for name in unplaced if not MASKS.search(name)]
    prefix, is_base = f"{model.base_model_prefix}.", model.base_model is model
    if is_base:  # it may be opened without the head that it was saved with, whose class documents more
        parts = {name for name, _ in model.named_children()}
        unplaced = [name for name in unplaced if name.removeprefix(prefix).partition(".")[0] in parts]
        unplaced = [name for name in unplaced if ".lm_head." not in name]
        for saved_from in model.config.architectures or ():  # such classes make some weights again, such as sinusoids
            made = getattr(getattr(transformers, saved_from, None), "_keys_to_ignore_on_load_missing", None) or ()
            missing = [name for name in missing if not any(re.search(pattern, prefix + name) for pattern in made)]
    faults = [
        f"{name} has shape {list(stored)}, not {list(needed)}"
        for name, stored, needed in sorted(report["mismatched_keys"])[:1]
    ]
    if missing:
        faults.append(f"{_name_some(missing, 'is', 'are')} missing")
    scales = [name for name in unplaced if _SCALES.search(name)]
    # Of a part that is not read at all, such as a head for further tokens, the scale is not missed either.
    scales = [name for name in scales if not {(stem := name.rpartition(".")[0]), f"{stem}.weight"} & set(unplaced)]
    if unplaced and (faults or strict or scales):
        faults.append(f"{_name_some(scales or unplaced, 'has', 'have')} no place in it")
    quantization = getattr(model.config, "quantization_config", None)
    if quantization is not None and getattr(model, "hf_quantizer", None) is None:
        faults.append(f"they are quantised in a way that transformers does not know ({show_value(quantization)})")
    for name, module in model.named_modules():
        narrow = [part for part, weight in module.named_parameters(recurse=False) if weight.itemsize == 1]
        if narrow and type(module).__module__.startswith("torch."):
            faults.append(f"{name}.{narrow[0]} has numbers of 8 bits, with which its layer does not compute here")
            break
    if faults:
        headless = missing and not is_base and not any(name.startswith(prefix) for name in missing)
        hint = "it was saved without its output layer" if headless else "put back the files that were saved together"
        raise CheckpointError(
            f"the weights in {source} are not those of the model that its config.json describes: "
            f"{'; '.join(faults)}; {hint}"
        )
    if unplaced:
        warnings.warn(
            f"{source} holds weights that its {type(model).__name__} has no place for: "
            f"{_name_some(unplaced, 'is', 'are')} not read",
            ClockhandsWarning,
            stacklevel=2,
        )


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
    import torch

    try:
        with torch.device("meta"), quiet("accelerate.big_modeling"):
            model = build_model(opener, config, trust_remote_code=trust_remote_code)
    except Exception:  # code of a model's own may do anything here
        return None
    return sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))


def _is_tied(name: str, raw: Mapping[str, Any]) -> bool:
    """Return whether a weight may be left out for another that is the same: an index often names it all the same."""
    import transformers

    classes = (getattr(transformers, saved_from, None) for saved_from in raw.get("architectures") or ())
    pairs = (dict(getattr(cls, "_tied_weights_keys", None) or {}) for cls in classes)
    return any(re.search(pattern, name) for pair in pairs for pattern in (*pair, *pair.values()))


def count_stored_bytes(folder: Path, raw: Mapping[str, Any]) -> int:
    """Count what the tensors of a folder take as float32, from the headers of their files.

    ``raw``: its configuration. Raises CheckpointError for a file that is damaged, for an index that does not tell where
    each weight is, and for whole numbers in place of weights, where the configuration says nothing of quantisation.
    """
    count, holders = 0, dict[str, Path]()
    for path, names in list_weight_files(folder, raw).items():
        try:
            with safe_open(path, framework="pt") as file:
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
                kinds = {name: part.get_dtype() for name, part in slices.items()}
                count += sum(4 * math.prod(part.get_shape()) for part in slices.values())
        except Exception as fault:
            raise CheckpointError(
                f"{path} is no safetensors file, or a damaged one: {first_line(fault)}; put back a whole copy"
            ) from fault
        lost = [name for name in sorted(names - kinds.keys()) if not _is_tied(name, raw)]
        if lost:
            raise CheckpointError(f"{path} does not hold {lost[0]}, which the index beside it says; put back both")
        for name, kind in kinds.items():
            if name in holders:
                raise CheckpointError(f"{name} stands in two files, {holders[name]} and {path}; take out the wrong one")
            # Causal masks of old versions are whole numbers too: h.0.attn.bias of GPT-2, attention.bias of Pythia.
            if _WHOLE.match(kind) and name.endswith(".weight") and not raw.keys() & _QUANTISED:
                raise CheckpointError(
                    f"{path} holds {name} as whole numbers ({kind}), and {CONFIG} does not say how they are quantised; "
                    "put back the configuration that was saved with them"
                )
        holders |= dict.fromkeys(kinds, path)
    return count


def check_fits(needed: int, source: str | Path, available: int | None = None) -> None:
    """Raise CheckpointError if a model of ``needed`` bytes does not fit into ``available`` (default: what is free)."""
    if available is None:
        available = measure_free_memory()
    if needed * 1.2 > available:  # a fifth more to run
        raise CheckpointError(
            f"{source} needs {needed / 2**30:.1f} GiB for its weights and more to run, and {available / 2**30:.1f} GiB "
            "of memory are free; use a machine with more, or a smaller model of the family"
        )


def load_state(path: Path) -> Any:
    """Read what torch saved of an optimiser, a schedule or random numbers: tensors and plain data, and no code.

    Raises what torch raises for anything else.
    """
    import torch
    from transformers.trainer_pt_utils import safe_globals

    refuse_strange_file(path)
    with safe_globals():
        return torch.load(path, map_location="cpu", weights_only=True)


def refuse_not_finite(weights: Iterable[tuple[str, Tensor]], source: str | Path) -> None:
    """Raise CheckpointError for the first weight that is NaN or infinite, by name: whatever it touches is NaN.

    The least and the greatest number take one pass over the memory (some seconds for a model of seven billion) and are
    finite only if every number is.
    """
    import torch

    for name, weight in weights:
        if weight.is_meta or not weight.is_floating_point() or not weight.numel():
            continue
        numbers = weight.detach() if weight.itemsize > 1 else weight.detach().float()  # of 8 bits none is the least
        if all(math.isfinite(float(end)) for end in torch.aminmax(numbers)):
            continue
        bad = int((~torch.isfinite(numbers)).sum())
        raise CheckpointError(
            f"the weights in {source} are damaged: {bad:,} of {weight.numel():,} numbers of {name} are NaN or "
            "infinite; put back a whole copy, or an earlier checkpoint"
        )


def list_weight_files(folder: Path, raw: Mapping[str, Any]) -> dict[Path, set[str]]:
    """List the safetensors files that hold a model's weights, each with the weights that an index says are in it.

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
    first = next((folder / name for name in chosen if os.path.lexists(folder / name)), None)
    files = {path: set[str]() for path in (sorted(folder.glob("shard-*.safetensors")) if first is None else [first])}
    if first is not None and first.name.endswith(".json"):
        table = read_json(first).get("weight_map")
        if not table or not isinstance(table, dict):
            raise CheckpointError(f"{first} cannot be read: it names no files (weight_map)")
        files = {}
        for weight, name in sorted(table.items(), key=lambda item: str(item[1])):
            if not str(name).endswith(".safetensors") or Path(str(name)).name != name:
                raise CheckpointError(f"{first} names {name!r} for weights; only safetensors files beside it are read")
            files.setdefault(folder / name, set()).add(weight)
    if not files:
        pickles = sorted(path.name for path in folder.iterdir() if path.name.endswith((*PICKLES, ".bin.index.json")))
        if pickles:
            raise CheckpointError(
                f"{folder} holds its weights only as pickle ({pickles[0]}), which can run any code when it is read; "
                "where you trust it, load it with transformers and write it again with save_pretrained, as safetensors"
            )
        raise CheckpointError(f"{folder} holds no weights ({WEIGHTS})")
    for path in files:
        refuse_strange_file(path)
    return files
