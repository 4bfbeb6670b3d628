"""Read from the class of a scheme what its page says: equation, options, source, declarations. Plain data.

And the laws that schemes break: the tests expect a law to fail under exactly the options that stand here, and to hold
under all others, and the page says why.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from clockhands.options import defaults_of, describe, options_of, read_docstring
from clockhands.scheme_pages.variants import VARIANTS, SchemeVariant, complete_options
from clockhands.schemes import CATALOGUE, Declares, read_part
from clockhands.schemes.catalogue import Sizes, build

COSTS = Path(__file__).with_name("costs.json")
"""What ``docs/make_schemes.py --time`` measured."""
PAGE_SIZES = Sizes(width=512, d_model=512, num_heads=8, head_dim=64, num_layers=6, causal=True)
WHERE = {
    "encode": "embedding",
    "locate": "positions",
    "rotate": "queries and keys",
    "rotate_values": "values",
    "bias": "bias",
    "logits": "logits",
    "weigh": "weights",
    "values": "values",
    "rotate_back": "output",
}


@dataclass(frozen=True)
class _OptionDoc:
    """One option: how to write it, what it takes, what it does."""

    name: str
    takes: str
    default: Any
    meaning: str


@dataclass(frozen=True)
class Page:
    """Everything a reader of the catalogue is told about a scheme.

    ``example`` is a session of Python that runs, ``variants`` are the rows of its options that have a name.
    ``parameters`` is for ``PAGE_SIZES``, one instance; ``cost`` is its time over that of no position, as
    ``read_costs`` says; ``limits`` are where it does not serve, as it declares itself; ``excuses`` are the laws that it
    does not keep, and why.
    """

    name: str
    title: str
    summary: str
    equation: str
    source: str
    peers: tuple[str, ...]
    models: tuple[str, ...]
    enters: tuple[str, ...]
    options: tuple[_OptionDoc, ...]
    declares: Mapping[str, Any]
    parameters: int
    numbers: Mapping[str, tuple[float, ...]]
    per_layer: bool
    cost: float | None
    limits: tuple[str, ...]
    excuses: Mapping[str, str]
    example: str
    variants: tuple[SchemeVariant, ...]

    @property
    def extrapolates(self) -> bool:
        """Whether positions beyond any length are defined; how well a model reads them is another question."""
        return bool(self.declares["beyond"] == "extrapolate")

    def to_dict(self) -> dict[str, Any]:
        """Return the page in JSON's types, as a row of the kind ``scheme``."""
        return {"name": self.name, "kind": "scheme", "of": self.name, **asdict(self)}


def make_page(name: str, overrides: Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None) -> Page:
    """Make the page of a scheme under options, and ``sizes`` other than ``PAGE_SIZES``.

    Raises UnknownNameError for its name, ConfigError for the options.
    """
    kind, options = CATALOGUE[name], complete_options(name, overrides)
    shown = dataclasses.replace(PAGE_SIZES, **dict[str, Any](sizes or {}))
    scheme = build(CATALOGUE, name, shown, options)
    in_encoder = build(CATALOGUE, name, dataclasses.replace(shown, causal=False), options)
    summary, _ = read_docstring(kind)
    cost = read_costs()["times the cost of none"].get(name)
    return Page(
        name=name,
        title=CATALOGUE.describe(name),
        summary=summary,
        equation=kind.equation,
        source=kind.source,
        peers=kind.peers,
        models=kind.models,
        enters=tuple(WHERE[hook] for hook in WHERE if hook in scheme.active_hooks()),
        options=tuple(
            _OptionDoc(option.name, describe(option.type), option.default, option.meaning)
            for option in options_of(kind).values()
        ),
        declares=asdict(scheme.declares),
        parameters=sum(parameter.numel() for parameter in scheme.parameters()),
        numbers=scheme.list_numbers(),
        per_layer=kind.per_layer,
        cost=cost,
        limits=tuple(_list_limits(scheme.declares, in_encoder.declares, cost)),
        excuses=_list_excuses(name),
        # As a person types it, with what is printed.
        example=textwrap.dedent(inspect.cleandoc(kind.__doc__ or "").partition("\nExamples:\n")[2]).rstrip(),
        variants=tuple(variant for variant in VARIANTS if variant.of == name),
    )


@cache
def read_costs() -> dict[str, Any]:
    """Read the measured costs: the ``setting``, and ``times the cost of none`` of each scheme that fits the setting."""
    measured: dict[str, Any] = json.loads(COSTS.read_text("utf8"))
    return measured


def list_rows() -> list[dict[str, Any]]:
    """Return every scheme, spectrum, form and transform, one row each: schemes with all that their pages tell."""
    return [*(listed.to_dict() for listed in make_pages()), *(asdict(variant) for variant in VARIANTS)]


def make_pages() -> list[Page]:
    """Make the pages of the whole catalogue under the defaults."""
    return [make_page(name) for name in CATALOGUE]


SLOW = 2.0
"""Times the cost of no position from which a page says that a scheme costs time."""


def _list_limits(declares: Declares, in_encoder: Declares, cost: float | None) -> list[str]:
    """Return where a scheme does not serve, one phrase each, by what it declares and by its measured cost.

    ``in_encoder``: what it declares where the model has no causal mask.
    """
    limits = []
    if declares.max_length is None and declares.beyond == "raise":
        limits.append("beyond its window: tokens that are further apart are refused")
    if declares.max_length is not None and declares.beyond != "extrapolate":
        what = "are refused" if declares.beyond == "raise" else "are read as the last one"
        limits.append(f"for texts of more than {declares.max_length:,} tokens: later positions {what}")
    if declares.depends_on_length:
        longer = f" longer than {declares.steady_length:,} tokens" if declares.steady_length else ""
        limits.append(
            f"to generate texts{longer} with a KV cache: what a token gets changes with the length, so that the whole "
            "text is read again at every step"
        )
    if in_encoder.causal_only:
        limits.append("in an encoder: it is defined for keys before the query alone")
    if not declares.translation_invariant:
        limits.append("where a text may begin at any position: a shift of all positions changes what it does")
    if not declares.real_valued:
        limits.append("for positions between whole numbers, such as times: they are refused")
    if declares.axes == 1 and not declares.more_axes:
        limits.append("for positions of several coordinates, such as those of images: they are refused")
    elif declares.axes not in (None, 1):
        limits.append(f"for positions that are single numbers alone: it reads {declares.axes} coordinates")
    if declares.stochastic:
        limits.append("where training must be equal from pass to pass: it draws random numbers")
    if cost is not None and cost >= SLOW:
        limits.append(f"where the time of attention counts: it takes {cost:.2f} times that of no position")
    return limits


class _BrokenLaw(NamedTuple):
    """One law that one scheme breaks, with ``when``: the values of options under which it does, or always."""

    scheme: str
    reason: str
    when: Mapping[str, Any] = MappingProxyType({})


_FLOAT32 = "is computed in float32 whatever the inputs, too coarse for finite differences"
_DIGITS = "and float32 carries seven digits of a million through it"
_LONGEST = "its frequencies follow the longest document of the row"

EXCEPTIONS: dict[str, tuple[_BrokenLaw, ...]] = {
    "packing": (
        _BrokenLaw("index", "it reads the longest document of the row", {"normalise": "length"}),
        _BrokenLaw("rope", _LONGEST, {"spectrum": "dynamic"}),
        _BrokenLaw("rope", _LONGEST, {"spectrum": "longrope"}),
    ),
    "far": (
        _BrokenLaw("dape", f"its network is fed biases as they are, {_DIGITS}", {"base": "alibi"}),
        _BrokenLaw("dynamic", f"its network is fed distances as they are, {_DIGITS}", {"log_distance": False}),
        _BrokenLaw("xpos", "its factors leave the range of float32 over such spans, which it refuses"),
        _BrokenLaw("swin", "offsets beyond its window raise PositionError"),
        _BrokenLaw("diet", "distances beyond its table raise PositionError", {"form": "relative"}),
    ),
    "finite differences of parameters": (
        _BrokenLaw("dape", f"its bias {_FLOAT32}"),
        _BrokenLaw("path", f"its coordinates are {_FLOAT32.removeprefix('is ')}"),
        _BrokenLaw("dynamic", f"its curve {_FLOAT32}"),
        _BrokenLaw("fire", f"its curve {_FLOAT32}"),
    ),
}


def find_excuse(law: str, scheme: str, options: Mapping[str, Any]) -> str:
    """Return why a scheme breaks a law under these options (defaults included); empty if it keeps it.

    A composition breaks the laws that its parts break.
    """
    if scheme == "composition":
        parts = [read_part(entry) for entry in options["schemes"]]
        wholes = ((name, {**defaults_of(options_of(CATALOGUE[name])), **own}) for name, own in parts)
        return next((reason for name, whole in wholes if (reason := find_excuse(law, name, whole))), "")
    for broken in EXCEPTIONS.get(law, ()):
        if scheme == broken.scheme and all(options[name] == value for name, value in broken.when.items()):
            return broken.reason
    return ""


def _list_excuses(name: str) -> dict[str, str]:
    """Return for each law that a scheme breaks the options under which it does, and why."""
    broken: dict[str, list[str]] = {}
    for law, exceptions in EXCEPTIONS.items():
        for exception in exceptions:
            if exception.scheme == name:
                options = ",".join(f"{option}={value}" for option, value in exception.when.items())
                broken.setdefault(law, []).append(f"with {options} {exception.reason}" if options else exception.reason)
    return {law: "; ".join(reasons) for law, reasons in broken.items()}
