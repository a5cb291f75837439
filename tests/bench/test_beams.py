"""Beam search is timed beside sampling of as many sequences."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_model import make_small_model

from octavo import LLM
from octavo.bench.beams import measure_beams


def test_rows_are_side_by_side(tmp_path: Path) -> None:
    model = str(make_small_model(tmp_path / "model"))
    rounds: list[str] = []
    settings = {"block_size": 8, "threads": 1, "enable_prefix_caching": False, "max_draft_tokens": 0}
    with LLM(model, kv_cache_memory="256KiB", **settings) as llm:
        rows = measure_beams(llm, width=3, input_len=12, output_len=10, repeat=3, say=rounds.append)
        assert llm.stats().referenced_blocks == 0
    assert rounds == ["warm-up", "round 1 of 3", "round 2 of 3", "round 3 of 3"]
    assert [row["kind"] for row in rows] == ["sampling", "beams", "beams, repetition penalty"]
    assert rows[0]["against_sampling_ratio"] == 1
    for row in rows:
        assert row["width"] == 3 and row["computed_tokens"] == 12 + 3 * 9, "one prefill, and one token a sequence"
        assert row["tokens_per_s"] == pytest.approx(30 / row["elapsed_s"])
        assert 4 <= row["peak_blocks"] <= 1 + 3 * 2
