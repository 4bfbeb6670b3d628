"""Ways to make a model read further without training, by name, and how each is laid over an opened model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.errors import UsageError
from clockhands.extension.attention_methods import Method, find_refusal, lay_scheme, list_attention_methods
from clockhands.models import LanguageModel, is_run
from clockhands.models.language_model import count_rows_before, find_position_table
from clockhands.models.positions import change_foreign_positions, count_rotated_channels, find_rope_table
from clockhands.runs.opening import change_options, change_table, find_table_length
from clockhands.schemes.rotary.spectra import make_spectrum
from clockhands.shapes import Float, Tensor

RIDGE = 1e-3


def stretch_table(table_PD: Float[Tensor, "P D"], rows: int, way: str) -> Float[Tensor, "R D"]:
    """Return a table of ``rows`` rows made of a shorter one; ``way``: a key of ``STRETCHES``."""
    return STRETCHES[way][1](table_PD, rows)


def _interpolate(table_PD: Float[Tensor, "P D"], rows: int) -> Float[Tensor, "R D"]:
    """Stretch the trained rows evenly over all, linearly between neighbours; the ends stay the ends."""
    return F.interpolate(table_PD.T[None], size=rows, mode="linear", align_corners=True)[0].T


def _extrapolate(table_PD: Float[Tensor, "P D"], rows: int) -> Float[Tensor, "R D"]:
    """Go on by the linear map that best takes each trained row to the next; norms stay within the trained ones."""
    table_PD = table_PD.double()
    mean_D = table_PD.mean(0)
    centred_PD = table_PD - mean_D
    before_ND, after_ND = centred_PD[:-1], centred_PD[1:]
    # Least squares with a ridge, as a share of the rows' mean square.
    gram_DD = before_ND.T @ before_ND
    gram_DD += RIDGE * gram_DD.diagonal().mean() * torch.eye(len(gram_DD), dtype=gram_DD.dtype, device=gram_DD.device)
    step_DD = torch.linalg.solve(gram_DD, before_ND.T @ after_ND)
    longest, continued = centred_PD.norm(dim=1).max(), list(centred_PD)
    while len(continued) < rows:
        row_D = continued[-1] @ step_DD
        continued.append(row_D * torch.clamp(longest / row_D.norm().clamp(min=1e-12), max=1.0))
    return torch.stack(continued) + mean_D


STRETCHES: dict[str, tuple[str, Callable[[Tensor, int], Tensor]]] = {
    "interpolated": ("the trained rows stretched over all positions", _interpolate),
    "tiled": (
        "the trained rows again and again",
        lambda table_PD, rows: table_PD.repeat(-(-rows // len(table_PD)), 1)[:rows],
    ),
    "held": (
        "the last trained row for all positions after it",
        lambda table_PD, rows: torch.cat([table_PD, table_PD[-1:].expand(rows - len(table_PD), -1)]),
    ),
    "extrapolated": ("the trained rows continued by a linear map", _extrapolate),
}
"""What each way does, and the function that does it."""


def find_rope(model: LanguageModel) -> tuple[int, float] | None:
    """Return how many channels of a head rotate, and the base; None for a model whose frequencies cannot be set.

    A model that rotates by another rule than the plain one already is as it is: the rule would be replaced.
    """
    if is_run(model.source):
        config = model.model.config.transformer_config
        position = config.get_position_config(config.sides[0])
        if position.scheme != "rope" or position.options.get("learned"):
            return None
        share = position.options.get("fraction") or 1.0
        return int(config.resolved_head_dim * share) // 2 * 2, float(position.options.get("base") or 10_000.0)
    rotation = find_rope_table(model.model.config)
    if rotation is None or "rope_theta" not in rotation:
        return None
    return count_rotated_channels(model.model.config, rotation), float(rotation["rope_theta"])


def find_dependence(model: LanguageModel, method: Method) -> int:
    """Return how a rotation follows the length of the call that reads a text: 0 not, 1 one switch, 2 at every token.

    A call that follows a cache has keys in it that were rotated by earlier, shorter calls.
    """
    rule = method.options.get("spectrum")
    if rule == "longrope":
        return int(method.options["short_factor"] != method.options["long_factor"])
    if rule is None and not method.scheme and not is_run(model.source):
        rule = (find_rope_table(model.model.config) or {}).get("rope_type")
    return {"longrope": 1, "dynamic": 2}.get(str(rule), 0)


def list_methods(model: LanguageModel, trained: int, longest: int) -> list[Method]:
    """List what can be tried to reach ``longest`` tokens; the first leaves the model as it is.

    Raises UsageError for a model whose positions cannot be extended.
    """
    plain = Method("none", "as trained")
    rope = find_rope(model)
    if rope is not None:
        others = [] if find_refusal(model, *rope) else list_attention_methods(rope[1], trained, longest)
        return [plain, *_list_rope_methods(*rope, trained, longest / trained), *others]
    if find_position_table(model.model) is not None or find_table_length(model.model) is not None:
        ways = {name: what for name, (what, _) in STRETCHES.items()}
        return [plain, *(Method(name, what, table=name, rows=longest) for name, what in ways.items())]
    raise UsageError(
        f"{model.source} has no positions that can be extended: neither frequencies of a plain rotation, nor a learned "
        "table; --only measure says how far it reads as it is"
    )


def explain_left_out(model: LanguageModel, methods: Iterable[Method]) -> str:
    """Return why no method of a list needs another attention; empty where one does, and where none could."""
    rope = find_rope(model)
    return "" if rope is None or any(method.scheme for method in methods) else find_refusal(model, *rope)


def can_write(model: LanguageModel, method: Method) -> bool:
    """Return whether a model with a method can be opened again: by plain transformers, or here if it is a run."""
    return not method.scheme or is_run(model.source)


def _list_rope_methods(channels: int, base: float, trained: int, factor: float) -> Iterator[Method]:
    """Yield the rules that change frequencies, each with the factor that is needed."""
    yield Method("linear", "all hands slower (position interpolation)", {"spectrum": "linear", "factor": factor})
    if channels > 2:
        yield Method("ntk", "a larger base", {"spectrum": "ntk", "factor": factor})
        dynamic = {"spectrum": "dynamic", "original_length": trained}
        yield Method("dynamic", "a base that grows with the text", {**dynamic, "factor": factor})
        yield Method("dynamic-1", "a base that grows with the text, by no more than it", {**dynamic, "factor": 1.0})
    yarn = {"spectrum": "yarn", "factor": factor, "original_length": trained}
    yield Method("by-parts", "YaRN without its temperature", {**yarn, "attention_factor": 1.0})
    yield Method("yarn", "slow hands slower, and sharper attention", yarn)
    llama3 = {"spectrum": "llama3", "factor": factor, "original_length": trained}
    yield Method("llama3", "slow hands slower, as in Llama 3.1", llama3)
    omega_F = make_spectrum("default", channels, {}).frequencies(channels, base)
    share = float((omega_F * trained >= 2 * torch.pi).double().mean())
    yield Method("clipped", "hands that never came round stand still", {"spectrum": "proportional", "share": share})
    slower = _compare_with_plain("yarn", yarn, channels, base)
    yield make_longrope("by-parts-beyond", "by-parts, only beyond the trained length", slower, trained, factor)
    if channels > 2:
        slower = _compare_with_plain("ntk", {"factor": factor}, channels, base)
        yield make_longrope("ntk-beyond", "a larger base, only beyond the trained length", slower, trained, factor)


def make_longrope(
    name: str, description: str, slower: tuple[float, ...], trained: int, factor: float, attention_factor: float = 1.0
) -> Method:
    """Return the method that divides each frequency by its own number beyond the trained length, and up to it by 1."""
    return Method(
        name,
        description,
        {
            "spectrum": "longrope", "factor": factor, "original_length": trained, "long_factor": slower,
            "short_factor": (1.0,) * len(slower), "attention_factor": attention_factor,
        },
    )  # fmt: skip


def _compare_with_plain(name: str, options: Mapping[str, Any], channels: int, base: float) -> tuple[float, ...]:
    """Return by how much a rule slows each frequency down."""
    options = {key: value for key, value in options.items() if key != "spectrum"}
    plain_F = make_spectrum("default", channels, {}).frequencies(channels, base)
    return tuple((plain_F / make_spectrum(name, channels, options).frequencies(channels, base)).tolist())


def changes_by_cache(model: LanguageModel, method: Method) -> bool:
    """Return whether a method reads a text otherwise where it goes on by a cache than in one pass.

    Models of this project take no cache where its keys would be stale; those that fill in masked tokens take none.
    """
    return model.mask_id is None and not is_run(model.source) and find_dependence(model, method) > 0


@contextmanager
def read_by_cache(laid: LanguageModel, method: Method, prefill: int) -> Iterator[None]:
    """Let a model of transformers with a method read every text as it does by its cache.

    The first ``prefill`` tokens are read at once, each later one in a step of its own.
    """
    # Two lists switch once, so all steps beyond may be one call; a base that grows differs from step to step.
    stepwise = method.options.get("spectrum") != "longrope"
    with _exchange_rotations(laid, lambda rotary: _ByCache(rotary, prefill, stepwise)):
        yield


@contextmanager
def apply(model: LanguageModel, method: Method) -> Iterator[LanguageModel]:
    if method.table and is_run(model.source):
        stretched = change_table(model.model, method.rows, lambda table, rows: stretch_table(table, rows, method.table))
        yield replace(model, model=stretched)
    elif method.table:
        with _swap_table(model, method):
            yield replace(model)  # which has not read the length of the shorter table
    elif method.scheme:
        with lay_scheme(model, method) as laid:
            yield laid
    elif not method.options:
        yield model
    elif is_run(model.source):
        yield replace(model, model=change_options(model.model, method.options))
    else:
        with _swap_rotation(model, method.options):
            yield model


@contextmanager
def _swap_rotation(model: LanguageModel, options: Mapping[str, Any]) -> Iterator[None]:
    """Rebuild the modules that hold the frequencies of a model of transformers, from another configuration."""
    config = copy.deepcopy(model.model.config)
    length = options.get("original_length") or model.trained_length
    change_foreign_positions(config, options, model.source, length)
    text = config.get_text_config(decoder=True)
    if options.get("spectrum") == "dynamic":
        # transformers takes the length in the configuration for the trained one.
        text.max_position_embeddings = options["original_length"]
    with _exchange_rotations(model, lambda rotary: type(rotary)(config=text).to(model.device)):
        yield


@contextmanager
def _exchange_rotations(model: LanguageModel, make: Callable[[nn.Module], nn.Module]) -> Iterator[None]:
    """Put other modules in the place of those that hold frequencies, each made from the one that was there."""
    places = [
        (parent, name, part)
        for parent in model.model.modules()
        for name, part in parent.named_children()
        if hasattr(part, "inv_freq") or any(key.endswith("_inv_freq") for key, _ in part.named_buffers(recurse=False))
    ]
    if not places:
        raise UsageError(
            f"{model.source} ({model.model.config.model_type}) keeps its frequencies where they cannot be replaced"
        )
    try:
        for parent, name, part in places:
            setattr(parent, name, make(part))
        yield
    finally:
        for parent, name, part in places:
            setattr(parent, name, part)


class _ByCache(nn.Module):
    """A rotation as a cache holds it: the tokens of the prefill are turned by one call, later ones by their own.

    A key is turned once, by the frequencies of the step in which it is read, and stays so. One pass with these angles
    therefore computes the logits of all steps.
    """

    def __init__(self, rotary: nn.Module, prefill: int, stepwise: bool) -> None:
        super().__init__()
        self.rotary, self.prefill, self.stepwise = rotary, prefill, stepwise

    def forward(self, x: Tensor, position_ids: Tensor, *arguments: Any, **named: Any) -> tuple[Tensor, Tensor]:
        pos_S = position_ids.reshape(-1, position_ids.shape[-1])[0]
        before = int((pos_S < self.prefill).sum())
        after = len(pos_S) - before
        calls = [before, *([1] * after if self.stepwise else [after])]
        # A short call first: transformers keeps the base of a longer text until then.
        self.rotary(x, torch.zeros_like(position_ids[..., :1]), *arguments, **named)
        tables = [
            self.rotary(x, pos_BC, *arguments, **named)
            for pos_BC in position_ids.split([count for count in calls if count], dim=-1)
        ]
        cos, sin = zip(*tables, strict=True)
        return torch.cat(cos, dim=-2), torch.cat(sin, dim=-2)


@contextmanager
def _swap_table(model: LanguageModel, method: Method) -> Iterator[None]:
    """Put a stretched table into a model of transformers."""
    named_table = find_position_table(model.model)
    if named_table is None:
        raise UsageError(f"{model.source} has no learned table of positions")
    name, table = named_table
    before, rows = table.weight, table.num_embeddings
    first = count_rows_before(table)
    longer_PD = stretch_table(before.detach()[first:], method.rows, method.table)
    table.weight = nn.Parameter(torch.cat([before.detach()[:first], longer_PD.to(before.dtype)]))
    table.num_embeddings = len(table.weight)
    parent = model.model.get_submodule(name.rpartition(".")[0])
    shorter = {key: buffer for key, buffer in parent.named_buffers(recurse=False) if buffer.shape[-1:] == (rows,)}
    for key, buffer in shorter.items():
        setattr(parent, key, _lengthen(buffer, table.num_embeddings))
    try:
        yield
    finally:
        table.weight, table.num_embeddings = before, rows
        for key, buffer in shorter.items():
            setattr(parent, key, buffer)


def _lengthen(buffer: torch.Tensor, rows: int) -> torch.Tensor:
    """Return the numbers that a model keeps beside its table for as many rows: those of its positions, or all alike."""
    counted = bool((buffer == torch.arange(buffer.shape[-1], device=buffer.device)).all())
    last = torch.arange(rows, device=buffer.device) if counted else buffer[..., :1].flatten()[:1].expand(rows)
    return last.to(buffer.dtype).expand(*buffer.shape[:-1], rows)
