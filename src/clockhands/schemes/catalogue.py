"""Build a scheme from its name in the catalogue, the sizes of a model and the user's options, or tell every fault.

Names that people use for a scheme lead to it too (``list_meant``).

Every scheme that is not made by its own constructor is made by ``build``. A ``TransformerConfig`` judges its options
once, and then builds the schemes of a side by ``model.side_schemes.build_side``, which calls ``build`` for each.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from clockhands.catalogue import Catalogue
from clockhands.errors import ConfigError, show_value
from clockhands.options import check_call, check_options, convert, options_of
from clockhands.schemes.composition import Composition
from clockhands.schemes.scheme import SIZES, Scheme


@dataclass(frozen=True)
class Sizes:
    """What a model tells its schemes about itself; a constructor takes those of its positional parameters.

    ``width``: d_model where the encoding is added, d_p where it is concatenated. ``causal``: whether the attention that
    the scheme serves hides keys to the right of the query.
    """

    width: int
    d_model: int
    num_heads: int
    head_dim: int
    num_layers: int = 1
    causal: bool = True


def list_sizes(scheme: type[Scheme]) -> tuple[str, ...]:
    """Return the sizes that a scheme's constructor takes, in order. Raises TypeError for a parameter that is none."""
    parameters = inspect.signature(scheme.__init__).parameters.values()
    names = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and p.name != "self"]
    strange = [name for name in names if name not in SIZES]
    if strange:
        raise TypeError(f"{scheme.__name__} takes {strange} by position; options are keyword-only, sizes are {SIZES}")
    return tuple(names)


def find_option_faults(catalogue: Catalogue[type[Scheme]], name: str, options: Mapping[str, Any]) -> list[str]:
    """Return everything wrong with a scheme's name and options, one sentence each; empty if nothing is."""
    if isinstance(name, str) and ("(" in name or "+" in name):
        try:
            name, own = read_part(name)
        except ConfigError as fault:
            return list(fault.faults)
        options = {**own, **options}
    if name not in catalogue:
        return [catalogue.describe_unknown_name(name)]
    faults = check_options(options, options_of(catalogue[name]), name)[1]
    if faults or not issubclass(catalogue[name], Composition):
        return faults
    for index, entry in enumerate(options.get("schemes", ())):
        faults += [f"schemes[{index}]: {fault}" for fault in _find_part_faults(catalogue, entry)]
    return faults


def _find_part_faults(catalogue: Catalogue[type[Scheme]], entry: Any) -> list[str]:
    """Return what is wrong with a part of a composition, as a configuration names it."""
    if isinstance(entry, Scheme):
        return []
    try:
        name, options = read_part(entry)
    except ConfigError as fault:
        return list(fault.faults)
    if name in catalogue and issubclass(catalogue[name], Composition):
        return ["a composition holds no other one; name its parts here"]
    return find_option_faults(catalogue, name, options)


def read_part(entry: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a scheme that is given by its name, by a table with both, or as it is printed.

    ``rope + window(left=511)`` is a composition of two parts.

    Whether the catalogue has that scheme is not asked. Raises ConfigError for anything else.
    """
    if isinstance(entry, str):
        return _read_printed(entry) if "(" in entry or "+" in entry else (entry, {})
    if isinstance(entry, Mapping) and isinstance(entry.get("scheme"), str):
        return entry["scheme"], {key: value for key, value in entry.items() if key != "scheme"}
    example = '{ scheme = "rope", base = 500.0 }'
    raise ConfigError(
        [f"{show_value(entry)} names no scheme; write its name, or a table of it and its options: {example}"],
        "the scheme",
    )


def _read_printed(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of ``window(left=511)``, or a composition of what stands between ``+``."""
    # A hyphen within a name is none of Python's operators.
    code = re.sub(r"(?<=[a-z])-(?=[a-z])", "_", text)
    try:
        node: ast.expr = ast.parse(code.strip(), mode="eval").body
        parts = [_read_call(part) for part in _list_terms(node)]
    except (SyntaxError, ValueError) as fault:
        raise ConfigError([f"{show_value(text)} is no scheme; write rope + window(left=511)"], "the scheme") from fault
    if len(parts) == 1:
        return parts[0].pop("scheme"), parts[0]
    return "composition", {"schemes": parts}


def _list_terms(node: ast.expr) -> list[ast.expr]:
    """Return what stands between the signs ``+``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_list_terms(node.left), node.right]
    return [node]


def _read_call(node: ast.expr) -> dict[str, Any]:
    """Return the table of ``window(left=511)`` or ``rope``. Raises ValueError for anything else."""
    if isinstance(node, ast.Name):
        return {"scheme": node.id.replace("_", "-")}
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)) or node.args:
        raise ValueError(ast.dump(node))
    options = {}
    for keyword in node.keywords:
        # Words stand without quotes, as layout=half.
        value = keyword.value
        options[str(keyword.arg)] = value.id if isinstance(value, ast.Name) else ast.literal_eval(value)
    return {"scheme": node.func.id.replace("_", "-"), **options}


@check_call
def build(
    catalogue: Catalogue[type[Scheme]],
    name: str,
    sizes: Sizes,
    options: Mapping[str, Any] | None = None,
    *,
    validated: bool = False,
) -> Scheme:
    """Build a scheme, and the parts of a composition, from its name for a model of these sizes.

    ``validated``: the options are known to be valid (``find_option_faults``), and are not judged again. Raises
    ConfigError naming every fault, also those that only the constructor finds.
    """
    name, own = read_part(name)
    options = {**own, **(options or {})}
    faults = [] if validated else find_option_faults(catalogue, name, options)
    if faults:
        raise ConfigError(faults, f"scheme {name!r}")
    scheme, model = catalogue[name], asdict(sizes)
    known = options_of(scheme)
    values = {key: convert(value, known[key].type) for key, value in options.items()}
    if issubclass(scheme, Composition):
        entries = values.get("schemes", known["schemes"].default)
        parts: list[Scheme] = []
        for entry in entries:
            if isinstance(entry, Scheme):
                parts.append(entry)
            else:
                part, part_options = read_part(entry)
                parts.append(build(catalogue, part, sizes, part_options, validated=True))
        values["schemes"] = parts
    try:
        return scheme.from_options(**{size: model[size] for size in list_sizes(scheme)}, **values)
    except ConfigError as fault:
        raise ConfigError(fault.faults, f"scheme {name!r}") from fault


NICKNAMES = {
    "rope": "rotary, rope, dynamic ntk, ntk, yarn, longrope, linear scaling, position interpolation, p rope",
    "none": "nope, nope position, no position",
    "sinusoidal": "sin, sine, sincos, fixed, absolute, vanilla",
    "learned": "absolute, embedding",
    "t5": "relative, relative bias",
    "shaw": "relative, relative key",
    "deberta": "disentangled",
    "window": "sliding window, local, swa",
    "forgetting": "fox, forgetting transformer",
    "sinks": "attention sinks",
    "transformer-xl": "xl, rel shift",
    "axial": "2d rope",
    "mixed": "2d rope",
}
"""What people call a scheme, where that is the name of no scheme, library or model."""


def _simplify(name: str) -> str:
    """Return a name in small letters, without what stands in brackets, and with spaces for all other signs."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z][a-z]{2})", " ", re.sub(r"\(.*?\)", "", name))
    return " ".join(re.findall(r"[a-z0-9]+", spaced.casefold()))


def list_meant(name: str, schemes: Mapping[str, type[Scheme]]) -> list[str]:
    """Return the schemes of the catalogue that are meant by a name, the likeliest first; empty where none is.

    The names of classes, of the models that have a scheme, and of what does the same elsewhere lead to it too.
    """
    wanted = _simplify(name)
    spelled = {key: [_simplify(own).replace(" ", "") for own in (key, kind.__name__)] for key, kind in schemes.items()}
    by_class = [key for key, names in spelled.items() if wanted.replace(" ", "") in names]
    if by_class:
        return by_class
    usual = [key for key, names in NICKNAMES.items() if wanted in names.split(", ") and key in schemes]
    by_model = [key for key, kind in schemes.items() if _names(wanted, kind.models)]
    by_peer = [key for key, kind in schemes.items() if _names(wanted, kind.peers)]
    return list(dict.fromkeys(usual + by_model + by_peer))


def _names(wanted: str, phrases: Iterable[str]) -> bool:
    """Return whether words stand, whole and in their order, in a phrase, or are the name that begins it."""
    return bool(wanted) and any(
        f" {wanted} " in f" {_simplify(phrase)} " or wanted.replace(" ", "") == _simplify(phrase).replace(" ", "")
        for phrase in phrases
    )
