"""Every exception names a scheme, its options and a reason, and covers no more than the options that it names."""

from __future__ import annotations

from clockhands.options import options_of
from clockhands.scheme_pages.excused_laws import EXCEPTIONS, find_excuse, list_excuses
from clockhands.schemes import CATALOGUE
from tests.schemes.oracles import VARIANTS


def defaults(name: str) -> dict[str, object]:
    return {key: option.default for key, option in options_of(CATALOGUE[name]).items()}


def test_every_exception_names_a_scheme_its_options_and_a_reason() -> None:
    for broken in (each for exceptions in EXCEPTIONS.values() for each in exceptions):
        assert broken.reason
        assert set(broken.when) <= set(defaults(broken.scheme))


def test_an_exception_is_as_wide_as_the_options_that_it_names() -> None:
    for law, exceptions in EXCEPTIONS.items():
        for broken in exceptions:
            whole = defaults(broken.scheme)
            assert find_excuse(law, broken.scheme, {**whole, **broken.when}) == broken.reason
            tried = [{**whole, **options} for options in VARIANTS[broken.scheme]]
            covered = [bool(find_excuse(law, broken.scheme, options)) for options in tried]
            assert any(covered), f"no variant of {broken.scheme} shows that it breaks {law!r}"
            assert not broken.when or not all(covered), f"no variant of {broken.scheme} shows that it can keep {law!r}"


def test_the_page_tells_the_option_that_breaks_a_law() -> None:
    assert list_excuses("index") == {"packing": "with normalise=length it reads the longest document of the row"}
    assert list_excuses("rope")["packing"].startswith("with spectrum=dynamic its frequencies")
    assert list_excuses("none") == {}
