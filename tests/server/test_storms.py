"""The storms of benchmarks/server_storms.py, small and short, against a real process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_model import make_small_model

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "server_storms.py"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("burst", "--count=100", "--limit=16"), "429 with Retry-After"),
        (("cancels", "--count=200"), "closed inside its answer"),
        (("slow", "--count=10", "--seconds=2"), "others' answers meanwhile"),
        (("mixed", "--seconds=4"), "resident memory over time"),
        (("kill", "--count=1"), "killed under load, started again on the same port"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_storm_leaves_nothing(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    storm, *options = arguments
    model = make_small_model(tmp_path / "small")
    command = [sys.executable, SCRIPT, storm, model, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    assert told in rows
    assert rows["next answer"].strip().startswith("right")
    assert rows["faults"].strip() == "0"
