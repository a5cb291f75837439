"""Metrics, time line and maps of an AsyncLLM that works."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from fake_model import make_fake_model
from prometheus_client.parser import text_string_to_metric_families

from octavo import AsyncLLM, SamplingParams
from octavo.observe.block_map import BlockMap, capture
from octavo.observe.timeline import Timeline
from octavo.observe.watch import MAP_INTERVAL, EngineWatch
from octavo.request_driver import EngineError

WORK = SamplingParams(max_tokens=30, ignore_eos=True, temperature=1.0, seed=3)


def read(watch: EngineWatch) -> dict[str, float]:
    """All samples, by name and label values."""
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(watch.metrics_text())
        for sample in family.samples
    }


async def run(llm: AsyncLLM, prompt: str = "the sea is wide", params: SamplingParams = WORK) -> None:
    async for _ in llm.generate(prompt, params):
        pass


def test_metrics_count_requests_tokens_and_times(llm: AsyncLLM) -> None:
    watch = EngineWatch(llm, "1.2.3")

    async def main() -> None:
        await run(llm)
        await asyncio.gather(run(llm), run(llm, params=SamplingParams(max_tokens=4, ignore_eos=True, n=2)))

    asyncio.run(main())
    values, stats = read(watch), llm.stats()
    assert values[f"octavo_info 1.2.3 {llm.loaded.options.model} {llm.loaded.kv_cache_dtype}"] == 1
    assert values["octavo_requests_added_total"] == values["octavo_requests_ended_total length"] == 3
    assert values["octavo_requests_ended_total abort"] == 0
    assert values["octavo_prompt_tokens_total"] == 3 * 15
    assert values["octavo_generated_tokens_total"] == 30 + 30 + 2 * 4
    assert values["octavo_prefix_cache_queried_tokens_total"] == 3 * 15
    assert values["octavo_prefix_cache_hit_tokens_total"] == stats.prefix_hit_tokens > 0
    assert values["octavo_time_to_first_token_seconds_count"] == 3
    assert values["octavo_time_per_output_token_seconds_count"] == 3
    assert 0 < values["octavo_time_to_first_token_seconds_sum"] < values["octavo_request_seconds_sum"]
    assert values["octavo_step_seconds_count"] == values["octavo_steps_total"] == stats.steps
    assert values["octavo_step_tokens_sum"] == values["octavo_computed_tokens_total"] == stats.computed_tokens
    blocks = [values[f"octavo_kv_blocks {state}"] for state in ("free", "cached", "referenced")]
    assert blocks == [stats.free_blocks, stats.cached_blocks, 0]
    assert sum(blocks) == stats.total_blocks


def test_aborts_are_counted(llm: AsyncLLM) -> None:
    watch = EngineWatch(llm, "0")
    engine: Any = llm.loaded.engine
    step = engine.step
    engine.step = lambda: (time.sleep(0.01), step())[1]  # else it may have finished before

    async def main() -> None:
        stream: Any = llm.generate("the sea", WORK)
        await anext(stream)
        await stream.aclose()
        await watch.block_map()  # a look comes after the abort that was left before it

    asyncio.run(main())
    assert read(watch)["octavo_requests_ended_total abort"] == 1
    assert read(watch)["octavo_requests running"] == 0


def test_errors_are_counted() -> None:
    model = make_fake_model()
    engine: Any = model.engine

    def fail() -> None:
        raise RuntimeError("broken step")

    async def main() -> dict[str, float]:
        async with AsyncLLM.from_loaded(model) as llm:
            watch = EngineWatch(llm, "0")
            watch.timeline.take = lambda engine: None  # type: ignore[method-assign]  # a fake has no scheduler
            engine.before_step = fail
            with pytest.raises(EngineError):
                await run(llm)
            return read(watch)

    assert asyncio.run(main())["octavo_requests_ended_total error"] == 1


def test_maps_are_shared_and_bounded_in_number(llm: AsyncLLM) -> None:
    watch = EngineWatch(llm, "0")
    looks: list[BlockMap] = []

    async def look() -> None:
        while len(looks) < 2000:
            looks.append(await watch.block_map())
            await asyncio.sleep(0)

    async def main() -> float:
        started = time.monotonic()
        await asyncio.gather(run(llm), *(look() for _ in range(4)))
        return time.monotonic() - started

    seconds = asyncio.run(main())
    assert len(set(map(id, looks))) <= seconds / MAP_INTERVAL + 1


def test_nothing_is_captured_unasked(llm: AsyncLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = EngineWatch(llm, "0")
    monkeypatch.setattr(watch, "_capture", None)
    asyncio.run(run(llm))
    assert read(watch)["octavo_requests_ended_total length"] == 1


def test_timeline_has_samples_of_work_and_ends_at_rest(llm: AsyncLLM) -> None:
    watch = EngineWatch(llm, "0")
    watch.timeline.interval = 0.0
    every_step = replace(WORK, stop=("\0never\0",))  # text decides whether a step is the last one
    asyncio.run(run(llm, params=every_step))
    deadline = time.monotonic() + 5
    while watch.timeline.samples()[-1].running and time.monotonic() < deadline:
        time.sleep(0.005)
    samples = watch.timeline.samples()
    busy = [sample for sample in samples if sample.running]
    assert len(busy) >= 29
    assert all(sample.used_slots <= sample.reserved_power_of_two <= sample.reserved_max_model_len for sample in busy)
    assert samples[-1].running == samples[-1].referenced_blocks == samples[-1].reserved_max_model_len == 0
    assert [sample.time for sample in samples] == sorted(sample.time for sample in samples)


def test_timeline_is_bounded_and_spaced(llm: AsyncLLM) -> None:
    now = 0.0
    timeline = Timeline(interval=0.5, length=10, clock=lambda: now)
    for step in range(100):
        now = step * 0.1
        timeline.step(llm.loaded.engine)
    assert len(timeline.samples()) == 10


def test_failing_observer_is_dropped_and_the_engine_goes_on(llm: AsyncLLM) -> None:
    watch = EngineWatch(llm, "0")

    def fail(*arguments: object) -> None:
        raise RuntimeError("bad observer")

    watch.metrics.count_step = fail  # type: ignore[method-assign]
    asyncio.run(run(llm))
    asyncio.run(run(llm))
    assert llm.stats().generated_tokens == 60


def test_look_raises_to_its_caller_only(llm: AsyncLLM) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await llm.between_steps(lambda engine: 1 / 0)
        await run(llm)

    asyncio.run(main())
    assert llm.stats().generated_tokens == 30


def test_look_at_a_closed_engine_raises(llm: AsyncLLM) -> None:
    llm.close()
    with pytest.raises(EngineError, match="closed"):
        asyncio.run(llm.between_steps(capture))
