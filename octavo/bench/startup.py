"""Startup: from the start of a process to the first text of an answer, and the memory it took."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

PROMPT = "What is the capital of France?"


def measure_startup(
    model: str,
    arguments: Sequence[str] = (),
    repeat: int = 5,
    say: Callable[[str], None] = lambda _: None,
    command: Sequence[str] = (sys.executable, "-m", "octavo"),
) -> dict[str, Any]:
    """Runs `octavo run MODEL PROMPT` in fresh processes; medians over them, after one to warm the page cache.

    `arguments` are more options for it. Raises RuntimeError with its last words where it fails.
    """
    whole = [*command, "run", model, PROMPT, "--max-tokens", "8", *arguments]
    _start_once(whole)
    runs = []
    for number in range(repeat):
        say(f"start {number + 1} of {repeat}")
        runs.append(_start_once(whole))
    return {
        "first_text_s": statistics.median(run[0] for run in runs),
        "first_text_worst_s": max(run[0] for run in runs),
        "exit_s": statistics.median(run[1] for run in runs),
        "peak_resident_bytes": int(statistics.median(run[2] for run in runs)),
        "runs": repeat,
    }


def _start_once(command: Sequence[str]) -> tuple[float, float, int]:
    """(seconds to the first byte of output, seconds to the exit, peak resident bytes) of one process."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None and process.stderr is not None
        first = os.read(process.stdout.fileno(), 1)
        first_at = time.perf_counter() - started
        process.stdout.read()
        errors = process.stderr.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        ended_at = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or not first:
        raise RuntimeError(f"{' '.join(command)} failed with code {process.returncode}: {errors.strip()[-2000:]}")
    unit = 1 if sys.platform == "darwin" else 1024
    return first_at, ended_at, usage.ru_maxrss * unit
