"""Storms against a server that runs: too many requests at once, cancels in random states, slow readers.

    octavo serve smollm2 --max-queued-requests 64 &
    python benchmarks/server_storms.py [--port 8000] [--burst 500] [--cancels 2000] [--slow 50]

Prints a line of JSON for each storm. After each of them the next request must be right.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from typing import Any

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def send(port: int, body: dict[str, Any]) -> Streams:
    """Opens a connection and sends a completion request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    lines = (
        "POST /v1/completions HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
    )
    writer.write("\r\n".join((*lines, "", "")).encode() + data)
    await writer.drain()
    return reader, writer


async def ask(port: int, body: dict[str, Any]) -> tuple[int, float]:
    """(status, seconds) of a whole request."""
    started = time.perf_counter()
    reader, writer = await send(port, body)
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1]), time.perf_counter() - started


async def burst(port: int, count: int) -> dict[str, Any]:
    """Requests at once: most get 429 and at once, the others get their answer."""
    body = {"prompt": "The sea is", "max_tokens": 8, "temperature": 0}
    answers = await asyncio.gather(*(ask(port, body) for _ in range(count)))
    refused = sorted(seconds for status, seconds in answers if status == 429)
    served = sorted(seconds for status, seconds in answers if status == 200)
    return {
        "storm": "burst",
        "statuses": dict(Counter(status for status, _ in answers)),
        "last_429_s": round(refused[-1], 2) if refused else None,
        "last_200_s": round(served[-1], 2) if served else None,
    }


async def cancels(port: int, count: int, at_once: int = 32) -> dict[str, Any]:
    """Connections that are closed at a random moment, streamed and not."""
    gate = asyncio.Semaphore(at_once)
    chance = random.Random(1)

    async def one(place: int) -> None:
        async with gate:
            body = {"prompt": f"Story {place}: " * 8, "max_tokens": 200, "stream": place % 2 == 0}
            _, writer = await send(port, body)
            await asyncio.sleep(chance.random() * 0.5)
            writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(one(place) for place in range(count)))
    return {"storm": "cancels", "count": count, "seconds": round(time.perf_counter() - started, 1)}


async def slow_readers(port: int, count: int, seconds: float = 10.0) -> dict[str, Any]:
    """Streams whose readers take 100 bytes a second; somebody else's request beside them."""
    body = {"prompt": "The sea is", "max_tokens": 64, "stream": True, "ignore_eos": True}
    readers = await asyncio.gather(*(send(port, body) for _ in range(count)))
    deadline = time.perf_counter() + seconds

    async def read(reader: asyncio.StreamReader) -> None:
        while time.perf_counter() < deadline:
            await reader.read(100)
            await asyncio.sleep(1)

    tasks = [asyncio.create_task(read(reader)) for reader, _ in readers]
    status, other = await ask(port, {"prompt": "Hello", "max_tokens": 8})
    await asyncio.gather(*tasks)
    for _, writer in readers:
        writer.close()
    return {"storm": "slow readers", "count": count, "other_status": status, "other_s": round(other, 2)}


async def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__)
    for name, default in (("port", 8000), ("burst", 500), ("cancels", 2000), ("slow", 50)):
        cli.add_argument(f"--{name}", type=int, default=default)
    args = cli.parse_args()
    storms = (burst(args.port, args.burst), cancels(args.port, args.cancels), slow_readers(args.port, args.slow))
    for storm in storms:
        result = await storm
        status, seconds = await ask(args.port, {"prompt": "Hello", "max_tokens": 4, "temperature": 0})
        print(json.dumps({**result, "next_status": status, "next_s": round(seconds, 2)}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
