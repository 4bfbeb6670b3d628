"""Faults of libraries become one message each, and nobody is asked anything."""

from __future__ import annotations

import io
import os
import threading
import time

import pytest

from clockhands.errors import CheckpointError, ConfigError, DataError
from clockhands.pretrained.files import explain_faults, first_line, forbid_questions, print_to_errors


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (ValueError("bad\nworse"), "^cannot open the model in x: bad$"),
        (KeyError(), "^cannot open the model in x: KeyError$"),
        (ValueError("set trust_remote_code=True"), "^x brings its own code .*--trust-remote-code"),
        (ConfigError(["a is 1"], "the model"), "^x describes no model that can be built: the model has 1 fault"),
    ],
)
def test_whatever_is_raised_becomes_one_message(raised: Exception, message: str) -> None:
    with pytest.raises(CheckpointError, match=message), explain_faults("x"):
        raise raised


def test_a_message_of_ours_stays_as_it_is() -> None:
    fault = DataError("complete")
    with pytest.raises(DataError) as caught, explain_faults("x"):
        raise fault
    assert caught.value is fault


def test_the_first_line_is_short_and_never_empty() -> None:
    assert first_line(ValueError("Error: \nthe file is cut")) == "Error: the file is cut"
    assert first_line(OSError(2, "No such file")) == "No such file"
    assert len(first_line(ValueError("x" * 5000))) == 300


def test_transformers_waits_for_no_answer() -> None:
    from transformers import dynamic_module_utils

    before = dynamic_module_utils.TIME_OUT_REMOTE_CODE
    with pytest.raises(KeyError), forbid_questions():
        assert dynamic_module_utils.TIME_OUT_REMOTE_CODE == 0
        raise KeyError
    assert before == dynamic_module_utils.TIME_OUT_REMOTE_CODE


def test_a_closed_standard_output_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    (closed := io.StringIO()).close()
    for stream in (None, closed):
        monkeypatch.setattr("sys.stdout", stream)
        with print_to_errors():
            pass


def test_two_threads_leave_standard_output_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    """The second would put back what the first had put in its place."""
    inside, over = threading.Event(), threading.Event()

    def follow() -> None:
        inside.wait()
        with print_to_errors():
            over.set()
            time.sleep(0.1)

    (second := threading.Thread(target=follow)).start()
    with print_to_errors():
        inside.set()
        over.wait(0.5)
    second.join()
    os.write(1, b"out")
    assert capfd.readouterr() == ("out", "")
