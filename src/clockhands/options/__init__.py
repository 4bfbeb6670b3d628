"""The one reader of options: what a function or dataclass can be told, and whether a value that somebody wrote fits.

An *option* is a field of a dataclass, or a keyword-only parameter of a function or of a class's constructor. Its
annotation is all that is known of it: the type, and with ``Annotated[int, Range(least=1)]`` the range. Recipes,
configurations, schemes, corpora, plans and the command line are read with these functions::

    options_of(RoPE)["base"]                   # Option("base", float, 10000.0, "θ: ...")
    values, faults = check_options({"bsae": 1}, options_of(RoPE), "rope")
    faults                                     # ["unknown option of rope 'bsae'; did you mean 'base'?"]
    parse("2e3", int)                          # 2000.0, as a person writes it after --set; convert makes it 2000
    describe(Literal["pre", "post"])           # "one of 'pre', 'post'"
"""

from __future__ import annotations

from clockhands.options.annotations import check_value, convert, describe, fits, get_item_type, takes_path
from clockhands.options.ranges import LARGEST, LARGEST_SEED, Count, Fraction, NotNegative, Positive, Range, Seed, Share
from clockhands.options.signature import MISSING, Option, check_options, defaults_of, options_of, read_docstring
from clockhands.options.text import parse, read_assignments

__all__ = [
    "LARGEST",
    "LARGEST_SEED",
    "MISSING",
    "Count",
    "Fraction",
    "NotNegative",
    "Option",
    "Positive",
    "Range",
    "Seed",
    "Share",
    "check_options",
    "check_value",
    "convert",
    "defaults_of",
    "describe",
    "fits",
    "get_item_type",
    "options_of",
    "parse",
    "read_assignments",
    "read_docstring",
    "takes_path",
]
