"""What is said where Ray starts slowly, hangs or fails: a stand-in for the module, so that no Ray is needed."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from clockhands.comparison.workers.ray_start import start_ray
from clockhands.errors import ClockhandsError


def test_a_start_that_hangs_ends_in_a_sentence() -> None:
    release = threading.Event()
    hanging: Any = SimpleNamespace(init=lambda **_: release.wait(30))
    with pytest.raises(ClockhandsError, match=r"^Ray did not answer at ray within 0 seconds: .* leave out --on"):
        start_ray(hanging, "ray", limit=0.2)
    release.set()


def test_whatever_ray_raises_is_told_in_a_sentence() -> None:
    def late(**_: object) -> None:
        raise Exception("The current node timed out during startup.\nThis could happen because the GCS is overloaded.")

    slow: Any = SimpleNamespace(init=late)
    with pytest.raises(ClockhandsError, match=r"^no Ray cluster answers at ray \(This could happen because the GCS"):
        start_ray(slow, "ray")


def test_the_thread_that_began_ray_lives_on() -> None:
    """Linux ends Ray's processes with it."""
    began: list[threading.Thread] = []
    ready: Any = SimpleNamespace(init=lambda **_: began.append(threading.current_thread()))
    start_ray(ready, "ray")
    began[0].join(0.2)
    assert began[0].is_alive() and began[0].daemon, "and does not keep the process alive"


def test_a_start_that_succeeds_says_nothing() -> None:
    options: dict[str, object] = {}
    ready: Any = SimpleNamespace(init=options.update)
    start_ray(ready, "ray")
    assert options == {"log_to_driver": False, "logging_level": "error", "configure_logging": True}
    options.clear()
    start_ray(ready, "ray://host:10001")
    assert options == {"log_to_driver": False, "logging_level": "error", "address": "ray://host:10001"}
