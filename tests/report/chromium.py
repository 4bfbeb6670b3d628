"""A headless Chromium, spoken to in the DevTools protocol over its debugging pipe: no package needed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    """The first Chromium on the path."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One page in one browser with an empty profile. ``events`` holds everything the browser told of."""

    def __init__(self, binary: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="clockhands-chromium-")
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        high_in, high_out = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (theirs_in, theirs_out))

        def plug() -> None:
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        command = [binary, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, preexec_fn=plug, close_fds=False, **quiet)
        for end in (theirs_in, theirs_out, high_in, high_out):
            os.close(end)
        os.set_blocking(ours_in, False)
        self._in, self._out, self._rest, self._count = ours_in, ours_out, b"", 0
        self.events: list[dict[str, Any]] = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    _session: str | None = None

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask, wait for the answer, keep the events that arrive in between."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            self.events.append(answer)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def open(self, path: Path, width: int, *, dark: bool = False) -> None:
        """Load a file at this width and wait until it has loaded."""
        self.events.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, script: str) -> Any:
        """The JSON value of an expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def faults(self) -> list[dict[str, Any]]:
        """What the page logged or threw, a refused script or style among it."""
        return [
            event["params"]
            for event in self.events
            if event.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]

    def screenshot(self) -> str:
        """The whole page as PNG, in base64."""
        return self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + 180  # axe reads the 18,000 cells of the matrix, perhaps on a loaded machine
        while b"\0" not in self._rest:
            assert time.monotonic() < deadline, "Chromium does not answer"
            try:
                self._rest += os.read(self._in, 1 << 20)
            except BlockingIOError:
                time.sleep(0.01)
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Open the browser for tests, which are skipped where there is none."""
    binary = find()
    if binary is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the path")
    with Browser(binary) as opened:
        yield opened
