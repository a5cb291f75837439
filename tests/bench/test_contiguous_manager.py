"""Contiguous reservation under the real engine: the same tokens as paging, in ranges that are contiguous."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from small_model import make_small_model

from octavo.bench.contiguous import POLICIES, Policy
from octavo.bench.contiguous_manager import contiguous_manager
from octavo.bench.lengths import Trace
from octavo.bench.memory_engine import _engine, measure_engine, run_trace
from octavo.bench.null_model import null_engine
from octavo.config import EngineOptions
from octavo.engine.engine import Engine
from octavo.engine.kv_cache_manager import KVCacheManager
from octavo.engine.request import Request
from octavo.loading import LoadedModel, load
from octavo.sampling_params import SamplingParams

LONGEST = 64


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    path = make_small_model(tmp_path_factory.mktemp("contiguous") / "model")
    model = load(EngineOptions(model=str(path), executor="reference", kv_cache_memory="1MiB", max_model_len=LONGEST))
    yield model
    model.close()


def answers(engine: Engine, trace: Trace, each_step: object = None) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {}
    for number, (prompt, output) in enumerate(zip(trace.prompts, trace.outputs, strict=True)):
        ids = np.random.default_rng(number).integers(3, 90, int(prompt)).tolist()
        params = SamplingParams(temperature=0.0, max_tokens=int(output), ignore_eos=True)
        engine.add_request(Request(str(number), ids, params))
    while engine.has_unfinished:
        for update in engine.step():
            tokens.setdefault(update.request_id, []).append(update.token_id)
        if callable(each_step):
            each_step()
    return tokens


def small_trace() -> Trace:
    rng = np.random.default_rng(0)
    return Trace(rng.integers(1, 20, 12), rng.integers(1, 20, 12), np.zeros(12))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_tokens_of_paging_from_contiguous_ranges(loaded: LoadedModel, policy: Policy) -> None:
    trace = small_trace()
    paged = answers(_engine(loaded, 40, 4, LONGEST, KVCacheManager), trace)
    engine = _engine(loaded, 40, 4, LONGEST, contiguous_manager(policy, LONGEST))
    batches = []

    def check() -> None:
        tables = [seq.tables[0].blocks for request in engine.scheduler.running for seq in request.active]
        assert all(blocks == list(range(blocks[0], blocks[0] + len(blocks))) for blocks in tables)
        held = [block for blocks in tables for block in blocks]
        assert len(held) == len(set(held))
        batches.append(len(tables))

    assert answers(engine, trace, check) == paged
    assert engine.stats().preemptions == 0
    assert max(batches) == 2 if policy == "max" else max(batches) > 2


def test_every_range_comes_back_after_aborts(loaded: LoadedModel) -> None:
    engine = _engine(loaded, 16, 4, LONGEST, contiguous_manager("max", LONGEST))
    for number in range(3):
        engine.add_request(Request(str(number), [5, 6], SamplingParams(max_tokens=30, ignore_eos=True)))
    engine.step()
    assert engine.abort("0") and engine.abort("2")
    engine.step()
    assert [request.request_id for request in engine.scheduler.running] == ["1"]
    assert engine.abort("1")
    assert answers(engine, small_trace()).keys() == {str(number) for number in range(12)}


def test_what_cannot_be_contiguous_is_refused(loaded: LoadedModel) -> None:
    with pytest.raises(ValueError, match="longer than the pool"):
        _engine(loaded, 15, 4, LONGEST, contiguous_manager("oracle", LONGEST))


def test_a_run_is_metered(loaded: LoadedModel) -> None:
    engine = _engine(loaded, 16, 4, LONGEST, contiguous_manager("max", LONGEST))
    trace = small_trace()
    row = run_trace(engine, trace, "max", loaded.vocab_size)
    assert row.mean_batch == 1.0
    assert row.output_tokens_per_s == pytest.approx(trace.outputs.sum() / row.elapsed_s)
    assert 0 < row.tokens_share < 0.5


def test_all_policies_side_by_side(loaded: LoadedModel) -> None:
    said: list[str] = []
    rows = measure_engine(loaded, requests=3, scale=1 / 32, block_size=4, rate=1e6, say=said.append)
    names = ["paged", "contiguous-max", "contiguous-pow2", "contiguous-oracle"]
    assert [row["policy"] for row in rows] == said == names
    assert all(row["output_tokens_per_s"] > 0 for row in rows)


def test_a_prefix_cache_and_windows_are_refused() -> None:
    null = null_engine(16, 4, LONGEST)
    manager_type = contiguous_manager("max", LONGEST)
    with pytest.raises(ValueError, match="enable_prefix_caching=True"):
        manager_type(null.pool, null.manager.prefix_cache, 4, (None,), 8, 8)
    with pytest.raises(ValueError, match="windows="):
        manager_type(null.pool, None, 4, (None, 32), 8, 8)
