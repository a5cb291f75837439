"""Load on an OpenAI-compatible server: a closed loop, or arrivals by chance; and what came of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from octavo.bench.http_stream import Address, ProtocolError, send
from octavo.bench.serve_requests import Sample, Workload, take

One = Callable[[dict[str, Any]], Awaitable[Sample]]
"""Sends one request"""


@dataclass(frozen=True, slots=True)
class Load:
    """Exactly one of the two is given."""

    concurrency: int | None = None
    """Closed loop: so many requests at once, the next one begins when one ends"""
    rate: float | None = None
    """Poisson arrivals: so many requests a second on average, however many are under way"""

    @property
    def name(self) -> str:
        return f"{self.concurrency} at once" if self.rate is None else f"{self.rate:g} a second"


@dataclass(frozen=True, slots=True)
class ServeRow:
    """One load. Times are of requests without an error, in milliseconds: mean and percentiles."""

    load: str
    requests: int
    errors: int
    elapsed_s: float
    """From the first request to the end of the last"""
    requests_per_s: float
    output_tokens_per_s: float
    input_tokens_per_s: float
    ttft_ms: dict[str, float]
    """To the first piece of the answer"""
    tpot_ms: dict[str, float]
    """Per output token after the first, of each request"""
    itl_ms: dict[str, float]
    """Between pieces, over all requests"""
    error_kinds: dict[str, int]


def measure_serve(
    url: str,
    loads: Sequence[Load],
    workload: Workload,
    requests: int,
    model: str | None = None,
    key: str | None = None,
    timeout: float = 600.0,
    seed: int = 0,
    on_load: Callable[[Load], Callable[[], None]] = lambda _: lambda: None,
) -> tuple[str, list[dict[str, Any]]]:
    """(the model's name, one row a load). on_load(load) gives what is called after each request of that load.

    A request that is not counted goes first. Raises ValueError for a bad url and where that one fails, with its error.
    """
    address = Address.of(url)

    async def run() -> tuple[str, list[dict[str, Any]]]:
        name = model or await _first_model(address, key, url)
        first = next(workload.bodies(name, 1, seed))
        warm = await take(address, workload.api, first, key, timeout)
        if warm.error is not None:
            raise ValueError(f"{url}: the first request failed: {warm.error}")
        rows = []
        for number, load in enumerate(loads):
            bodies = workload.bodies(name, requests, seed + 1 + number)
            done = on_load(load)

            async def one(body: dict[str, Any], done: Callable[[], None] = done) -> Sample:
                sample = await take(address, workload.api, body, key, timeout)
                done()
                return sample

            started = time.perf_counter()
            if load.rate is None:
                samples = await _closed(bodies, load.concurrency or 1, one)
            else:
                samples = await _poisson(bodies, load.rate, seed, one)
            rows.append(asdict(_row(load, samples, time.perf_counter() - started)))
        return name, rows

    return asyncio.run(run())


async def _closed(bodies: Iterator[dict[str, Any]], concurrency: int, one: One) -> list[Sample]:
    samples: list[Sample] = []

    async def reader() -> None:
        for body in bodies:
            samples.append(await one(body))

    await asyncio.gather(*(reader() for _ in range(concurrency)))
    return samples


async def _poisson(bodies: Iterator[dict[str, Any]], rate: float, seed: int, one: One) -> list[Sample]:
    rng = np.random.default_rng(seed)
    due = time.perf_counter()
    tasks: list[asyncio.Future[Sample]] = []
    for body in bodies:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.ensure_future(one(body)))
        due += float(rng.exponential(1.0 / rate))
    return await asyncio.gather(*tasks)


async def _first_model(address: Address, key: str | None, url: str) -> str:
    """The first that the server says it has."""
    try:
        async with send(address, "GET", "/v1/models", key=key) as answer:
            text = await answer.text()
            if answer.status == 200:
                return str(json.loads(text)["data"][0]["id"])
    except (OSError, ProtocolError) as error:
        raise ValueError(f"{url}: no answer from the server: {error}") from None
    except (ValueError, LookupError, TypeError):
        pass
    raise ValueError(f"{url}: /v1/models does not name a model (status {answer.status}); give --model")


def _row(load: Load, samples: Sequence[Sample], elapsed: float) -> ServeRow:
    good = [sample for sample in samples if sample.error is None]
    tpots = [sample.tpot for sample in good]
    return ServeRow(
        load=load.name,
        requests=len(samples),
        errors=len(samples) - len(good),
        elapsed_s=elapsed,
        requests_per_s=len(good) / elapsed,
        output_tokens_per_s=sum(sample.output_tokens for sample in good) / elapsed,
        input_tokens_per_s=sum(sample.prompt_tokens for sample in good) / elapsed,
        ttft_ms=_spread([sample.ttft for sample in good]),
        tpot_ms=_spread([tpot for tpot in tpots if tpot is not None]),
        itl_ms=_spread([gap for sample in good for gap in sample.gaps]),
        error_kinds=dict(Counter(sample.error for sample in samples if sample.error is not None)),
    )


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles in milliseconds; nothing of nothing."""
    if not seconds:
        return {}
    values = np.array(seconds) * 1e3
    percentiles = {f"p{part}": float(np.percentile(values, part)) for part in (50, 90, 95, 99)}
    return {"mean": float(values.mean()), **percentiles}


def serve_table(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with their main percentiles, for people."""
    names = ("load", "requests", "errors", "elapsed_s", "requests_per_s", "output_tokens_per_s", "input_tokens_per_s")
    return [
        {
            **{name: row[name] for name in names},
            **{
                f"{figure}_{part}_ms": row[f"{figure}_ms"].get(part)
                for figure in ("ttft", "tpot", "itl")
                for part in ("p50", "p99")
            },
        }
        for row in rows
    ]
