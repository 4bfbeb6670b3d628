"""Kills ``extend`` at files that it writes, goes on, and compares what stands at the end with one never killed.

    python -m tests.extension.killing FOLDER < JOB > FINDINGS

The libraries are imported once; every try runs in a fork of this process (``tests/training/killing.py``). A job is
``{"steps": of training, "kills": [[share of the changes, "before" | "middle"], ...] or "all"}``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from clockhands.extension import ExtensionPlan, Tuning, extend, tuning
from clockhands.extension.write import refuse_taken
from clockhands.files import lock_folder
from clockhands.models import open_language_model
from clockhands.report import write
from tests.runs.tiny import save_model
from tests.training.killing import Killer, differences, forked, state, strike

TEXT = "The clock has many hands, and each turns at its own speed. " * 60
TRAINED, LONGEST = 64, 128


def act(source: Path, folder: Path, steps: int) -> None:
    """Do what the command does; a folder that is finished is left as it is."""
    if (folder / "config.json").exists():
        return
    torch.set_num_threads(1)
    tuning.SAVE_SECONDS = 0.0
    plan = ExtensionPlan(
        [TEXT], "text", TRAINED, LONGEST, texts=8, items=10, evaluations=3, tuning=Tuning(steps, batch=2), command="c"
    )
    with lock_folder(folder):
        refuse_taken(folder, source)
        extend(
            open_language_model(source), plan, folder, write_page=lambda findings: write(findings, folder / "report")
        )


def see(folder: Path) -> dict[str, Any]:
    """Everything in the folder, with the folder's own name left out of what is written."""
    return {
        name: content.replace(os.fsencode(folder), b"OUT") if isinstance(content, bytes) else content
        for name, content in state(folder).items()
    }


def count(source: Path, folder: Path, steps: int) -> list[bool]:
    """Return, of every change that a whole try makes, whether it has a middle."""
    note = folder.with_suffix(".count")

    def counted() -> None:
        killer = Killer(folder, 0, "before")
        killer.start()
        act(source, folder, steps)
        killer.inside = True
        note.write_text(json.dumps(killer.halves))

    assert (word := forked(counted)) == "done", word
    found: list[bool] = json.loads(note.read_text())
    return found


def main() -> None:
    """Read a job and print how many kills struck, and what differs at the end."""
    place, job = Path(sys.argv[1]), json.load(sys.stdin)
    source, steps = save_model(place / "model", "llama"), job["steps"]
    whole, folder = place / "whole" / "out", place / "killed" / "out"  # a page tells the last part of its folder's name
    for parent in (whole.parent, folder.parent):
        parent.mkdir()
    halves = count(source, whole, steps)
    wanted = see(whole)
    every = [[max(1, round(share * len(halves))), how] for share, how in job["kills"]]
    struck, faults = 0, []
    for event, how in every:
        struck += strike((event, how), folder, lambda: act(source, folder, steps)) == "killed"
        word = forked(lambda: act(source, folder, steps))
        found = [] if word != "done" else differences(see(folder), wanted)
        faults += [f"killed {how} change {event}: {fault}" for fault in ([word] if word != "done" else found)]
        shutil.rmtree(folder)
    print(json.dumps({"changes": len(halves), "struck": struck, "faults": faults}))


if __name__ == "__main__":
    main()
