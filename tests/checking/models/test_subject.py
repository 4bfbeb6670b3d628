"""What is known of a model before it is judged."""

from __future__ import annotations

import pytest

from clockhands.checking.models.builds import find
from clockhands.checking.models.make_subjects import from_build


@pytest.mark.parametrize("name", ["whisper:causal", "mpt:causal", "led:seq2seq", "encoder-decoder:seq2seq"])
def test_the_claimed_length_is_found_under_each_of_its_names(name: str) -> None:
    """Without it a model would be asked for texts that it never claimed to read. All claim 128 tokens once shrunk."""
    assert [subject.facts.limit for subject in from_build(find(name)[0])] == [128] * (1 + name.endswith("seq2seq"))


def test_tables_of_what_reads_images_are_not_those_of_the_text() -> None:
    (subject,) = from_build(find("qwen3_vl")[0])
    assert (subject.facts.scheme, subject.facts.absolute, subject.facts.limit) == ("RoPE", False, 128)
