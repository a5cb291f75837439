"""octavo pull."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_path_is_printed(octavo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.loaders.hub.pull", lambda name: Path("/cache") / name)
    assert octavo("pull", "smollm2").stdout == "/cache/smollm2\n"


def test_failure_is_a_message(octavo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(name: str) -> Path:
        raise OSError(f"{name}: no source has it")

    monkeypatch.setattr("octavo.loaders.hub.pull", pull)
    result = octavo("pull", "nothing")
    assert result.exit_code == 1
    assert result.stderr == "Error: nothing: no source has it\n"
