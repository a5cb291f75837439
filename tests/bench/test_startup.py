"""The startup benchmark, with small processes in the command's place."""

from __future__ import annotations

import sys

import pytest

from octavo.bench.startup import measure_startup
from octavo.cli.bench import engine_arguments
from octavo.config import EngineOptions


def test_time_and_memory_of_fresh_processes() -> None:
    child = "import time; print('x', flush=True); time.sleep(0.05)"
    row = measure_startup("m", repeat=2, command=(sys.executable, "-c", child))
    assert 0 < row["first_text_s"] <= row["exit_s"] - 0.04
    assert row["first_text_s"] <= row["first_text_worst_s"]
    assert row["peak_resident_bytes"] > 2**20
    assert row["runs"] == 2


def test_failing_process_is_an_error_with_its_last_words() -> None:
    with pytest.raises(RuntimeError, match="code 3: no such model"):
        measure_startup(
            "m", command=(sys.executable, "-c", "import sys; sys.stderr.write('no such model'); sys.exit(3)")
        )


def test_silent_process_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="code 0"):
        measure_startup("m", command=(sys.executable, "-c", "pass"))


def test_options_reach_the_processes() -> None:
    options = EngineOptions(model="m", threads=2, enable_prefix_caching=False, kv_cache_memory="1MiB")
    arguments = engine_arguments(options)
    assert "--no-prefix-caching" in arguments
    assert arguments[arguments.index("--threads") + 1] == "2"
    assert arguments[arguments.index("--kv-cache-memory") + 1] == "1MiB"
    assert "--instruction-set" not in arguments
