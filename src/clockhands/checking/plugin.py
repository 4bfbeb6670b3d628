"""A pytest plugin: conformance of a model's handling of position, in anybody's own repository.

Mark a test whose argument ``position_outcome`` is then filled in, once for every check::

    @pytest.mark.position_conformance(make_model, only=["padding", "cache"], allow=["packing.gaps"])
    def test_position(position_outcome):
        position_outcome.require()

``make_model`` is a model (of transformers, a torch module, or an adapter), or a function or class that makes one; its
required parameters are filled in with fixtures and parametrised arguments of the same names. A class or a module is
marked in the same way. Keyword arguments besides ``only``, ``slow`` and ``allow`` go to ``clockhands.check``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest

MARK = "position_conformance"
ARGUMENT = "position_outcome"


class Conformance:
    """One check on one model, to be required by a test."""

    def __init__(self, make_subjects: Callable[[], Sequence[Any]], check: str, allowed: bool) -> None:
        self._make_subjects, self.check, self.allowed = make_subjects, check, allowed

    @property
    def outcome(self) -> Any:
        """The checker's ``Outcome``; the model is made and checked at the first call."""
        return _find_worst_outcome(self._make_subjects(), self.check)

    def require(self) -> None:
        """Fail the test with the cause if the check failed; skip it if it does not apply."""
        from clockhands.checking.verdict.outcome import sentence

        outcome = self.outcome
        if outcome.verdict == "N/A":
            pytest.skip(outcome.reason)
        if outcome.verdict == "FAIL" and self.allowed:
            pytest.xfail(sentence(outcome))
        if outcome.verdict == "FAIL":
            pytest.fail(f"{outcome.check}: {sentence(outcome)}", pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and let it take a function or a class alone."""
    config.addinivalue_line(
        "markers", f"{MARK}(model, only=None, allow=(), slow=False, **options): check how a model handles position"
    )
    setattr(pytest.mark, MARK, _mark)


def _mark(*args: Any, **options: Any) -> Any:
    """Return the mark with its arguments. Raises TypeError where the model is left out.

    pytest itself takes a mark called with one function or class for the decorator of that function: ``make_model``
    would be marked, and the test handed to it.
    """
    (model,) = args if len(args) == 1 else (None,)
    bare = inspect.isfunction(model) and ARGUMENT in inspect.signature(model).parameters
    if bare or len(args) + ("model" in options) != 1:
        raise TypeError(f"{MARK} takes one model, or a function that makes one: @pytest.mark.{MARK}(make_model)")
    decorator = type(pytest.mark).__getattr__(pytest.mark, MARK)
    return decorator.with_args(*args, **options)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for every check; last, so that a model is made once for each set of other arguments."""
    mark = metafunc.definition.get_closest_marker(MARK)
    own = [mark for mark in metafunc.definition.own_markers if mark.name == MARK]
    test = metafunc.definition.nodeid
    if ARGUMENT not in metafunc.fixturenames:
        if own:
            raise pytest.Collector.CollectError(f"{test}: a test marked {MARK} needs the argument {ARGUMENT}")
        return
    if len(own) > 1:
        raise pytest.Collector.CollectError(
            f"{test}: marked {MARK} {len(own)} times; one test is about one model: parametrise the test and give the "
            "function that makes the model a parameter of the same name"
        )
    if mark is None:
        raise pytest.Collector.CollectError(f"{test}: the argument {ARGUMENT} needs the mark {MARK}")
    options = dict(mark.kwargs)
    model = mark.args[0] if mark.args else options.pop("model")
    only, slow, allow = options.pop("only", None), options.pop("slow", False), options.pop("allow", ())
    names = _select(test, only, slow)
    allowed = _select(test, allow, True) if allow else ()
    maker = _Maker(model, options)
    metafunc.parametrize(
        ARGUMENT, [pytest.param((maker, name, name in allowed), id=name) for name in names], indirect=True
    )


def _select(test: str, wanted: str | Sequence[str] | None, slow: bool) -> tuple[str, ...]:
    """Return the names of checks; a group stands for all of it. Raises CollectError for one that there is not."""
    from clockhands.checking.checks.check import select
    from clockhands.errors import UsageError

    try:
        return tuple(check.name for check in select([wanted] if isinstance(wanted, str) else wanted, slow))
    except UsageError as fault:
        raise pytest.Collector.CollectError(f"{test}: {fault}") from None


@pytest.fixture
def position_outcome(request: pytest.FixtureRequest) -> Conformance:
    """One check on the model of the mark ``position_conformance``."""
    maker, check, allowed = request.param
    return Conformance(lambda: maker.make(request), check, allowed)


class _Maker:
    """Makes the model of a mark once for each set of the arguments that its function takes."""

    def __init__(self, model: Any, options: dict[str, Any]) -> None:
        self.model, self.options = model, options
        self.arguments: dict[str, Any] = {}
        self.subjects: Sequence[Any] | None = None

    def make(self, request: pytest.FixtureRequest) -> Sequence[Any]:
        """Return the subjects of the model; the last model is kept."""
        from clockhands.checking.models.make_subjects import from_model

        names = self._list_arguments(request)
        arguments = {name: request.getfixturevalue(name) for name in names or ()}
        if self.subjects is None or any(arguments[name] is not self.arguments[name] for name in arguments):
            self.subjects = from_model(self.model if names is None else self.model(**arguments), **self.options)
            self.arguments = arguments
        return self.subjects

    def _list_arguments(self, request: pytest.FixtureRequest) -> list[str] | None:
        """Return the parameters to fill in before a call makes the model; None if it is the model itself.

        Fails the test for a parameter that is no argument of it and no fixture.
        """
        from torch import nn

        model: Any = self.model
        if not isinstance(model, type) and (not callable(model) or isinstance(model, nn.Module)):
            return None
        if not isinstance(model, type) and hasattr(model, "logits"):
            return None
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = inspect.signature(model).parameters.values()
        required = [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
        missing = [name for name in required if not _is_known(request, name)]
        if missing and "vocabulary" in self.options and not isinstance(model, type):
            return None  # a function from token ids to logits
        if missing:
            name = getattr(model, "__name__", model)
            pytest.fail(
                f"{name} needs {', '.join(missing)}, which is neither a parametrised argument of "
                f"{request.node.originalname} nor a fixture",
                pytrace=False,
            )
        return required


def _is_known(request: pytest.FixtureRequest, name: str) -> bool:
    if name in request.fixturenames:
        return True
    try:
        request.getfixturevalue(name)
    except pytest.FixtureLookupError:
        return False
    return True


def _find_worst_outcome(subjects: Sequence[Any], name: str) -> Any:
    """Return the outcome of a check; of an encoder-decoder the worse of its two sides."""
    from clockhands.checking.checks.check import CHECKS
    from clockhands.checking.result import ORDER
    from clockhands.checking.verdict.judge import run_checks

    outcomes = []
    for subject in subjects:
        config = getattr(subject.module, "config", None)
        architecture = str(getattr(config, "model_type", "") or subject.name)
        outcomes += run_checks(subject, [CHECKS[name]], architecture)
    return min(outcomes, key=lambda outcome: ORDER.index(outcome.verdict))
