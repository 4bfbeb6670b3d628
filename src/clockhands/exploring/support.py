"""What runs in a page, and what does not: every reason at once, by name; and models of other projects made ours.

Whether a conversion is true of a checkpoint is measured: converted, it has to compute the logits that it computes as it
is.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from clockhands.data import Tokenizers
from clockhands.errors import CheckpointError, ClockhandsError, UsageError
from clockhands.interchange.weights import copy_from_transformers
from clockhands.model import TransformerConfig
from clockhands.model.position_config import StackSide
from clockhands.models.subject import Subject
from clockhands.options import options_of
from clockhands.pretrained import find_special_tokens
from clockhands.runs import Run
from clockhands.schemes import CATALOGUE

_FORMS = ("NFC", "NFKC", "Lowercase", "Prepend")
_UNREAD = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")
"""Options of byte pairs that the page does not read."""
_WORD = r"\p{L}\p{M}\p{N}\p{Pc}"
"""What ``\\w`` matches in Oniguruma; in JavaScript it is ASCII alone."""
_SYNTAX = "^$\\.*+?()[]{}|/"
"""The characters that JavaScript lets be escaped with the flag ``u``."""


def find_tokenizer_faults(tokenizers: Tokenizers) -> Iterator[str]:
    """Yield why the page cannot read or write with these tokenizers."""
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        fault = _find_fault(tokenizer)
        if fault:
            yield f"the {side} tokenizer {fault}; the page reads the kinds bpe, word, character and morpheme"
        if tokenizers.shared:
            return


def _find_fault(tokenizer: PreTrainedTokenizerBase) -> str | None:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return f"is a {type(tokenizer).__name__}"
    table = json.loads(backend.to_str())
    cuts = table["pre_tokenizer"] or {}
    if table["model"]["type"] not in ("WordLevel", "BPE"):
        return f"is of the kind {table['model']['type']}"
    if table["model"]["type"] == "BPE":
        if cuts.get("type") != "ByteLevel" or not cuts.get("use_regex", True) or any(map(table["model"].get, _UNREAD)):
            return "is of the kind BPE, but not of plain bytes cut as GPT-2 cuts them"
    elif cuts.get("type") != "Split" or "Regex" not in cuts["pattern"] or cuts["behavior"] != "Isolated":
        return "does not cut by one pattern"
    strange = [step["type"] for step in _list_steps(table["normalizer"], "normalizers") if step["type"] not in _FORMS]
    return f"normalises by {strange[0]}" if strange else None


def _list_steps(table: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    """Return the steps of a normalizer or decoder: those of a sequence, or itself."""
    if table is None:
        return []
    steps: list[dict[str, Any]] = table[key] if table["type"] == "Sequence" else [table]
    return steps


def read_rules(tokenizer: PreTrainedTokenizerBase, *, ends: bool = True) -> dict[str, Any]:
    """Return how the page cuts and joins text; the tokenizer has no faults (``find_tokenizer_faults``).

    ``ends``: whether its end token is put behind every text. If not, what the tokenizer itself puts in front is.
    """
    starts = [] if ends else find_special_tokens(tokenizer)[0]
    table = json.loads(tokenizer.backend_tokenizer.to_str())
    steps = {step["type"]: step for step in _list_steps(table["normalizer"], "normalizers")}
    cuts = table["pre_tokenizer"]
    if table["model"]["type"] == "BPE":
        cutting = {
            "prefix": " " if cuts["add_prefix_space"] else "",
            "pattern": "",
            "merges": [merge if isinstance(merge, list) else merge.split(" ") for merge in table["model"]["merges"]],
        }
    else:
        prefix = steps.get("Prepend", {}).get("prepend", "")
        cutting = {"prefix": prefix, "pattern": translate_pattern(cuts["pattern"]["Regex"])}
    return {
        "nfc": "NFC" in steps,
        "nfkc": "NFKC" in steps,
        "lowercase": "Lowercase" in steps,
        **cutting,
        "unknownId": tokenizer.unk_token_id,
        "endId": tokenizer.eos_token_id if ends else None,
        **({"startIds": starts} if starts else {}),
        "stripsSpace": any(step["type"] == "Strip" for step in _list_steps(table["decoder"], "decoders")),
    }


def describe_tokens(tokenizer: PreTrainedTokenizerBase, size: int) -> list[dict[str, Any]]:
    """Return the text of every token, by its id, and whether it is a special one.

    A model with more embeddings than tokens, ``size``, may write an id that no token has: it stands for no text.
    """
    special = set(tokenizer.all_special_ids)
    texts = {number: text for text, number in tokenizer.get_vocab().items()}
    return [{"text": texts.get(id, ""), "special": id in special or id not in texts} for id in range(size)]


def translate_pattern(pattern: str) -> str:
    r"""Return a pattern of Oniguruma as one of JavaScript with the flag ``u``.

    Only what the tokenizers of this project write is translated: ``\w`` and ``\s`` in and outside classes, escaped
    characters, and the dot that matches line breaks.
    """
    for dot in ("(?m:.)", "(?m)."):
        pattern = pattern.replace(dot, r"[\s\S]")
    translated, in_class = "", False
    for part in re.findall(r"\\.|.", pattern, re.DOTALL):
        if part == r"\w":
            translated += _WORD if in_class else f"[{_WORD}]"
        elif part[0] == "\\" and len(part) == 2 and not part[1].isalnum():
            escapable = part[1] in _SYNTAX or (in_class and part[1] == "-")
            translated += part if escapable else part[1]
        else:
            in_class = part == "[" or (in_class and part != "]")
            translated += part
    return translated


OPTIONS: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "sinusoidal": frozenset(
        ("layout", "exponent", "base", "wavelength", "waves", "seed", "amplitude", "learned_amplitude")
    ),
    "learned": frozenset(("max_length", "beyond", "std", "offset")),
    "index": frozenset(("normalise", "max_length", "form", "learned_direction", "seed", "amplitude")),
    "rope": frozenset(("base", "layout", "fraction", "learned")),
    "alibi": frozenset(("form", "slopes", "learned")),
    "t5": frozenset(("num_buckets", "max_distance", "bidirectional", "logit_scale", "bias_scale")),
}
"""The schemes that the script of the page computes, with the options that it knows; others have their defaults."""
LARGEST = 5_000_000
"""The most parameters of a model that a page can run while its reader waits."""
FAMILIES = ("gpt2", "llama")
"""The architectures that a page runs, by the ``model_type`` of their configuration."""
ALIKE = 1e-3
"""The largest difference of a logit from that of the original, in standard deviations: rounding alone."""
PROBED = 128
"""The most tokens of the texts on which both are compared."""


def check_support(run: Run) -> None:
    """Raise UsageError with every reason for which the model of a run does not run in a page."""
    if run.architecture == "encoder":
        run.require("encoder-decoder", "explore what it writes")
    config = run.model.config.transformer_config
    faults = [*_find_faults(config), *find_tokenizer_faults(run.tokenizers)]
    count = sum(parameter.numel() for parameter in run.model.parameters())
    if count > LARGEST:
        faults.append(f"it has {count:,} parameters, and a page runs at most {LARGEST:,}")
    if faults:
        reasons = "".join(f"\n  {fault}" for fault in faults)
        raise UsageError(f"the model in {run.path} does not run in a page:{reasons}")


def list_stacks(config: TransformerConfig) -> dict[StackSide, StackSide]:
    """Return the stack of a model that stands on each side of the page: that of a language model is what it reads."""
    return {"encoder": "decoder"} if config.architecture == "decoder" else {"encoder": "encoder", "decoder": "decoder"}


def _find_faults(config: TransformerConfig) -> Iterator[str]:
    if config.output_transform:
        yield "model.output_transform: the page has no layer before the output matrix"
    if config.norm not in ("pre", "post"):
        yield f"model.norm = {config.norm!r}: the page has one norm for each sublayer, before or after it"
    if config.query_key_norm != "none":
        yield f"model.query_key_norm = {config.query_key_norm!r}: the page computes queries and keys without norms"
    if config.latent_width is not None:
        yield f"model.latent_width = {config.latent_width}: the page projects keys and values from a layer's input"
    if config.experts:
        yield f"model.experts = {config.experts}: the page has one feed-forward network in a layer"
    if not config.first_norm:
        yield "model.first_norm = false: the page has the same norms in all layers"
    if config.activation in ("clamped-silu", "identity"):
        yield f"model.activation = {config.activation!r}: the page has no such function"
    if config.parallel:
        yield "model.parallel: the page computes the feed-forward layer after attention"
    if config.cross.scheme != "none" or config.cross.transform:
        yield f"cross.scheme = {config.cross.scheme!r}: the page has no positions in cross-attention"
    for side in list_stacks(config).values():
        position = config.get_position_config(side)
        if position.transform:
            yield f"{side}.transform = {position.transform!r}: the page counts positions itself"
        if position.layers is not None:
            yield f"{side}.layers: the page has one scheme for all layers of a side"
        if position.scheme not in OPTIONS:
            yield f"{side}.scheme = {position.scheme!r}: the page computes {', '.join(OPTIONS)}"
            continue
        declared = options_of(CATALOGUE[position.scheme])
        for name, value in position.options.items():
            if name not in OPTIONS[position.scheme] and value != declared[name].default:
                yield f"{side}.{name} = {value!r}: the page computes {position.scheme} without this option"


def require_finite(subject: Subject) -> None:
    """Raise CheckpointError for a model that gives logits, or without an output layer states, that are not finite."""
    length = min(PROBED, subject.max_length or PROBED)
    ids_1T = torch.randint(subject.vocabulary_size or 2, (1, length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        output = subject.compute_next_logits(ids_1T)
        output = subject.forward(ids_1T)[-1] if output is None else output
    if not bool(output.isfinite().all()):
        raise CheckpointError(
            f"{subject.name} gives NaN or infinite numbers for random tokens, so that a page would show nothing true; "
            "check its weights, which may be damaged or too large"
        )


def convert_checkpoint(subject: Subject, source: str | Path) -> Run:
    """Return a language model of another project as a run of ours, with its model and tokenizer in memory.

    Raises UsageError with the reason where it cannot be converted, or does not compute the same afterwards.
    """
    original = getattr(subject, "language_model", None)
    if original is None:
        raise UsageError("it is no language model that continues text")
    config = original.config
    if config.model_type not in FAMILIES:
        raise UsageError(f"a page runs models of Clockhands and of {', '.join(FAMILIES)}, not of {config.model_type}")
    rule = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rule != "default":
        raise UsageError(f"its frequencies are changed by the rule {rule!r}, and a page has none")
    count = sum(parameter.numel() for parameter in original.parameters())
    if count > LARGEST:
        raise UsageError(f"it has {count:,} parameters, and a page runs at most {LARGEST:,}")
    if subject.tokenizer is None:
        raise UsageError("it came without a tokenizer")
    try:
        model = copy_from_transformers(copy.deepcopy(original).cpu().float()).eval()
    except ClockhandsError as fault:
        raise UsageError(f"it is no model of ours by its configuration: {fault}") from fault
    # Both have to compute the same logits of random tokens.
    length = min(PROBED, getattr(config, "max_position_embeddings", PROBED))
    ids_2S = torch.randint(model.config.vocab_size, (2, length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        theirs = original(input_ids=ids_2S.to(original.device), use_cache=False).logits.cpu().float()
        difference = float((model(input_ids=ids_2S, use_cache=False).logits - theirs).abs().max() / theirs.std())
    if not difference < ALIKE:
        raise UsageError(
            "as a model of ours it computes something else: logits differ by up to "
            f"{difference:.2g} standard deviations"
        )
    run = Run(Path(source), device="cpu")
    # Where cached_property keeps what it has computed: there is no folder of ours to open.
    vars(run).update(model=model, tokenizers=Tokenizers(subject.tokenizer, subject.tokenizer))
    return run
