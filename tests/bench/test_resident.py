"""Memory beyond weights and KV, of a small process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_model import make_small_model

from octavo.bench.resident import measure_resident
from octavo.bench.resident_server import measure_served
from octavo.config import EngineOptions


def test_what_is_resident_adds_up(tmp_path: Path) -> None:
    options = EngineOptions(model=str(make_small_model(tmp_path / "m")), threads=1, kv_cache_memory="1MiB")
    measured = measure_resident(options)
    assert measured["resident_bytes"] == sum(measured[f"{part}_bytes"] for part in ("weight", "kv", "beyond"))
    assert 0 < measured["kv_bytes"] <= 2**20 and 0 < measured["weight_bytes"] < 2**20
    assert 5 * 2**20 < measured["file_pages_bytes"] < measured["beyond_bytes"]


def test_a_server_under_load_holds_more(tmp_path: Path) -> None:
    model = make_small_model(tmp_path / "m")
    options = ("--threads", "1", "--kv-cache-memory", "8MiB")
    inside = measure_resident(EngineOptions(model=str(model), threads=1, kv_cache_memory="8MiB"))
    served = measure_served(str(model), options, inside["weight_bytes"], inside["block_bytes"])
    assert inside["beyond_bytes"] < served["served_beyond_bytes"] < served["served_resident_bytes"] < 2**28


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="nowhere"):
        measure_resident(EngineOptions(model=str(tmp_path / "nowhere.gguf")))
    with pytest.raises(RuntimeError, match="nowhere"):
        measure_served(str(tmp_path / "nowhere.gguf"), (), 0, 1)


def test_the_command_adds_it_to_startup(octavo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.bench.startup.measure_startup", lambda *_: {"first_text_s": 0.5})
    monkeypatch.setattr("octavo.bench.resident.measure_resident", lambda options: {"weight_bytes": 7, "block_bytes": 2})
    monkeypatch.setattr(
        "octavo.bench.resident_server.measure_served",
        lambda model, arguments, weights, block: {"served_beyond_bytes": 10**6 * weights * block},
    )
    result = octavo("bench", "startup", "smollm2")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1].split() == ["0.5000", "0.0", "MB", "0.0", "MB", "14.0", "MB"]
