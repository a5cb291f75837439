"""AsyncLLM: streams, aborts, slow readers, several event loops, and faults that end one request only."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from fake_model import echo, make_fake_model
from support.streams import LONG, collect, joined, until

from octavo import AsyncLLM
from octavo.engine_thread import READY_BYTES
from octavo.loading import LoadedModel
from octavo.request_driver import EngineError, RequestError


def test_deltas_join_to_the_text(fake_model: LoadedModel) -> None:
    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            outputs = await collect(llm, "hello")
            assert joined(outputs) == outputs[-1].outputs[0].text == "HELLO"
            assert outputs[-1].finished

    asyncio.run(main())


def test_many_tasks_share_the_engine(fake_model: LoadedModel) -> None:
    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            prompts = [f"prompt number {number}" for number in range(50)]
            results = await asyncio.gather(*(collect(llm, prompt) for prompt in prompts))
            assert [joined(outputs) for outputs in results] == [prompt.upper() for prompt in prompts]

    asyncio.run(main())


def test_several_event_loops_share_the_engine(fake_model: LoadedModel) -> None:
    llm = AsyncLLM.from_loaded(fake_model)
    texts: dict[int, str] = {}

    def work(number: int) -> None:
        texts[number] = joined(asyncio.run(collect(llm, f"loop {number}")))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    llm.close()
    assert texts == {number: f"LOOP {number}" for number in range(4)}


def test_slow_reader_gets_all_text_in_fewer_outputs_and_holds_nobody_up(fake_model: LoadedModel) -> None:
    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            slow = llm.generate("x" * 500, LONG)
            first = await anext(slow)
            assert joined(await collect(llm, "quick")) == "QUICK"
            engine: Any = fake_model.engine
            await until(lambda: not engine.running)
            rest = [output async for output in slow]
            assert len(rest) <= 2
            assert first.outputs[0].delta + joined(rest) == "X" * 500

    asyncio.run(main())


@pytest.mark.parametrize("how", ["close", "cancel", "break"])
def test_reader_that_leaves_aborts_its_request(fake_model: LoadedModel, how: str) -> None:
    engine: Any = fake_model.engine
    engine.before_step = lambda: time.sleep(0.001)

    async def read(llm: AsyncLLM) -> None:
        async for _ in llm.generate("x" * 1000, LONG, request_id="mine"):
            pass

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            if how == "cancel":
                task = asyncio.create_task(read(llm))
                await until(lambda: engine.running)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                stream: Any = llm.generate("x" * 1000, LONG, request_id="mine")
                async for _ in stream:
                    break
                if how == "close":
                    await stream.aclose()
                del stream
            await until(lambda: engine.aborted == ["mine"])
            assert not engine.running
            assert joined(await collect(llm, "next", request_id="mine")) == "NEXT"

    asyncio.run(main())


def test_abort_by_id_ends_the_stream(fake_model: LoadedModel) -> None:
    engine: Any = fake_model.engine
    engine.before_step = lambda: time.sleep(0.001)

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            task = asyncio.create_task(collect(llm, "x" * 1000, request_id="mine"))
            await until(lambda: engine.running)
            await llm.abort("mine")
            await llm.abort("nobody")
            outputs = await task
            assert outputs[-1].outputs[0].finish_reason == "abort"
            assert joined(outputs) == "X" * len(outputs[-1].outputs[0].token_ids)

    asyncio.run(main())


def test_thousand_readers_that_leave_in_every_state_leave_nothing_behind(fake_model: LoadedModel) -> None:
    engine: Any = fake_model.engine

    async def leave(llm: AsyncLLM, number: int) -> None:
        task = asyncio.create_task(collect(llm, "some prompt"))
        for _ in range(number % 7):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            engine.gate.clear()
            await asyncio.gather(*(leave(llm, number) for number in range(1000)))
            engine.gate.set()
            assert joined(await collect(llm, "after")) == "AFTER"
            await until(lambda: not engine.running)
            assert llm.stats().free_blocks == 100
            assert not llm._thread._streams

    asyncio.run(main())


def test_request_id_in_use_is_refused(fake_model: LoadedModel) -> None:
    engine: Any = fake_model.engine
    engine.gate.clear()

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            task = asyncio.create_task(collect(llm, "abc", request_id="same"))
            await asyncio.sleep(0.01)
            with pytest.raises(ValueError, match="request_id='same'"):
                await collect(llm, "xyz", request_id="same")
            engine.gate.set()
            assert joined(await task) == "ABC"

    asyncio.run(main())


@pytest.mark.parametrize(("prompt", "message"), [("", "must not be empty"), ("abcd", "needs 4 slots of 3")])
def test_bad_request_fails_alone(fake_model: LoadedModel, prompt: str, message: str) -> None:
    engine: Any = fake_model.engine
    engine.capacity = 3

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            good = asyncio.create_task(collect(llm, "abc"))
            with pytest.raises(ValueError, match=message):
                await collect(llm, prompt)
            assert joined(await good) == "ABC"
            assert not llm._thread._streams

    asyncio.run(main())


def test_error_update_ends_its_request_only(fake_model: LoadedModel) -> None:
    engine: Any = fake_model.engine
    step = engine.step
    engine.step = lambda: [
        replace(update, finish_reason="error", error="bad luck") if update.request_id == "bad" else update
        for update in step()
    ]

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            good = asyncio.create_task(collect(llm, "abc"))
            with pytest.raises(RequestError, match="bad luck"):
                await collect(llm, "xyz", request_id="bad")
            assert joined(await good) == "ABC"

    asyncio.run(main())


@pytest.mark.parametrize("answer", ["boom", "xxxxb", "xxxxboom"])
def test_failing_text_ends_its_request_only(answer: str) -> None:
    model = make_fake_model(lambda request: answer if request.request_id == "bad" else echo(request))
    tokenizer: Any = model.tokenizer
    make = tokenizer.detokenizer

    def detokenizer(skip: bool, after: Any) -> Any:
        made = make(skip, after)
        append = made.append

        def checked(token_id: int) -> str:
            if token_id == ord("b"):
                raise KeyError("no such token")
            return str(append(token_id))

        made.append = checked
        return made

    tokenizer.detokenizer = detokenizer

    async def main() -> None:
        async with AsyncLLM.from_loaded(model) as llm:
            good = asyncio.create_task(collect(llm, "xyz"))
            with pytest.raises(KeyError, match="no such token"):
                await collect(llm, "p", request_id="bad")
            assert joined(await good) == "XYZ"

    asyncio.run(main())


def test_failing_step_ends_what_runs_and_the_next_request_is_served(fake_model: LoadedModel) -> None:
    engine: Any = fake_model.engine
    failures = [RuntimeError("broken step")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()

    engine.before_step = fail_once

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            with pytest.raises(EngineError, match="broken step"):
                await collect(llm, "abc")
            assert not engine.running
            assert joined(await collect(llm, "abc")) == "ABC"

    asyncio.run(main())


def test_close_ends_every_reader(fake_model: LoadedModel) -> None:
    engine: Any = fake_model.engine
    engine.before_step = lambda: time.sleep(0.001)
    executor: Any = fake_model.executor

    async def main() -> None:
        llm = AsyncLLM.from_loaded(fake_model)
        tasks = [asyncio.create_task(collect(llm, "x" * 900)) for _ in range(3)]
        await until(lambda: len(engine.running) == 3)
        await asyncio.to_thread(llm.close)
        for task in tasks:
            with pytest.raises(EngineError, match="closed"):
                await task
        with pytest.raises(EngineError, match="closed"):
            await collect(llm, "abc")
        llm.close()

    asyncio.run(main())
    assert executor.closed


def test_idle_engine_uses_no_cpu(fake_model: LoadedModel) -> None:
    engine: Any = fake_model.engine

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            await collect(llm, "abc")
            steps, before = engine.steps, time.process_time()
            await asyncio.sleep(0.2)
            assert engine.steps == steps
            assert time.process_time() - before < 0.1

    asyncio.run(main())


def test_idle_memory_is_given_back_once_after_a_while(fake_model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.engine_thread.IDLE_SECONDS", 0.02)
    engine: Any = fake_model.engine

    async def released(number: int) -> bool:
        for _ in range(500):
            if engine.released == number:
                return True
            await asyncio.sleep(0.01)
        return False

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            assert await released(1)
            await collect(llm, "abc")
            assert await released(2)
            await llm.reset_prefix_cache()
            assert await released(3)
            assert engine.dropped == 1
            await asyncio.sleep(0.1)
            assert engine.released == 3, "an engine that stays idle sleeps"

    asyncio.run(main())


def test_memory_is_committed_while_there_is_no_request(
    fake_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.engine_thread.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("octavo.engine_thread.IDLE_SECONDS", 0.02)
    engine: Any = fake_model.engine

    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model):
            await until(lambda: engine.committed == 3)
            await until(lambda: engine.released == 1)
            assert engine.kept_blocks == READY_BYTES // fake_model.block_bytes

    asyncio.run(main())


def test_chat_streams(fake_model: LoadedModel) -> None:
    async def main() -> None:
        async with AsyncLLM.from_loaded(fake_model) as llm:
            outputs = [output async for output in llm.chat([{"role": "user", "content": "hi"}], LONG)]
            assert joined(outputs) == "USER: HI\nASSISTANT: "
            with pytest.raises(ValueError, match="messages"):
                await anext(llm.chat([], LONG))

    asyncio.run(main())


def test_forgotten_llm_frees_itself() -> None:
    model = make_fake_model()
    executor: Any = model.executor
    llm = AsyncLLM.from_loaded(model)
    thread = llm._thread._thread
    del llm
    thread.join(timeout=5)
    assert executor.closed
