"""Whole programs with threads, each of which ends as a program does.

Run as a program (``python -m tests.schemes.rotary.programs``) it imports PyTorch once, and every program is a fork of
it: importing takes most of the time of each. It prints one line of JSON: ``{name: [exit code, output, errors]}``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
OUTLIVING = """
import threading, time, torch
from clockhands.schemes import RoPE
from clockhands.schemes.rotary import loop_choice, rotation, rotation_loop
torch.set_num_threads(2)
loop_choice.LOOP_AFTER, rotation_loop.FEWEST_PER_THREAD = 0, 1
x, at, scheme = torch.ones(2, 6, 300, 64), torch.arange(300)[None].expand(2, -1), RoPE(64, layout="half")
scheme.rotate(x, x, at, at)
def work():
    time.sleep(0.5)
    print("rotated", tuple(scheme.rotate(x, x, at, at)[0].shape))
threading.Thread(target=work).start()
"""
FORKING = """
import os, signal, threading, torch, warnings
from clockhands.schemes import RoPE
from clockhands.schemes.rotary import loop_choice, rotation, rotation_loop
from llvmlite.binding.ffi import lib
warnings.simplefilter("ignore")
torch.set_num_threads(1)
loop_choice.LOOP_AFTER = 0
x, at, scheme = torch.ones(2, 6, 300, 64), torch.arange(300)[None].expand(2, -1), RoPE(64, layout="half")
held, forked, compile_loop = threading.Event(), threading.Event(), rotation_loop.compile_loop
def compile_slowly(dtype):
    with lib._lock:
        held.set()
        forked.wait()
        return compile_loop(dtype)
rotation_loop.compile_loop = compile_slowly
thread = threading.Thread(target=lambda: scheme.rotate(x, x, at, at))
thread.start()
held.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    rotation_loop.compile_loop = compile_loop
    os._exit(0 if scheme.rotate(x, x, at, at)[0].shape == x.shape else 1)
forked.set()
thread.join()
assert loop_choice._find_loop(torch.float32, rotation._rotate_halves)
print("child ended with", os.waitpid(child, 0)[1])
"""
COMPILING = """
import itertools, threading, torch
from clockhands.schemes import RoPE
from clockhands.schemes.rotary import loop_choice, loop_code
torch.set_num_threads(1)
loop_choice.LOOP_AFTER = 0
x, at, scheme = torch.ones(2, 6, 300, 64), torch.arange(300)[None].expand(2, -1), RoPE(64, layout="half")
compiled = threading.Event()
def work():
    for turn in itertools.count():
        loop_choice._find_loop.cache_clear()
        loop_code.compile_loop.cache_clear()
        scheme.rotate(x, x, at, at)
        if turn == 2:
            compiled.set()
threading.Thread(target=work, daemon=True).start()
compiled.wait()
print("ends")
"""
PROGRAMS = {"outliving": OUTLIVING, "forking": FORKING, "compiling": COMPILING}

Ended = tuple[int, str, str]


def run_programs() -> dict[str, Ended]:
    """Run them all; the exit code, the output and the errors of each."""
    if not hasattr(os, "fork"):
        return {name: _run("-c", code) for name, code in PROGRAMS.items() if code is not FORKING}
    code, printed, errors = _run("-m", "tests.schemes.rotary.programs")
    assert code == 0, errors
    return {name: tuple(ended) for name, ended in json.loads(printed).items()}


def _run(*words: str) -> Ended:
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


def fork() -> Ended | None:
    """Fork this process. Return None in the new one, which then runs its program, and how that ended in the old."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            return None
        status = os.waitpid(child, 0)[1]
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read().decode())
    return os.waitstatus_to_exitcode(status), said[0], said[1]


if __name__ == "__main__":
    import clockhands.schemes.rotary.rotation_loop  # noqa: F401  here, for all; PyTorch comes with it

    found = {}
    for name in PROGRAMS:
        ended = fork()
        if ended is None:
            break
        found[name] = ended
    else:
        print(json.dumps(found))
        sys.exit()
    # The new process: what follows is the program alone, so that it ends as any other.
    exec(PROGRAMS[name], {"__name__": "__main__"})
