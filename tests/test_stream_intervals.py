"""Streams whose outputs come together for an interval: nothing is lost, and nothing decided late."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from support.streams import LONG, collect, joined, until

from octavo import AsyncLLM, SamplingParams
from octavo.loading import LoadedModel


def test_outputs_within_an_interval_come_together_and_the_end_at_once(fake_model: LoadedModel) -> None:
    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            started = time.monotonic()
            outputs = await collect(llm, "hello " * 20, interval=60.0)
            assert time.monotonic() - started < 30.0
            assert joined(outputs) == "HELLO " * 20
            assert len(outputs) <= 2 and outputs[-1].finished

    asyncio.run(main())


def test_a_reader_that_waits_for_an_interval_can_leave(fake_model: LoadedModel) -> None:
    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            stream = llm.generate("x" * 1000, LONG, interval=60.0)
            await anext(stream)
            rest = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.01)
            rest.cancel()
            await asyncio.gather(rest, return_exceptions=True)
            await until(lambda: llm.stats().running == 0)

    asyncio.run(main())


def test_abort_gives_what_was_made_within_the_interval(fake_model: LoadedModel) -> None:
    engine: Any = fake_model.engine
    engine.before_step = lambda: time.sleep(0.001)

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            stream = llm.generate("x" * 1000, LONG, "a", interval=60.0)
            first = await anext(stream)
            before = engine.steps
            await until(lambda: engine.steps >= before + 5)
            await llm.abort("a")
            last = await anext(stream)
            assert last.outputs[0].finish_reason == "abort"
            assert len(last.outputs[0].token_ids) >= len(first.outputs[0].token_ids) + 5
            assert last.outputs[0].text == "X" * len(last.outputs[0].token_ids)

    asyncio.run(main())


def test_between_its_outputs_a_stream_costs_the_engine_nothing(fake_model: LoadedModel) -> None:
    engine: Any = fake_model.engine
    engine.before_step = lambda: time.sleep(0.001)
    step, told = engine.step, []

    def counted_step() -> Any:
        updates = step()
        told.extend(updates)
        return updates

    engine.step = counted_step
    engine.untold = None  # nobody asks

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            outputs = await collect(llm, "x" * 300, interval=60.0)
            assert [len(output.outputs[0].token_ids) for output in outputs] == [1, 301]
            assert len(told) == 2
            assert joined(outputs) == outputs[-1].outputs[0].text == "X" * 300

    asyncio.run(main())


def test_outputs_of_several_sequences_have_all_that_each_has_made(fake_model: LoadedModel) -> None:
    engine: Any = fake_model.engine
    engine.before_step = lambda: time.sleep(0.001)

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            outputs = await collect(llm, "hello " * 20, SamplingParams(max_tokens=500, n=3))
            for output in outputs:
                assert len({completion.text for completion in output.outputs}) == 1
            for place in range(3):
                assert "".join(output.outputs[place].delta for output in outputs) == "HELLO " * 20

    asyncio.run(main())


def test_stop_string_ends_a_stream_at_once_within_its_interval(fake_model: LoadedModel) -> None:
    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            params = SamplingParams(max_tokens=1000, stop="STOP")
            outputs = await asyncio.wait_for(collect(llm, "hello stop" + "x" * 900, params, interval=60.0), 30)
            assert outputs[-1].outputs[0].text == "HELLO " and outputs[-1].outputs[0].stop_reason == "STOP"
            assert len(outputs[-1].outputs[0].token_ids) < 20

    asyncio.run(main())
