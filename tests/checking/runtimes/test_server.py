"""Completions servers: a sound one raises no alarm, faults of caches and batches are found, nothing else is asked."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from clockhands import reading
from clockhands.checking.against import Deviation, compare_subjects
from clockhands.checking.examination import check_subject
from clockhands.checking.models import make_subjects
from clockhands.checking.result import Result
from clockhands.checking.runtimes import server as serving_program
from clockhands.checking.runtimes.program import open_program
from clockhands.checking.runtimes.server import CompletionsServer
from clockhands.cli import main
from clockhands.errors import CheckpointError, DataError, UsageError
from tests.checking.runtimes.exports import gpt2, llama, make, unpermuted
from tests.checking.runtimes.serving import Lie, serve


@cache
def model(kind: str) -> Any:
    return make(gpt2() if kind == "learned" else llama())


def check(kind: str, fault: str = "sound", lie: Lie | None = None) -> tuple[Result, Deviation | None]:
    served = unpermuted(model(kind)) if fault == "unpermuted" else model(kind)
    reference = make_subjects.from_model(model(kind))[0]
    with serve(served, fault, lie) as address:
        subject = open_program(address, reference=reference)
        result = check_subject(subject)
        return result, None if result.fault else compare_subjects(subject, reference)


def list_failed(result: Result) -> dict[str, str]:
    return {outcome.check: outcome.cause for outcome in result.outcomes if outcome.verdict == "FAIL"}


@pytest.mark.parametrize("kind", ["rope", "learned"])
def test_a_sound_server_raises_no_alarm(kind: str) -> None:
    result, deviation = check(kind)
    assert not result.failed and deviation is not None and deviation.same
    passed = {outcome.check for outcome in result.outcomes if outcome.verdict == "PASS"}
    assert passed > {"deterministic", "causal.future", "causal.prefix", "order.matters", "batch.alone", "batch.unequal"}
    assert passed > {"padding.right", "cache.reused", "length.claimed", "state.medium"}
    rely = result.rely()
    assert rely["cached decoding"] is None and rely["left padding by the mask alone"] is None


def test_keys_of_another_text_in_the_prefix_cache_are_found() -> None:
    result, _ = check("rope", "stale")
    assert set(list_failed(result)) == {"cache.reused"} and result.rely()["prefix cache"] is False


def test_pads_that_are_counted_are_found() -> None:
    assert set(list_failed(check("learned", "counted")[0])) == {"batch.unequal"}


def test_other_weights_are_named() -> None:
    result, deviation = check("rope", "unpermuted")
    assert not result.failed and deviation is not None and not deviation.same
    assert "q and k are not permuted" in deviation.explanation


def change_scores(change: Callable[[int, float], Any]) -> Lie:
    """A lie about each score but the first, which is null: by its place and what it is."""

    def lie(choices: list[dict[str, Any]], _: Any) -> Any:
        for choice in choices:
            row = choice["logprobs"]["token_logprobs"]
            row[1:] = [change(place, score) for place, score in enumerate(row[1:], 1)]
        return choices

    return lie


def draw(_: int, __: float) -> float:
    return -random.expovariate(0.3)


FALSE = {
    "NaN": (
        change_scores(lambda place, score: float("nan") if place > 4 else score),
        "logits are NaN, first at token 5 of row 0",
    ),
    "-inf": (
        change_scores(lambda place, score: float("-inf") if place > 4 else score),
        "logits are infinite, first at token 5 of row 0",
    ),
    "all the same": (change_scores(lambda place, score: -4.787), "every score of a text is the same, -4.787"),
    "right for half": (change_scores(lambda place, score: score if place % 2 else 0.0), "of 47 scores are exactly 0"),
    "two digits": (change_scores(lambda place, score: round(score, 2)), "are rounded to 2 digits after the point"),
    "cut off": (change_scores(lambda place, score: max(score, -4.5)), "rounded, cut off or made up"),
}


@pytest.mark.parametrize("name", FALSE)
def test_scores_that_say_nothing_fail(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lie, words = FALSE[name]
    result, _ = check("rope", lie=lie)
    assert result.failed and words in result.fault and not result.outcomes
    model("rope").save_pretrained(tmp_path / "llama")
    with serve(model("rope"), lie=lie) as address:
        assert main(["check", address]) == 1
        assert words in capsys.readouterr().out.splitlines()[0]
        assert main(["check", address, "--against", str(tmp_path / "llama")]) == 1


def test_scores_in_another_order_break_laws() -> None:
    def reverse(choices: list[dict[str, Any]], _: Any) -> Any:
        for choice in choices:
            choice["logprobs"]["token_logprobs"][1:] = choice["logprobs"]["token_logprobs"][:0:-1]
        return choices

    assert set(list_failed(check("rope", lie=reverse)[0])) >= {"causal.future", "causal.prefix"}


@pytest.mark.parametrize("size", [0.05, 1.0], ids=["noisy", "random"])
def test_a_server_that_does_not_repeat_itself_fails(size: float) -> None:
    """However noisy, so that no tolerance grows with it; noise as low precision has it is forgiven."""
    random.seed(0)
    noisy = change_scores(lambda place, score: min(score + random.gauss(0, 2 * size), 0.0) if size < 1 else draw(0, 0))
    result, deviation = check("rope", lie=noisy)
    failed = {outcome.check: outcome for outcome in result.outcomes if outcome.verdict == "FAIL"}
    assert result.failed and "not repeatable" in failed["deterministic"].note
    assert result.rely()["one text after another"] is False
    if size == 1.0:
        assert set(failed) >= {"deterministic", "causal.future", "batch.alone", "cache.reused"}
        assert deviation is not None and not deviation.same
    quiet, _ = check("rope", lie=change_scores(lambda place, score: min(score + random.gauss(0, 0.002), 0.0)))
    assert not quiet.failed


def put(value: Any) -> Lie:
    return change_scores(lambda place, score: value if place == 3 else score)


def with_index(change: Callable[[int], Any]) -> Lie:
    return lambda choices, _: [{**choice, "index": change(choice["index"])} for choice in choices]


WRONG: dict[str, tuple[Lie, str]] = {
    "true": (put(True), "'True' as a score, which is no log-probability"),
    "text": (put("-1.5"), "'-1.5' as a score"),
    "a list": (put([-1.5]), "as a score, which is no log-probability"),
    "a probability": (put(0.4), "'0.4' as a score"),
    "many digits": (put(-(10**200)), "as a score"),
    "null": (put(None), "turn off what adds tokens"),
    "indices alike": (with_index(lambda _: 0), "answers of the indices [0, 0]"),
    "an index of text": (with_index(str), "answers of the indices ['0'"),
    "an index of true": (with_index(lambda n: bool(n) if n < 2 else n), "answers of the indices [False"),
    "scores of text": (
        lambda choices, _: [{**choice, "logprobs": {"token_logprobs": "abc"}} for choice in choices],
        "'abc' as token_logprobs, which is no list",
    ),
    "scores by token": (
        lambda choices, _: [{**choice, "logprobs": {"token_logprobs": {"a": -1}}} for choice in choices],
        "as token_logprobs, which is no list",
    ),
    "too few": (
        lambda choices, _: [
            {**choice, "logprobs": {"token_logprobs": choice["logprobs"]["token_logprobs"][:-2]}} for choice in choices
        ],
        "turn off what adds tokens",
    ),
    "one answer less": (lambda choices, _: choices[:-1] if len(choices) > 1 else choices, "indices [0] for 2 texts"),
    "no choices": (lambda choices, _: [], "answers of the indices []"),
    "choices of text": (lambda choices, _: "abc", "gives no log-probabilities"),
}


@pytest.mark.parametrize("name", WRONG)
def test_answers_of_the_wrong_kind_are_refused(name: str) -> None:
    lie, words = WRONG[name]
    short = ("true", "text", "a list", "a probability", "many digits", "null")  # seen in texts of four tokens
    with serve(model("rope"), lie=lie) as address:
        if name in short:
            program = CompletionsServer(address)
            with pytest.raises(CheckpointError, match=re.escape(words)):
                program.logits(torch.arange(20, 40)[None])
            return
        with pytest.raises(CheckpointError, match=re.escape(words)):
            CompletionsServer(address).logits(torch.arange(20, 80).view(3, 20))


@pytest.mark.parametrize("fault", ["slow", "endless"])
def test_an_answer_that_never_ends_is_given_up(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_program, "SECONDS", 1.0)
    monkeypatch.setattr(reading, "LARGEST_DOCUMENT", 4 << 20)
    words = "gave no whole answer within 1 seconds" if fault == "slow" else "answered with more than 4,194,304 bytes"
    with serve(model("rope"), fault) as address, pytest.raises(DataError, match=words):
        CompletionsServer(address).logits(torch.arange(20, 40)[None])


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


@pytest.mark.parametrize("address", ["http://[::1/", "http://x:99999/v1", "http://x:y/v1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=r"is no address: .*; write http://HOST:PORT/v1"):
        CompletionsServer(address)


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
        assert f"PASS  {address}: no fault of its own" in capsys.readouterr().out
        assert main(["check", address, "--model", "other"]) == 2
        assert "has the models tiny: choose with --model NAME" in capsys.readouterr().err
    assert main(["check", address]) == 1
    assert "is the server running?" in capsys.readouterr().err
    assert main(["check", "--type", "llama", "--tiny", "--model", "tiny"]) == 2
    assert "--model tiny is about a server" in capsys.readouterr().err
