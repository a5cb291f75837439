"""Block sizes: what is measured, what is recommended, and what "auto" makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_model import make_small_model
from support.machine import INSTRUCTION_SETS

from octavo.bench.tune import advise_short, measure_block_sizes, prefix_reuse, recommend, wasted_share
from octavo.config import EngineOptions
from octavo.loading import load
from octavo.tuning import DEFAULT_BLOCK_SIZE, Tuning, store_tuning, stored_tuning


def row(block_size: int, seconds: float) -> dict[str, Any]:
    shares = {"sharegpt_waste_share": 0.1, "alpaca_waste_share": 0.2 * block_size / 64}
    reuse = {"lost_tokens_per_hit": 3.0, "lost_tokens_while_running": 4.0, "copied_tokens_per_hit": 5.0}
    return {"block_size": block_size, "decode_s": seconds, "prefill_s": 2 * seconds, **shares, **reuse}


def test_the_smallest_of_the_fast_ones_is_recommended_with_its_reason() -> None:
    tuning = recommend([row(8, 3.0), row(32, 1.03), row(64, 1.0), row(128, 1.02)])
    assert tuning.block_size == 32
    assert "within 3.0% of the fastest (64)" in tuning.reason
    assert "8 takes 191% longer" in tuning.reason
    assert "10.0%" in tuning.reason and "copies 5.0 tokens and loses 3.0, or 4.0 of a running" in tuning.reason
    assert recommend([row(8, 1.0), row(16, 2.0)]).reason.startswith("attention is fastest; tails")


def test_short_requests_want_the_largest_size_that_wastes_little() -> None:
    rows = [row(8, 3.0), row(16, 2.0), row(64, 1.0)]
    assert advise_short(rows, 64) == (
        "where short requests fill the memory, 8: on lengths like Alpaca's tails waste 2.5% instead of 20.0%; "
        "attention takes 200% longer"
    )
    assert advise_short(rows, 8) == "it suits short requests too: 2.5% of memory wasted"


def test_waste_grows_with_blocks() -> None:
    assert wasted_share(4, np.array([1, 4, 5])) == pytest.approx(6 / 16)


def test_a_hit_loses_nothing_of_an_ended_request_and_copies_what_is_no_whole_block() -> None:
    small, large = (prefix_reuse(size, 32) for size in (8, 256))
    assert small["lost_tokens_per_hit"] == large["lost_tokens_per_hit"] == 0
    assert 2 < small["copied_tokens_per_hit"] < 5 and 80 < large["copied_tokens_per_hit"] < 180
    assert 0 <= small["lost_tokens_while_running"] < large["lost_tokens_while_running"] < 128


def test_a_result_is_kept_by_model_and_threads(tmp_path: Path) -> None:
    tuning = Tuning(32, "measured")
    path = store_tuning("model", 2, tuning, tmp_path)
    assert stored_tuning("model", 2, tmp_path) == tuning
    for fingerprint, threads in (("other", 2), ("model", 1)):
        assert stored_tuning(fingerprint, threads, tmp_path).block_size == DEFAULT_BLOCK_SIZE
    assert "octavo tune" in stored_tuning("other", 2, tmp_path).reason
    for text in ("{}", "no JSON", '{"block_size": 7, "reason": "r"}', '{"block_size": 512, "reason": "r"}'):
        path.write_text(text)
        assert stored_tuning("model", 2, tmp_path).block_size == DEFAULT_BLOCK_SIZE


def test_auto_takes_the_stored_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path / "home"))
    options = EngineOptions(
        model=str(make_small_model(tmp_path / "model")), executor="reference", block_size="auto", threads=1
    )
    said: list[str] = []
    loaded = load(options, said.append)
    assert (loaded.engine.config.block_size, loaded.options.block_size) == (DEFAULT_BLOCK_SIZE, DEFAULT_BLOCK_SIZE)
    assert "has not run" in loaded.block_size_reason
    assert f"blocks of 64 tokens: {loaded.block_size_reason}" in said
    store_tuning(loaded.fingerprint, 1, Tuning(16, "measured here"))
    loaded.close()
    again = load(options)
    assert (again.engine.config.block_size, again.block_size_reason) == (16, "measured here")
    again.close()


@pytest.mark.skipif(not INSTRUCTION_SETS, reason="the native library does not run here")
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_attention_is_timed_by_block_size(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.bench import tune

    monkeypatch.setattr(tune, "CASES", (tune.Case("decode_s", 2, 40, 1), tune.Case("prefill_s", 1, 40, 40)))
    loaded = load(EngineOptions(model=str(make_small_model(tmp_path / "model", name)), threads=1, max_model_len=64))
    rows = measure_block_sizes(loaded, (8, 32), repeats=1)
    loaded.close()
    assert [each["block_size"] for each in rows] == [8, 32]
    assert all(each["decode_s"] > 0 and each["prefill_s"] > 0 for each in rows)


def test_the_reference_executor_has_nothing_to_tune(tmp_path: Path) -> None:
    loaded = load(EngineOptions(model=str(make_small_model(tmp_path / "model")), executor="reference"))
    with pytest.raises(ValueError, match="native executor only"):
        measure_block_sizes(loaded)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, octavo: Any) -> None:
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path))
    monkeypatch.setattr("octavo.bench.tune.measure_block_sizes", lambda loaded, **_: [row(8, 2.0), row(64, 1.0)])
    result = octavo("tune", "smollm2")
    assert result.exit_code == 0, result.output
    assert "block size 64: attention is fastest; 8 takes 100% longer" in result.stdout
    assert len(list((tmp_path / "tuned").iterdir())) == 1
    report = json.loads(octavo("tune", "smollm2", "--json", "--no-store").stdout)
    assert report["recommendation"]["block_size"] == 64
    assert [each["block_size"] for each in report["rows"]] == [8, 64]
