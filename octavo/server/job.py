"""What one HTTP request asks of the engine: one or more prompts with the same parameters."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field

from octavo.async_llm import AsyncLLM
from octavo.beam_search_params import BeamSearchParams
from octavo.outputs import RequestOutput
from octavo.prompts import TokenizedPrompt
from octavo.server.params import Params


@dataclass(frozen=True, slots=True)
class Job:
    """Prompts, read and checked."""

    prompts: list[TokenizedPrompt]
    params: Params
    seconds: float
    """Its deadline"""
    explain: Callable[[str], str] = str
    """Says an error about params.structured_outputs in the words of the field that asked for them"""
    id: str = field(default_factory=lambda: secrets.token_hex(12))

    @property
    def prompt_tokens(self) -> list[int]:
        return [len(prompt.token_ids) for prompt in self.prompts]

    def outputs(self, llm: AsyncLLM, interval: float) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """(number of the prompt, its newest output), until all have finished; a prompt's outputs are `interval` seconds
        apart. Closing it aborts what runs."""
        return self._outputs_of_one(llm, interval) if len(self.prompts) == 1 else self._outputs_of_many(llm, interval)

    def _start(self, llm: AsyncLLM, interval: float, place: int) -> AsyncIterator[RequestOutput]:
        prompt = self.prompts[place]
        inner = {"prompt_token_ids": prompt.token_ids}
        request = inner if prompt.cache_salt is None else {**inner, "cache_salt": prompt.cache_salt}
        if isinstance(self.params, BeamSearchParams):
            return llm.beam_search(request, self.params, f"{self.id}-{place}")
        return llm.generate(request, self.params, f"{self.id}-{place}", interval)

    async def _outputs_of_one(self, llm: AsyncLLM, interval: float) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        stream = self._start(llm, interval, 0)
        try:
            async for output in stream:
                yield 0, output
        finally:
            await _close(stream)

    async def _outputs_of_many(self, llm: AsyncLLM, interval: float) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """A task a prompt. The queue has one place: a slow reader misses intermediate outputs, not memory."""
        ready: asyncio.Queue[tuple[int, RequestOutput | Exception]] = asyncio.Queue(1)

        async def pump(place: int) -> None:
            stream = self._start(llm, interval, place)
            try:
                async for output in stream:
                    await ready.put((place, output))
            except Exception as error:
                await ready.put((place, error))
            finally:
                await _close(stream)

        tasks = [asyncio.create_task(pump(place)) for place in range(len(self.prompts))]
        left = len(tasks)
        try:
            while left:
                place, output = await ready.get()
                if isinstance(output, Exception):
                    raise output
                left -= output.finished
                yield place, output
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _close(stream: AsyncIterator[RequestOutput]) -> None:
    if isinstance(stream, AsyncGenerator):
        await stream.aclose()
