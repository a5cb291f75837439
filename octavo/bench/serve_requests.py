"""Requests for a server under load, and what one of them takes as its reader sees it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from octavo.bench.http_stream import Address, Answer, ProtocolError, send
from octavo.bench.lengths import DISTRIBUTIONS

Api = Literal["completions", "chat"]
_WORDS = ("the", "sea", "was", "calm", "and", "a", "small", "boat", "came", "home", "with", "fish", "salt", "bread")


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked for. `ids`: prompts of random token ids; else of random words, about one token each."""

    api: Api = "completions"
    ids: bool = True
    input_len: int = 128
    output_len: int = 128
    lengths: str = "fixed"
    """fixed, or the name of one of octavo.bench.lengths' distributions, in whose place input_len and output_len are"""
    max_id: int = 10_000
    """Ids are below this"""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """More fields of each request's body"""

    def bodies(self, model: str, count: int, seed: int) -> Iterator[dict[str, Any]]:
        """`count` request bodies, the same for the same seed."""
        rng = np.random.default_rng(seed)
        if self.lengths == "fixed":
            lengths = [(self.input_len, self.output_len)] * count
        else:
            trace = DISTRIBUTIONS[self.lengths].sample(count, seed)
            lengths = list(zip(trace.prompts.tolist(), trace.outputs.tolist(), strict=True))
        for prompt_len, output_len in lengths:
            body = {
                "model": model,
                "max_tokens": output_len,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            yield body | self._prompt(rng, prompt_len) | dict(self.fields)

    def _prompt(self, rng: np.random.Generator, length: int) -> dict[str, Any]:
        if self.ids:
            return {"prompt": rng.integers(0, self.max_id, length).tolist()}
        text = " ".join(_WORDS[place] for place in rng.integers(0, len(_WORDS), length).tolist())
        return {"prompt": text} if self.api == "completions" else {"messages": [{"role": "user", "content": text}]}


@dataclass(slots=True)
class Sample:
    """One request as its reader saw it."""

    error: str | None = None
    """What went wrong, in few words; such a request counts in no time"""
    arrivals: list[float] = field(default_factory=list)
    """Seconds from the request to each piece of its answer"""
    prompt_tokens: int = 0
    output_tokens: int = 0
    """As the server counts them; else one for each piece"""

    @property
    def ttft(self) -> float:
        """To the first piece."""
        return self.arrivals[0]

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first; None where there is only one."""
        after = self.output_tokens - 1
        return (self.arrivals[-1] - self.arrivals[0]) / after if after > 0 else None

    @property
    def gaps(self) -> list[float]:
        """Between pieces."""
        return [later - earlier for earlier, later in pairwise(self.arrivals)]


async def take(address: Address, api: Api, body: dict[str, Any], key: str | None, timeout: float) -> Sample:
    """Sends one request and reads its stream to the end. What goes wrong is the sample's error."""
    path = "/v1/chat/completions" if api == "chat" else "/v1/completions"
    sample = Sample()
    try:
        async with asyncio.timeout(timeout):
            started = time.perf_counter()
            async with send(address, "POST", path, body, key) as answer:
                sample.error = await _read(answer, sample, started)
    except TimeoutError:
        sample.error = f"not ended after {timeout:g} s"
    except ProtocolError as error:
        sample.error = str(error)
    except OSError as error:
        sample.error = f"no connection: {error.strerror or error}"
    return sample


async def _read(answer: Answer, sample: Sample, started: float) -> str | None:
    if answer.status != 200:
        return f"status {answer.status}: {' '.join((await answer.text()).split())[:200]}"
    usage: dict[str, Any] = {}
    async for line in answer.lines():
        if not line.startswith(b"data:"):
            continue
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            break
        try:
            event = json.loads(data)
        except ValueError:
            return f"no JSON in the stream: {data[:80]!r}"
        if event.get("error"):
            return f"error in the stream: {event['error']}"[:200]
        usage = event.get("usage") or usage
        if any(_has_output(choice) for choice in event.get("choices") or ()):
            sample.arrivals.append(time.perf_counter() - started)
    else:
        return "the stream ended without [DONE]"
    if not sample.arrivals:
        return "an answer without output"
    sample.output_tokens = int(usage.get("completion_tokens") or len(sample.arrivals))
    sample.prompt_tokens = int(usage.get("prompt_tokens") or 0)
    return None


def _has_output(choice: Mapping[str, Any]) -> bool:
    """Text, or the end; not the empty piece that tells a role."""
    if "text" in choice:
        return True
    delta = choice.get("delta") or {}
    return any(delta.get(name) for name in delta if name != "role") or choice.get("finish_reason") is not None
