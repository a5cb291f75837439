"""Blocks saved by sharing."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_model import make_small_model

from octavo.bench.lengths import ALPACA, SHAREGPT
from octavo.bench.memory_sharing import BlockMeter, measure_beam_sharing, measure_sampling, measure_system_prompt
from octavo.bench.null_model import null_engine
from octavo.engine.request import Request
from octavo.llm import LLM
from octavo.sampling_params import SamplingParams


def test_blocks_of_a_prompt_are_counted_once_for_all_samples() -> None:
    engine, meter = null_engine(64, 4, 64, enable_prefix_caching=False), BlockMeter()
    engine.add_request(Request("r", list(range(1, 9)), SamplingParams(n=3, max_tokens=3, ignore_eos=True)))
    for _ in range(2):
        engine.step()
        meter.read(sequence for request in engine.scheduler.running for sequence in request.active)
    # After the prefill, three tables of two blocks; then a block of its own for each: 6 + 9 named, 2 + 5 real.
    assert (meter.named, meter.real) == (15, 7)
    assert meter.saved_share == pytest.approx(8 / 15)


def test_more_samples_save_more_and_long_prompts_too() -> None:
    shares = {
        (each.name, n): measure_sampling(each, n, 24).saved_share for each in (SHAREGPT, ALPACA) for n in (1, 2, 6)
    }
    for trace in ("sharegpt", "alpaca"):
        assert shares[trace, 1] == 0
        assert 0 < shares[trace, 2] < shares[trace, 6]
    assert shares["sharegpt", 6] > shares["alpaca", 6]


def test_system_prompt_is_computed_and_kept_once(tmp_path: Path) -> None:
    path = str(make_small_model(tmp_path / "model"))

    def make_llm(caching: bool) -> LLM:
        settings = {"executor": "reference", "block_size": 4, "max_draft_tokens": 0}
        return LLM(path, kv_cache_memory="1MiB", enable_prefix_caching=caching, **settings)

    off, cold, warm = measure_system_prompt(make_llm, requests=6, system_prompt=40, question=5, output=3)
    assert [row["prefix_cache"] for row in (off, cold, warm)] == ["off", "cold", "warm"]
    assert off["computed_tokens"] == 6 * (40 + 5 + 2)
    assert warm["computed_tokens"] <= off["computed_tokens"] - 6 * 40
    assert off["peak_blocks"] == 6 * 12
    assert 10 < warm["peak_blocks"] <= 10 + 6 * 3
    assert warm["time_to_first_token_s"] > 0


def test_beams_share_blocks(tmp_path: Path) -> None:
    with LLM(str(make_small_model(tmp_path / "model")), executor="reference", block_size=4) as llm:
        rows = measure_beam_sharing(llm, requests=1, scale=1 / 8)
    assert [row["width"] for row in rows] == [2, 4, 6, 2, 4, 6]
    assert all(0 <= row["saved_share"] < 1 for row in rows)
    assert max(row["saved_share"] for row in rows) > 0.1
