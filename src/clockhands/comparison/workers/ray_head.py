"""Tell whether the head of a Ray cluster still answers."""

from __future__ import annotations

import socket
import time
from typing import Any

LOOK, PATIENCE = 5.0, 25.0
"""Seconds between two looks at the head, and until one that is silent is gone. Ray ends the process after 60."""


class ClusterHead:
    """Whether the head of the cluster still answers: Ray ends the whole process, with its own words, when it does not.

    A client at ``ray://`` is told by its connection, and cannot see the head's port.
    """

    def __init__(self, ray: Any, address: str) -> None:
        self.place: tuple[str, int] | None = None
        if address == "ray":
            host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
            self.place = host.strip("[]"), int(port)
        self.seen = time.monotonic()

    def look(self) -> None:
        """Raises ConnectionError when the head has been silent for ``PATIENCE`` seconds."""
        if self.place is None:
            return
        try:
            socket.create_connection(self.place, timeout=LOOK).close()
            self.seen = time.monotonic()
        except OSError:
            if time.monotonic() - self.seen > PATIENCE:
                raise ConnectionError(f"its head at {self.place[0]}:{self.place[1]} does not answer") from None
