"""Types of the fixtures that nearly every test of a command takes."""

from __future__ import annotations

from typing import TypeAlias

import pytest

Capture: TypeAlias = pytest.CaptureFixture[str]
Patch: TypeAlias = pytest.MonkeyPatch
