"""octavo quantize: what is printed, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from random_directory import make_random_directory

from octavo.quantize import check


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(make_random_directory(tmp_path / "model", "llama"))


def test_sizes_and_verdict_are_printed(octavo: Any, model: str, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    result = octavo("quantize", model, "--format", "w4", str(out))
    assert result.exit_code == 0, result.output
    wrote, size, checked, verdict = result.stdout.splitlines()
    assert wrote.startswith(f"wrote {out} in ")
    assert "(16.00 bits a weight) -> " in size and "tensors: 12 Q4_1, 5 F32, 3 Q8_0" in size
    assert checked.startswith("check: KL from the original (native float32) over 512 tokens: mean 0.0")
    assert verdict == "verdict: the mean is within the bound of 0.25 nats"


def test_a_model_above_the_bound_exits_with_1_and_stays(
    octavo: Any, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(check.BOUNDS, "w4", 1e-9)
    out = tmp_path / "out.gguf"
    result = octavo("quantize", model, "--format", "w4", str(out), "--json", "--threads", "2")
    report = json.loads(result.stdout)
    assert result.exit_code == 1 and out.stat().st_size == report["new_bytes"]
    assert report["format"] == "w4" and report["path"] == str(out)
    assert report["check"]["passed"] is False and report["check"]["mean_kl"] > 1e-9


def test_the_check_can_be_left_out(octavo: Any, model: str, tmp_path: Path) -> None:
    result = octavo("quantize", model, "--format", "w8", str(tmp_path / "out.gguf"), "--no-check")
    assert result.stdout.splitlines()[-1] == "not checked"


def test_an_existing_file_is_kept(octavo: Any, model: str, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_bytes(b"mine")
    result = octavo("quantize", model, "--format", "w8", str(out))
    assert result.exit_code == 1
    assert result.stderr == f"Error: {out}: exists; --force replaces it\n"
    assert out.read_bytes() == b"mine"


def test_other_formats_are_usage_errors(octavo: Any, model: str, tmp_path: Path) -> None:
    assert octavo("quantize", model, "--format", "w3", str(tmp_path / "out.gguf")).exit_code == 2
    assert octavo("quantize", model, str(tmp_path / "out.gguf")).exit_code == 2
