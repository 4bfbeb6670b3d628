"""Completions servers: a sound one raises no alarm, faults of caches and batches are found, nothing else is asked."""

from __future__ import annotations

import contextlib
import socket
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from clockhands.checking.models import make_subjects
from clockhands.checking.result import Result
from clockhands.checking.runtimes.examination import run_laws
from clockhands.checking.runtimes.programs.server import CompletionsServer
from clockhands.checking.runtimes.reference import Reference
from clockhands.cli import main
from clockhands.errors import CheckpointError
from tests.checking.runtimes.exports import gpt2, llama, make, unpermuted
from tests.checking.runtimes.serving import serve


@cache
def model(kind: str) -> Any:
    return make(gpt2() if kind == "learned" else llama())


def check(kind: str, fault: str) -> Result:
    served = unpermuted(model(kind)) if fault == "unpermuted" else model(kind)
    with serve(served, fault) as address:
        return run_laws(CompletionsServer(address), Reference(make_subjects.from_model(model(kind))[0]))


def list_failed(result: Result) -> dict[str, str]:
    return {outcome.check: outcome.cause for outcome in result.outcomes if outcome.verdict == "FAIL"}


@pytest.mark.parametrize("kind", ["rope", "learned"])
def test_a_sound_server_raises_no_alarm(kind: str) -> None:
    result = check(kind, "sound")
    assert list_failed(result) == {}
    passed = {outcome.check.removeprefix("runtime.") for outcome in result.outcomes if outcome.verdict == "PASS"}
    assert passed == {"repeat", "prefix", "mates", "right", "reuse", "reference"}
    assert result.rely()["prefix cache"] is True and result.rely()["cached decoding"] is None


def test_keys_of_another_text_in_the_prefix_cache_are_found() -> None:
    failed = list_failed(check("rope", "stale"))
    assert set(failed) == {"runtime.reuse"}


def test_pads_that_are_counted_are_found() -> None:
    assert set(list_failed(check("learned", "counted"))) == {"runtime.right"}


def test_other_weights_are_named() -> None:
    failed = list_failed(check("rope", "unpermuted"))
    assert set(failed) == {"runtime.reference"} and "q and k are not permuted" in failed["runtime.reference"]


def test_a_server_without_log_probabilities_is_refused() -> None:
    with serve(model("rope"), "silent") as address, pytest.raises(CheckpointError, match="echo and logprobs"):
        CompletionsServer(address)


@pytest.mark.slow
def test_transformers_serve_has_no_scores_and_is_refused_with_the_reason(tmp_path: Path) -> None:
    """It takes a prompt as a string alone, and ignores echo and logprobs: no law can be measured there."""
    for package in ("fastapi", "uvicorn", "openai"):
        pytest.importorskip(package, reason=f"transformers serve needs {package}")
    from transformers.cli.serve import Serve

    folder = tmp_path / "llama"
    model("rope").save_pretrained(folder)
    words = {"<unk>": 0, **{chr(0x4E00 + number): number for number in range(1, 120)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Serve(force_model=str(folder), host="127.0.0.1", port=port, device="cpu", non_blocking=True)
    try:
        _wait_for(port)
        with pytest.raises(CheckpointError, match=r"prompt must be a string.*gives no log-probabilities of a prompt"):
            CompletionsServer(f"http://127.0.0.1:{port}/v1", str(folder))
    finally:
        server.kill_server()


def _wait_for(port: int) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)


def test_a_named_model_need_not_be_listed() -> None:
    with serve(model("rope"), "unlisted") as address:
        with pytest.raises(CheckpointError, match="/models answered 500"):
            CompletionsServer(address)
        assert CompletionsServer(address, "tiny").vocabulary == 120


def test_no_redirect_is_followed() -> None:
    with serve(model("rope")) as address, pytest.raises(CheckpointError, match="answered 302"):
        CompletionsServer(address.removesuffix("/v1"))


def test_the_command_checks_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model("rope").save_pretrained(tmp_path / "llama")
    with serve(model("rope")) as address:
        assert main(["check", address, "--model", "tiny", "--against", str(tmp_path / "llama")]) == 0
        assert capsys.readouterr().out.startswith(f"PASS  {address}: no fault of its own")
        assert main(["check", address, "--model", "other"]) == 2
        assert "has the models tiny: choose with --model NAME" in capsys.readouterr().err
    assert main(["check", address]) == 1
    assert "is the server running?" in capsys.readouterr().err
    assert main(["check", "--type", "llama", "--tiny", "--model", "tiny"]) == 2
    assert "--model tiny is about a server" in capsys.readouterr().err
