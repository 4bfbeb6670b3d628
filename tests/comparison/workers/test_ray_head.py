"""Whether the head of a cluster still answers, without Ray."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from clockhands.comparison.workers.ray_head import PATIENCE, ClusterHead


@pytest.mark.parametrize(("reached", "place"), [("10.0.0.7:6379", ("10.0.0.7", 6379)), ("[::1]:25001", ("::1", 25001))])
def test_the_head_of_the_own_cluster_is_asked_by_its_port(reached: str, place: tuple[str, int]) -> None:
    ray = SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(gcs_address=reached))
    assert ClusterHead(ray, "ray").place == place
    assert ClusterHead(ray, "ray://head:10001").place is None


def test_a_head_that_is_silent_for_too_long_is_lost() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        reached = f"127.0.0.1:{listening.getsockname()[1]}"
        head = ClusterHead(SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(gcs_address=reached)), "ray")
        head.look()
    head.look()  # silent, but not for long
    head.seen -= 2 * PATIENCE
    with pytest.raises(ConnectionError, match="does not answer"):
        head.look()
