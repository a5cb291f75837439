"""Reading the streams of an AsyncLLM."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from octavo import AsyncLLM, RequestOutput, SamplingParams

LONG = SamplingParams(max_tokens=1000)


async def collect(llm: AsyncLLM, prompt: Any, params: SamplingParams = LONG, **more: Any) -> list[RequestOutput]:
    return [output async for output in llm.generate(prompt, params, **more)]


async def until(condition: Any, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition was not met in time"
        await asyncio.sleep(0.002)


def joined(outputs: list[RequestOutput]) -> str:
    return "".join(output.outputs[0].delta for output in outputs)
