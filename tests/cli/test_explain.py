"""``clockhands explain``: one configuration in numbers, two compared, or one written for another program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clockhands.cli import main
from tests.cli.conftest import Capture

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 4096, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip


@pytest.fixture
def llama(tmp_path: Path) -> str:
    """The file of a model with heads of 16 channels."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA), "utf8")
    return str(file)


def test_frequencies_are_those_of_the_formula(llama: str, capsys: Capture) -> None:
    """θ^(-2c/d) (Su et al. 2021, section 3.2.2)."""
    assert main(["explain", llama, "--json"]) == 0
    (layer,) = json.loads(capsys.readouterr().out)["layers"]
    assert layer["layers"] == [0, 1]
    assert layer["rotation"]["frequencies"] == pytest.approx([10000 ** (-2 * c / 16) for c in range(8)])


def test_overrides_are_compared_with_the_file(llama: str, capsys: Capture) -> None:
    overrides = ["--hf-overrides", json.dumps({"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}})]
    assert main(["explain", llama, *overrides]) == 1  # as diff: they differ
    shown = capsys.readouterr().out
    assert "10000" in shown.replace(",", "") and "500000" in shown.replace(",", "")
    assert main(["explain", llama, *overrides, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["layer"] == 0


def test_a_file_does_not_differ_from_itself(llama: str, capsys: Capture) -> None:
    assert main(["explain", llama, llama, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) is None


def test_it_is_written_for_another_program(llama: str, capsys: Capture) -> None:
    assert main(["explain", llama, "--to", "llama.cpp"]) == 0
    assert capsys.readouterr().out == "--rope-freq-base 10000 --rope-scaling none\n"


def test_positions_are_written_for_an_architecture(llama: str, capsys: Capture) -> None:
    assert main(["explain", llama, "--to", "smollm3"]) == 0
    keys = json.loads(capsys.readouterr().out)
    assert (keys["model_type"], keys["no_rope_layers"], keys["sliding_window"]) == ("smollm3", [1, 1], None)
    assert main(["explain", llama, "--to", "gpt_oss"]) == 2
    assert (
        "a configuration of gpt_oss has no keys for these positions: layer 0 has rope, and would"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--to", "smollm3", "--as", "vllm"], "--to smollm3 writes what transformers 5 reads; leave out --as"),
        (["--length", "0"], "argument --length: the value is 0, but must be at least 1"),
        (["--to", "hf5", "--llama-flags", "--rope-scale 2"], "--to writes one configuration; leave out the other"),
        (["--to", "hf5", "--json", "--length", "9"], "another program reads; leave out --json and --length"),
    ],
)
def test_what_makes_no_sense_is_refused(options: list[str], told: str, llama: str, capsys: Capture) -> None:
    assert main(["explain", llama, *options]) == 2
    assert told in capsys.readouterr().err


def test_two_that_differ_exit_with_one_and_a_wrong_use_with_two(llama: str, tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0}}), "utf8")
    assert (main(["explain", llama, str(other)]), main(["explain", llama, llama])) == (1, 0)
    assert main(["explain", llama, str(other), "--to", "hf5"]) == 2
    capsys.readouterr()
