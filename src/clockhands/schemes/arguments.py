"""What a scheme's constructor, or ``attend``, was called with: checked, each fault in one sentence."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ParamSpec, TypeVar

from clockhands.errors import ArgumentError, ConfigError, show_value, suggest_nearest
from clockhands.options import check_value, fits

P = ParamSpec("P")
R = TypeVar("R")
OTHER_NAMES = {
    "fraction": "rotary_dim rotary_pct rotary_percent partial_rotary_factor",
    "head_dim": "dim d_head head_size rotary_dim",
    "width": "dim embed_dim embedding_dim hidden_size dim_model",
    "d_model": "dim embed_dim embedding_dim hidden_size dim_model",
    "base": "theta rope_theta theta_base max_period",
    "num_heads": "heads n_heads nhead num_attention_heads",
    "left": "size window window_size sliding_window",
    "max_length": "max_len max_seq_len max_position_embeddings num_embeddings n_positions n_ctx block_size size",
    "original_length": "max_len max_seq_len max_position_embeddings original_max_position_embeddings",
    "layout": "interleaved is_neox_style",
    "spectrum": "scaling rope_scaling rope_type",
    "buckets": "num_buckets",
    "max_position": "npos_max max_len",
    "causal": "bidirectional is_causal",
    "mask_BHST": "mask attn_mask attention_mask attn_bias",
    "scale": "scaling sm_scale softmax_scale",
    "dropout": "dropout_p attn_dropout",
    "qpos": "pos positions position_ids",
}
"""What other libraries call the sizes and options of our schemes, and the arguments of ``attend``.

The first of ours that is a parameter is meant.
"""
_OTHER_VALUES = {
    "left": ", and does not count the query's own token: one less",
    "bidirectional": ", and says the opposite",
    "interleaved": ": layout='interleaved' or 'half'",
}
"""Where the value is another too, by our name or by the other's."""


SIZES = ("width", "d_model", "num_heads", "head_dim", "num_layers", "causal")
"""Names that positional parameters of a scheme's constructor may have: the fields of ``catalogue.Sizes``."""


def explain_call(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose call with a missing or unknown argument raises ArgumentError, and says what is meant."""
    own = inspect.signature(function).parameters
    places = [name for name, parameter in own.items() if parameter.kind is not parameter.KEYWORD_ONLY]
    needed = [name for name in places if own[name].default is inspect.Parameter.empty]
    name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    call = ", ".join(place for place in needed if place != "self")

    @functools.wraps(function)
    def explained(*args: P.args, **named: P.kwargs) -> R:
        try:
            return function(*args, **named)
        except TypeError as fault:
            if fault.__traceback__ is None or fault.__traceback__.tb_next is not None:
                raise  # inside the function, not by its call
            for unknown in named.keys() - own.keys():
                raise ArgumentError(f"{name} has no argument {unknown!r}{_suggest(unknown, own)}") from None
            missing = [place for place in needed[len(args) :] if place not in named]
            if missing:
                raise ArgumentError(f"{name} lacks {' and '.join(missing)}; call it as {name}({call})") from None
            options = ", ".join(key for key in own if key not in places)
            raise ArgumentError(f"{name}: {fault}; options are written with their names: {options}") from None

    return explained


@cache
def _read_signature(kind: type) -> tuple[Mapping[str, inspect.Parameter], Mapping[str, Any]]:
    """Return the parameters of a class's constructor by name, without ``self``, and their annotations."""
    parameters = dict(list(inspect.signature(kind.__init__).parameters.items())[1:])  # type: ignore[misc]
    return parameters, typing.get_type_hints(kind.__init__, include_extras=True)  # type: ignore[misc]


def check_arguments(kind: type, sizes: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return what a constructor is called with, by name of its parameters.

    Raises ArgumentError for names that it does not have, for sizes that it needs, and for values of another type;
    ConfigError for numbers out of the range that their annotation says.
    """
    parameters, hints = _read_signature(kind)
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    places = [name for name, place in kinds.items() if place is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if inspect.Parameter.VAR_POSITIONAL in kinds.values():
        sizes = ()  # the parts of a composition, which it checks itself
    if len(sizes) > len(places):
        takes = f"takes {' and '.join(places) or 'nothing'} by position"
        own = ", ".join(name for name, place in kinds.items() if place is inspect.Parameter.KEYWORD_ONLY)
        advice = f"write options with their names: {own}" if own else "it has no options"
        raise ArgumentError(f"{kind.__name__} {takes}, and {len(sizes)} values were given; {advice}")
    arguments = {**dict(zip(places, sizes, strict=False)), **options}
    for name in options:
        if name not in parameters:
            raise ArgumentError(f"{kind.__name__} has no parameter {name!r}{_suggest(name, parameters)}")
    for name in places:
        if parameters[name].default is inspect.Parameter.empty and name not in arguments:
            raise ArgumentError(f"{kind.__name__} needs {name}, as in {_show_example(kind, parameters)}")
    faults, out_of_range = [], []
    for name, value in arguments.items():
        type_ = hints.get(name, Any)
        wrong = _check(name, value, type_)
        if wrong and name not in SIZES and fits(value, type_):
            out_of_range += wrong
        else:
            faults += wrong
    if faults:
        raise ArgumentError(f"{kind.__name__}: " + "; ".join(faults))
    if out_of_range:
        raise ConfigError(out_of_range, kind.__name__)
    return arguments


def _check(name: str, value: Any, type_: Any) -> list[str]:
    """Return what is wrong with the type or the range of a value, or nothing."""
    if hasattr(type_, "kinds"):
        if isinstance(value, type_):
            return []
        kinds = ", ".join(kind.__name__ for kind in type_.kinds().values())
        example = f"a {type_.__name__} such as YaRN(factor=4.0, original_length=2048)"
        return [f"{name} is {show_value(value)}, but must be {example}; there are {kinds} (from_options takes names)"]
    if name in SIZES and type(value) is int and value < 1:
        return [f"{name} is {value}, but must be at least 1"]
    # A tensor is no number; other objects, such as schemes and lists, are judged by the constructor.
    is_tensor = type(value).__module__.startswith("torch") and not fits(value, type_)
    is_plain = isinstance(value, (str, bool, int, float)) or value is None
    return check_value(name, value, type_) if is_plain or is_tensor else []


def _suggest(name: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """Return what is meant by a name that is no parameter."""
    meant = next((own for own, others in OTHER_NAMES.items() if name in others.split() and own in parameters), None)
    if meant is not None:
        return f"; it is called {meant!r} here" + (_OTHER_VALUES.get(name) or _OTHER_VALUES.get(meant, ""))
    if "spectrum" in parameters:
        name = "factor" if name == "scaling_factor" else name
        kinds = parameters["spectrum"].default.kinds().values()
        takers = [kind.__name__ for kind in kinds if name in kind.__dataclass_fields__]
        if takers:
            takers.sort(key=lambda kind: kind != "YaRN")  # the most usual one as the example
            others = f" (or of {', '.join(takers[1:])})" if takers[1:] else ""
            return f"; it is one of a spectrum, as in spectrum={takers[0]}({name}=...){others}"
    return suggest_nearest(name, parameters)


def _show_example(kind: type, parameters: Mapping[str, inspect.Parameter]) -> str:
    """Return a call with a value for each parameter that has no default."""
    values = {"width": 512, "d_model": 512, "num_heads": 8, "head_dim": 64, "num_layers": 6, "causal": True}
    needed = [name for name, parameter in parameters.items() if parameter.default is inspect.Parameter.empty]
    return f"{kind.__name__}({', '.join(f'{name}={values.get(name, ...)}' for name in needed)})"


def describe_arguments(kind: type, arguments: Mapping[str, Any]) -> str:
    """Return the sizes and the options that are not defaults, as they stand in a call: ``64, base=500000.0``."""
    parameters, _ = _read_signature(kind)
    shown = []
    for name, parameter in parameters.items():
        if name not in arguments or type(arguments[name]).__module__.startswith("torch"):
            continue
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY and parameter.default is inspect.Parameter.empty:
            shown.append(f"{arguments[name]!r}")
        elif arguments[name] != parameter.default:
            shown.append(f"{name}={arguments[name]!r}")
    return ", ".join(shown)
