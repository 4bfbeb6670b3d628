"""Runs commands in forked children of one process that has imported everything: thousands take minutes.

Run as a program (``python -m tests.cli.forks FOLDER``) it makes the runs and files that commands need in FOLDER, then
answers one JSON line with another: ``{"arguments": [...], "files": {...}, "copies": {...}}`` in, what came of it out.
A child has 2 GB of memory more than its parent, and seconds of the processor, not of the clock.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

IMPORTED_FIRST = (
    "clockhands.training", "clockhands.training.session", "clockhands.generation", "clockhands.inspection",
    "clockhands.checking", "clockhands.comparison", "clockhands.comparison.execution", "transformers.trainer",
)  # fmt: skip
"""Else the first child would import them, and this process once more. The rest is learned from the children."""
MEMORY, SECONDS, PATIENCE = 2 * 2**30, 40, 300
TINY = (
    "model.preset=tiny model.d_model=16 model.d_ff=16 model.num_heads=2 model.encoder_layers=1 model.decoder_layers=1"
)


class Forks:
    """The other end: one command at a time."""

    def __init__(self, folder: Path) -> None:
        quiet = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.forks", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2], env=quiet,
        )  # fmt: skip
        assert self.process.stdout is not None and self.process.stdin is not None
        ready = self.process.stdout.readline()
        assert ready == "ready\n", f"the process that forks did not start: {ready!r}"

    def run(self, arguments: list[str], files: dict[str, bytes], copies: dict[str, str]) -> dict[str, Any]:
        """Run one command in an empty folder with these files and copies of folders; return what came of it."""
        assert self.process.stdout is not None and self.process.stdin is not None
        packed = {name: base64.b64encode(content).decode() for name, content in files.items()}
        self.process.stdin.write(json.dumps({"arguments": arguments, "files": packed, "copies": copies}) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def serve(folder: Path) -> None:
    """Prepare, then answer until the input ends."""
    import torch

    torch.set_num_threads(1)
    for name in IMPORTED_FIRST:
        importlib.import_module(name)
    _prepare(folder)
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_answer(folder, asked)), flush=True)


def _prepare(folder: Path) -> None:
    """Texts and two trained runs; each made in a child, so that this process never computes and may be forked."""
    lines = {"de": "ein Hund sieht {}\n", "en": "a dog sees {}\n"}
    for side, line in lines.items():
        (folder / f"a.{side}").write_text("".join(line.format(number) for number in range(60)))
    rows = "".join(f"Hund {number}\tdog {number}\n" for number in range(60))
    (folder / "a.tsv").write_text(f"source\ttarget\n{rows}")
    (folder / "a.txt").write_text("the quick brown fox jumps over the lazy dog. " * 160)
    settings = f"--set {TINY} training.max_steps=1 training.log_steps=1 training.save_steps=1"
    makers = (
        f"train --source a.de --target a.en {settings} tokenizer.kind=word position.scheme=rope --quiet --out run",
        f"train --text a.txt {settings} tokenizer.kind=character data.unit=file data.holdout=0.3 batches.window=32 "
        "position.scheme=rope --quiet --out writer",
        "compare b.toml --out sweep --quiet --format csv", "check run --only shift --json",
    )  # fmt: skip
    users = (
        "train --resume run --dry-run", "translate run Hund --beam 2", "evaluate run", "evaluate writer",
        "generate writer --tokens 2", "compare a.toml --dry-run", "schemes rope",
        "inspect run --texts 8 --length 8 --no-control --json", "check run --only shift",
    )  # fmt: skip
    (folder / "a.toml").write_text(
        'recipe = {data = {corpus = "table", train = "a.tsv"}, model = {preset = "tiny"}, training = {max_steps = 1}}\n'
        'vary = {"position.scheme" = ["rope", "none"]}\n'
    )
    (folder / "b.toml").write_text(
        'recipe = {data = {corpus = "numbers", largest = 999, train = 200, validation = 20, test = 20, longer = 0}, '
        'training = {max_steps = 1}, model = {preset = "tiny", '
        "d_model = 16, d_ff = 16, num_heads = 2, encoder_layers = 1, decoder_layers = 1}}\n"
        'vary = {"position.scheme" = ["rope", "none"]}\nseeds = 2\n'
    )
    for command in (*makers, *users):
        done = _child(folder, command.split(), learn=True)
        assert done["code"] == 0, (command, done)
        if command.endswith("shift --json"):
            (folder / "base.json").write_text(done["out"])
        for name in done["imported"]:
            try:
                __import__(name)
            except Exception:
                continue


def _answer(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for source in folder.iterdir():
            if source.is_file():
                shutil.copy(source, place)
        for copy, source in asked["copies"].items():
            shutil.copytree(folder / source, place / copy)
        for path, content in asked["files"].items():
            (place / path).write_bytes(base64.b64decode(content))
        os.mkfifo(place / "pipe")
        before = {path.name for path in place.iterdir()}
        done = _child(place, asked["arguments"])
        return {**done, "made": sorted({path.name for path in place.iterdir()} - before)}


def _child(place: Path, arguments: list[str], *, learn: bool = False) -> dict[str, Any]:
    """Fork, run the command, and wait: its exit code (99: an exception escaped), what it printed, what it used."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as note:
        child = os.fork()
        if child == 0:
            _become(place, arguments, out.fileno(), err.fileno(), note.fileno(), learn=learn)
        status, used, alive = 0, None, True
        until = time.monotonic() + PATIENCE
        while alive and time.monotonic() < until:
            found, status, used = os.wait4(child, os.WNOHANG)
            alive = found == 0
            time.sleep(0.002)
        if alive:
            os.kill(child, signal.SIGKILL)
            _, status, used = os.wait4(child, 0)
        printed = []
        for stream in (out, err, note):
            stream.seek(0)
            printed.append(stream.read(20_000_000).decode("utf8", "replace"))
    assert used is not None
    return {
        "code": os.waitstatus_to_exitcode(status), "out": printed[0][:20_000], "err": printed[1][-20_000:],
        "imported": json.loads(printed[2] or "[]"), "seconds": used.ru_utime + used.ru_stime,
    }  # fmt: skip


def _become(place: Path, arguments: list[str], out: int, err: int, note: int, *, learn: bool) -> None:
    code = 99
    try:
        os.chdir(place)
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        if not learn:
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 1, SECONDS + 1))
        # What the operating system hands over that is no UTF-8 arrives as halves of surrogates, as here.
        sys.stdout, sys.stderr = os.fdopen(1, "w", encoding="utf8"), os.fdopen(2, "w", errors="backslashreplace")
        sys.stdin = os.fdopen(0, encoding="utf8")
        before = set(sys.modules)
        from clockhands.cli import main

        code = main(arguments)
        if learn:
            os.write(note, json.dumps(sorted(set(sys.modules) - before)).encode())
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = 99
        os._exit(code)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
