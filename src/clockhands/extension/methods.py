"""Ways to make a model read further without training, by name, and how each is laid over an opened model.

Some change frequencies, some make a learned table longer, and some need another attention than the model's own: two
rotations, a temperature by place, no rotation. In a model of transformers these are installed in place of its rotation
(``clockhands.attention.install``), after a trial with its own frequencies whether the two agree. Plain transformers
cannot open a model with one of them; models of this project can, whose configuration names the scheme.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.attention import install
from clockhands.errors import UsageError
from clockhands.model.position_config import PositionConfig
from clockhands.models import LanguageModel, is_run
from clockhands.models.language_model import count_rows_before, find_position_table
from clockhands.models.positions import change_foreign_positions, count_rotated_channels, find_rope_table
from clockhands.runs.opening import change_options, change_scheme, change_table, find_table_length
from clockhands.schemes import CATALOGUE, Sizes, build
from clockhands.schemes.rotary.spectra import make_spectrum
from clockhands.schemes.rotary.trained_length import choose_window
from clockhands.shapes import Float, Tensor

RIDGE = 1e-3
TOLERANCE = 1e-3
"""The largest difference of a logit between a model and itself with our attention, as a share of the largest logit;
in 16 bits four of their rounding errors."""
PROBE = 48
"""Tokens on which the two are compared."""
STRETCHES = {
    "interpolated": "the trained rows stretched over all positions",
    "tiled": "the trained rows again and again",
    "held": "the last trained row for all positions after it",
    "extrapolated": "the trained rows continued by a linear map",
}
"""The ways to make a learned table longer."""


@dataclass(frozen=True)
class Method:
    """One way: options of position in the names of our scheme *rope*, another scheme, or a way to stretch a table.

    Args:
        name: what it is called in tables and options.
        description: what it does, in a few words.
        options: of position; empty to leave them as trained.
        table: a key of ``STRETCHES``, for a model with a learned table; empty for others.
        rows: of the table that it makes.
        scheme: a position table as recipes have it, for a method that needs another attention; empty for others.
    """

    name: str
    description: str
    options: Mapping[str, Any] = field(default_factory=dict)
    table: str = ""
    rows: int = 0
    scheme: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name with all options, under which results are kept."""
        settings = sorted({**self.options, **self.scheme}.items())
        return ",".join([self.name, str(self.rows), *(f"{key}={value}" for key, value in settings)])

    @property
    def spares_short_texts(self) -> bool:
        """Whether a text of at most the trained length is read exactly as by the model as it is, by definition."""
        if self.options.get("spectrum") == "longrope":
            return {*self.options["short_factor"], self.options["attention_factor"]} == {1.0}
        return self.options.get("spectrum") == "dynamic" or self.table not in ("", "interpolated")


def list_methods(model: LanguageModel, trained: int, longest: int) -> list[Method]:
    """List what can be tried to reach ``longest`` tokens; the first leaves the model as it is.

    Raises UsageError for a model whose positions cannot be extended.
    """
    plain = Method("none", "as trained")
    rope = find_rope(model)
    if rope is not None:
        others = [] if find_refusal(model, *rope) else list_attention_methods(rope[1], trained, longest)
        table = {} if is_run(model.source) else find_rope_table(model.model.config) or {}
        whole = table.get("partial_rotary_factor", 1.0) == 1.0
        methods = _list_rope_methods(*rope, trained, longest / trained, whole=whole)
        return [plain, *methods, *others]
    if find_position_table(model.model) is not None or find_table_length(model.model) is not None:
        return [plain, *(Method(name, what, table=name, rows=longest) for name, what in STRETCHES.items())]
    raise UsageError(
        f"{model.source} has no positions that can be extended: neither frequencies of a plain rotation, nor a learned "
        "table; --only measure says how far it reads as it is"
    )


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


def _list_rope_methods(channels: int, base: float, trained: int, factor: float, *, whole: bool) -> Iterator[Method]:
    """Yield the rules that change frequencies, each with the factor that is needed.

    ``whole``: all channels of a head rotate, or the rules are ours. transformers spreads *proportional* over all of
    them, so that a model which rotates a part would turn other pairs.
    """
    omega_F = make_spectrum("default", channels, {}).frequencies(channels, base)
    round_share = float((omega_F * trained >= 2 * torch.pi).double().mean())  # of hands that came round in training
    stretched = {"factor": factor, "original_length": trained}
    for name, description, rule, options in (
        ("linear", "all hands slower (position interpolation)", "linear", {"factor": factor}),
        ("ntk", "a larger base", "ntk", {"factor": factor}),
        ("dynamic", "a base that grows with the text", "dynamic", stretched),
        ("dynamic-1", "a base that grows with the text, by no more than it", "dynamic", {**stretched, "factor": 1.0}),
        ("by-parts", "YaRN without its temperature", "yarn", {**stretched, "attention_factor": 1.0}),
        ("yarn", "slow hands slower, and sharper attention", "yarn", stretched),
        ("llama3", "slow hands slower, as in Llama 3.1", "llama3", stretched),
        ("clipped", "hands that never came round stand still", "proportional", {"share": round_share}),
        ("by-parts-beyond", "by-parts, only beyond the trained length", "yarn", stretched),
        ("ntk-beyond", "a larger base, only beyond the trained length", "ntk", {"factor": factor}),
    ):
        # A base is raised by a power of channels / (channels - 2).
        if (rule in ("ntk", "dynamic") and channels <= 2) or (rule == "proportional" and not whole):
            continue
        if name.endswith("-beyond"):
            slower_F = omega_F / make_spectrum(rule, channels, options).frequencies(channels, base)
            yield make_longrope(name, description, tuple(slower_F.tolist()), trained, factor)
        else:
            yield Method(name, description, {"spectrum": rule, **options})


def make_longrope(
    name: str, description: str, slower: tuple[float, ...], trained: int, factor: float, attention_factor: float = 1.0
) -> Method:
    """Return the method that divides each frequency by its own number beyond the trained length, and up to it by 1."""
    options = {
        "spectrum": "longrope", "factor": factor, "original_length": trained, "long_factor": slower,
        "short_factor": (1.0,) * len(slower), "attention_factor": attention_factor,
    }  # fmt: skip
    return Method(name, description, options)


def list_attention_methods(base: float, trained: int, longest: int) -> Iterator[Method]:
    """Yield the methods that need another attention; their windows and groups keep distances within the trained."""
    window, near = (choose_window(name, None, trained) for name in ("rerope", "self-extend"))
    slower = max(1.0, (longest - window) / max(1, trained - window))
    group = -(-(longest - near) // max(1, trained - near))
    for name, description, options in (
        ("rerope", "distances beyond half the trained length all count as that", {"window": window}),
        ("leaky-rerope", "distances beyond half the trained length grow more slowly",
         {"window": window, "factor": slower}),
        ("self-extend", f"tokens beyond {near} are counted in groups of {group}", {"window": near, "group": group}),
        ("dual-chunk", "chunks that see each other from inside the trained length", {"original_length": trained}),
    ):  # fmt: skip
        yield Method(name, description, scheme={"scheme": name.removeprefix("leaky-"), "base": base, **options})
    log = {"scheme": "temperature", "form": "floor", "coefficient": 1 / math.log(trained), "length": trained}
    both = {"scheme": "composition", "schemes": [{"scheme": "rope", "base": base}, log]}
    yield Method("log-n", "attention sharper by the logarithm of the place, beyond the trained length", scheme=both)
    yield Method("dropped", "nothing turns (DroPE, which trains after it)", scheme={"scheme": "none"})


def find_refusal(model: LanguageModel, channels: int, base: float) -> str:
    """Return why no other attention can be laid over a model; empty where it can.

    Ours is tried with the frequencies that the model has: windows, layers without rotation, sinks or another scale show
    as other logits.
    """
    if model.mask_id is not None:
        return "it reads in both directions, and these methods count distances backward"
    if is_run(model.source):
        position = model.model.config.transformer_config.get_position_config("decoder")
        if position.layers is not None:
            return "its layers have different positions, and a method has one for all"
        if position.options.get("values"):
            return "its values rotate with the keys (values = true), and these methods leave values as they are"
        width = model.model.config.head_dim
        few = f"only {channels} of {width} channels of a head rotate, and methods with two rotations need all"
        return "" if channels == width else few
    ids_BS = torch.randint(0, model.vocabulary_size, (2, PROBE), generator=torch.Generator().manual_seed(0))
    try:
        expected = model.compute_logits(ids_BS)
        with lay_scheme(model, Method("itself", "", scheme={"scheme": "rope", "base": base})) as laid:
            error = float((laid.compute_logits(ids_BS) - expected).abs().max())
    except Exception as fault:  # a model that is built in another way raises anything
        return f"its attention cannot be exchanged ({type(fault).__name__})"
    tolerance = max(TOLERANCE, 4 * torch.finfo(next(model.model.parameters()).dtype).eps)
    if not error <= tolerance * float(expected.abs().max()):
        return f"with our attention and its own frequencies its logits differ by {error:.2g}"
    return ""


def explain_left_out(model: LanguageModel, methods: Iterable[Method]) -> str:
    """Return why no method of a list needs another attention; empty where one does, and where none could."""
    rope = find_rope(model)
    return "" if rope is None or any(method.scheme for method in methods) else find_refusal(model, *rope)


def can_write(model: LanguageModel, method: Method) -> bool:
    """Return whether a model with a method can be opened again: by plain transformers, or here if it is a run."""
    if is_run(model.source) or method.scheme or not method.options:
        return not method.scheme or is_run(model.source)
    try:  # a class may take some rules alone, as that of Phi 3 does
        type(model.model.config).from_dict(make_configuration(model, method).to_dict())
    except Exception:
        return False
    return True


def make_configuration(model: LanguageModel, method: Method) -> Any:
    """Return a copy of the configuration of a model of transformers with the frequencies of a method."""
    config = copy.deepcopy(model.model.config)
    length = method.options.get("original_length")
    change_foreign_positions(config, method.options, model.source, length or model.trained_length)
    if method.options.get("spectrum") == "dynamic":
        # Where the base grows with the text, transformers takes this number for the trained length.
        config.get_text_config(decoder=True).max_position_embeddings = length
    return config


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


def changes_by_cache(model: LanguageModel, method: Method) -> bool:
    """Return whether a method reads a text otherwise where it goes on by a cache than in one pass.

    Models of this project take no cache where its keys would be stale; those that fill in masked tokens take none.
    """
    return model.mask_id is None and not is_run(model.source) and find_dependence(model, method) > 0


@contextmanager
def apply(model: LanguageModel, method: Method) -> Iterator[LanguageModel]:
    """Lay a method over a model, and yield the model that reads with it; a model of transformers is changed inside."""
    ours = is_run(model.source)
    if method.table and ours:
        stretched = change_table(model.model, method.rows, lambda table, rows: stretch_table(table, rows, method.table))
        yield replace(model, model=stretched)
    elif method.table:
        with _swap_table(model, method):
            yield replace(model)  # which has not read the length of the shorter table
    elif method.scheme:
        with lay_scheme(model, method) as laid:
            yield laid
    elif method.options and ours:
        yield replace(model, model=change_options(model.model, method.options))
    elif method.options:
        text = make_configuration(model, method).get_text_config(decoder=True)
        with _exchange_rotations(model, lambda rotary: type(rotary)(config=text).to(model.device)):
            yield model
    else:
        yield model


@contextmanager
def lay_scheme(model: LanguageModel, method: Method) -> Iterator[LanguageModel]:
    """Lay the scheme of a method over all layers of a model inside the context."""
    if is_run(model.source):
        yield replace(model, model=change_scheme(model.model, method.scheme))
        return
    text = model.model.config.get_text_config(decoder=True)
    width = count_rotated_channels(text, {})  # all channels of a head
    sizes = Sizes(text.hidden_size, text.hidden_size, text.num_attention_heads, width)
    table = PositionConfig.from_dict(method.scheme)
    with install(model.model, build(CATALOGUE, table.scheme, sizes, table.options)):
        yield model


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
    """Put a stretched table into a model of transformers, and lengthen the numbers that it keeps beside the table."""
    named_table = find_position_table(model.model)
    if named_table is None:
        raise UsageError(f"{model.source} has no learned table of positions")
    name, table = named_table
    before, rows, first = table.weight, table.num_embeddings, count_rows_before(table)
    longer_PD = stretch_table(before.detach()[first:], method.rows, method.table)
    table.weight = nn.Parameter(torch.cat([before.detach()[:first], longer_PD.to(before.dtype)]))
    table.num_embeddings = len(table.weight)
    parent = model.model.get_submodule(name.rpartition(".")[0])
    shorter = {key: buffer for key, buffer in parent.named_buffers(recurse=False) if buffer.shape[-1:] == (rows,)}
    for key, buffer in shorter.items():
        # Either the numbers of the positions, or one number for all.
        longer_P = torch.arange(table.num_embeddings, device=buffer.device)
        if not bool((buffer == longer_P[:rows]).all()):
            longer_P = buffer.flatten()[:1].expand(table.num_embeddings)
        setattr(parent, key, longer_P.to(buffer.dtype).expand(*buffer.shape[:-1], table.num_embeddings))
    try:
        yield
    finally:
        table.weight, table.num_embeddings = before, rows
        for key, buffer in shorter.items():
            setattr(parent, key, buffer)


def stretch_table(table_PD: Float[Tensor, "P D"], rows: int, way: str) -> Float[Tensor, "R D"]:
    """Return a table of ``rows`` rows made of a shorter one; ``way``: a key of ``STRETCHES``."""
    if way == "interpolated":  # linearly between neighbours; the ends stay the ends
        return F.interpolate(table_PD.T[None], size=rows, mode="linear", align_corners=True)[0].T
    if way == "tiled":
        return table_PD.repeat(-(-rows // len(table_PD)), 1)[:rows]
    if way == "held":
        return torch.cat([table_PD, table_PD[-1:].expand(rows - len(table_PD), -1)])
    # Go on by the linear map that best takes each trained row to the next; norms stay within the trained ones.
    mean_D = table_PD.double().mean(0)
    centred_PD = table_PD.double() - mean_D
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
