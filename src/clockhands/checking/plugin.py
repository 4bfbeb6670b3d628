"""A pytest plugin: conformance of a model's handling of position, in anybody's own repository.

Mark a test whose argument ``position_outcome`` is then filled in, once for every check::

    @pytest.mark.position_conformance(make_model, only=["padding", "cache"], allow=["packing.gaps"])
    def test_position(position_outcome):
        position_outcome.require()

``make_model`` is a model, or a function without arguments that makes one: of transformers, a torch module, or an
adapter. Keyword arguments besides ``only``, ``slow`` and ``allow`` go to ``clockhands.check``.
"""

from __future__ import annotations

from typing import Any

import pytest

MARK = "position_conformance"


class Conformance:
    """One check on one model, to be required by a test."""

    def __init__(self, key: Any, check: str, allowed: bool) -> None:
        self._key, self.check, self.allowed = key, check, allowed

    @property
    def outcome(self) -> Any:
        """The checker's ``Outcome``; the model is made and checked at the first call."""
        return _outcome(self._key, self.check)

    def require(self) -> None:
        """Fail the test with the cause if the check failed; skip it if it does not apply."""
        from clockhands.checking.result import sentence

        outcome = self.outcome
        if outcome.verdict == "N/A":
            pytest.skip(outcome.reason)
        if outcome.verdict == "FAIL" and self.allowed:
            pytest.xfail(sentence(outcome))
        if outcome.verdict == "FAIL":
            pytest.fail(f"{self.check}: {sentence(outcome)}", pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers", f"{MARK}(model, only=None, allow=(), slow=False, **options): check how a model handles position"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for every check."""
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is None:
        return
    if "position_outcome" not in metafunc.fixturenames:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: a test marked {MARK} needs the argument position_outcome"
        )
    from clockhands.checking.checks.check import select

    options = dict(mark.kwargs)
    only, slow = options.pop("only", None), options.pop("slow", False)
    allow = tuple(options.pop("allow", ()))
    key = _Key(mark.args[0], options)
    names = [check.name for check in select(only, slow)]
    metafunc.parametrize("position_outcome", [Conformance(key, name, name in allow) for name in names], ids=names)


class _Key:
    """A model to make once, and its subjects once made."""

    def __init__(self, model: Any, options: dict[str, Any]) -> None:
        self.model, self.options = model, options
        self.subjects: Any = None

    def make(self) -> Any:
        """Return the subjects of the model, made at the first call."""
        from torch import nn

        from clockhands.checking.models.make_subjects import from_model

        if self.subjects is None:
            plain = callable(self.model) and not isinstance(self.model, nn.Module) and not hasattr(self.model, "logits")
            model = self.model() if plain and "vocabulary" not in self.options else self.model
            self.subjects = from_model(model, **self.options)
        return self.subjects


def _outcome(key: _Key, name: str) -> Any:
    from clockhands.checking.checks.check import CHECKS
    from clockhands.checking.verdict.run import run_checks

    subject = key.make()[0]
    config = getattr(subject.module, "config", None)
    architecture = str(getattr(config, "model_type", "") or subject.name)
    (outcome,) = run_checks(subject, [CHECKS[name]], architecture)
    return outcome
