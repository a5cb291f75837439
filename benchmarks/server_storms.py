"""Storms against a real server: what it stands, and that nothing of it is left afterwards.

    python benchmarks/server_storms.py burst     [MODEL] [--count 500] [--limit 64]
    python benchmarks/server_storms.py cancels   [MODEL] [--count 10000]
    python benchmarks/server_storms.py slow      [MODEL] [--count 50] [--seconds 20]
    python benchmarks/server_storms.py mixed     [MODEL] [--seconds 600]
    python benchmarks/server_storms.py kill      [MODEL] [--count 5]

Each starts a server of its own (MODEL: smollm2), prints a table, and fails where the next request is not answered as
it was before the storm, where a block or a request is left, or where memory grows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from octavo.bench.server_process import ServerProcess, ask, get, metrics, request_bytes, send

QUESTION = {"prompt": "The sea is", "max_tokens": 8, "temperature": 0}
TEXTS = [f"Story {number}. Once upon a time there was a number, and its name was {number}. " for number in range(50)]
Table = dict[str, Any]


def texts_for(server: ServerProcess) -> list[str]:
    """Prompts that fit its context thrice."""
    (model,) = json.loads(asyncio.run(get(server.port, "/v1/models")))["data"]
    return [text[: model["max_model_len"] // 5] for text in TEXTS]


async def answer_text(port: int) -> str:
    """What the server says to the question: the same before and after every storm."""
    status, _, body = await ask(port, QUESTION)
    assert status == 200, body
    return str(json.loads(body)["choices"][0]["text"])


async def calm(server: ServerProcess, expected: str) -> Table:
    """After a storm: nothing runs, no block is held, the answer is right."""
    deadline = time.monotonic() + 60
    while True:
        now = await metrics(server.port)
        busy = sum(now[f'octavo_requests{{state="{state}"}}'] for state in ("running", "waiting"))
        free, cached, held = (now[f'octavo_kv_blocks{{state="{state}"}}'] for state in ("free", "cached", "referenced"))
        if not busy and not held:
            break
        assert time.monotonic() < deadline, f"{busy} requests and {held} blocks are left"
        await asyncio.sleep(0.05)
    started = time.perf_counter()
    assert await answer_text(server.port) == expected, "the next answer differs"
    return {
        "blocks free + cached": f"{free + cached:.0f}, held 0",
        "next answer": f"right, in {time.perf_counter() - started:.2f} s",
        "resident memory": f"{server.resident_mb():.0f} MB",
        "faults": int(sum(value for name, value in now.items() if name.endswith('status="500"}'))),
    }


async def burst(server: ServerProcess, options: argparse.Namespace) -> Table:
    """Requests at once: most get 429 and at once, the others get their answer."""
    expected = await answer_text(server.port)
    started = time.perf_counter()

    async def one() -> tuple[int, float, dict[str, str], bytes]:
        status, headers, body = await ask(server.port, QUESTION)
        return status, time.perf_counter() - started, headers, body

    answers = await asyncio.gather(*(one() for _ in range(options.count)))
    times = {status: sorted(seconds for got, seconds, _, _ in answers if got == status) for status in (200, 429)}
    assert len(times[200]) + len(times[429]) == options.count, Counter(status for status, *_ in answers)
    for status, _, headers, body in answers:
        assert status == 429 or json.loads(body)["choices"][0]["text"] == expected
        assert status == 200 or int(headers["retry-after"]) >= 1
    return {
        "requests at once": options.count,
        "limit": options.limit,
        "answered, all right": f"{len(times[200])}, the last after {times[200][-1]:.2f} s",
        "429 with Retry-After": f"{len(times[429])}, the last after {max(times[429], default=0):.2f} s",
        **await calm(server, expected),
    }


async def cancels(server: ServerProcess, options: argparse.Namespace) -> Table:
    """Connections closed at random: inside the request, before an answer, after some events of a stream."""
    expected = await answer_text(server.port)
    gate, chance, states = asyncio.Semaphore(64), random.Random(1), Counter[str]()

    async def one() -> None:
        stream = chance.random() < 0.5
        body = {
            "prompt": chance.choice(options.texts),
            "max_tokens": chance.choice((1, 8, 64)),
            "n": chance.choice((1, 1, 2)),
        }
        async with gate:
            states[await cancel(server.port, body | {"stream": stream, "ignore_eos": True}, chance)] += 1

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(options.count)))
    seconds = time.perf_counter() - started
    now = await metrics(server.port)
    aborted = now['octavo_requests_ended_total{outcome="abort"}']
    return {
        "cancels": f"{options.count} in {seconds:.1f} s",
        **{f"closed {state}": count for state, count in sorted(states.items())},
        "requests that the engine had to abort": int(aborted),
        **await calm(server, expected),
    }


async def cancel(port: int, body: dict[str, Any], chance: random.Random) -> str:
    """Leaves at a random moment; says which."""
    if chance.random() < 0.05:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        data = request_bytes(body)
        writer.write(data[: chance.randrange(len(data))])
        writer.close()
        return "inside its request"
    reader, writer = await send(port, body)
    state = "before its answer"
    try:
        async with asyncio.timeout(chance.choice((0.0, 0.01, 0.1, 0.5, 60.0, 60.0, 60.0))):
            for _ in range(chance.randrange(1, 40)):
                if not await reader.readline():
                    return "after the end"
                state = "inside its answer"
    except TimeoutError:
        pass
    finally:
        writer.close()
    return state


async def slow(server: ServerProcess, options: argparse.Namespace) -> Table:
    """Streams whose readers take 100 bytes a second, and somebody else's requests beside them."""
    expected = await answer_text(server.port)
    body = {"prompt": "The sea is", "max_tokens": options.tokens, "stream": True, "ignore_eos": True}
    # Small buffers here, so that what nobody reads soon waits in the server.
    streams = await asyncio.gather(*(send(server.port, body, receive_buffer=2048) for _ in range(options.count)))
    deadline = time.perf_counter() + options.seconds
    taken = [0] * options.count

    async def read(place: int) -> bool:
        """Whether the server dropped it."""
        while time.perf_counter() < deadline:
            try:
                data = await streams[place][0].read(100)
            except ConnectionError:
                return True
            taken[place] += len(data)
            await asyncio.sleep(1)
        return False

    others: list[float] = []
    readers = asyncio.gather(*(read(place) for place in range(options.count)))
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        assert await answer_text(server.port) == expected
        others.append(time.perf_counter() - started)
        await asyncio.sleep(0.1)
    dropped = sum(await readers)
    memory = server.resident_mb()
    for _, writer in streams:
        writer.close()
    return {
        "readers of 100 bytes/s": f"{options.count} for {options.seconds:g} s, streams of {options.tokens} tokens",
        "each took": f"{min(taken)} to {max(taken)} bytes",
        "dropped by the server": dropped,
        "others' answers meanwhile": f"{len(others)}, all right",
        "their time": f"median {statistics.median(others):.2f} s, longest {max(others):.2f} s",
        "memory meanwhile": f"{memory:.0f} MB",
        **await calm(server, expected),
    }


async def mixed(server: ServerProcess, options: argparse.Namespace) -> Table:
    """Everything at once for a while, with resident memory over time."""
    expected = await answer_text(server.port)
    end = time.perf_counter() + options.seconds
    chance, done = random.Random(1), Counter[str]()
    samples: list[float] = []

    async def client() -> None:
        while time.perf_counter() < end:
            done[await some_request(server.port, options.texts, chance)] += 1

    async def watch() -> None:
        while time.perf_counter() < end:
            samples.append(server.resident_mb())
            await asyncio.sleep(options.seconds / 120)

    await asyncio.gather(watch(), *(client() for _ in range(24)))
    third = len(samples) // 3
    middle, last = statistics.median(samples[third : 2 * third]), statistics.median(samples[2 * third :])
    growth = 0.02 if options.seconds >= 300 else 0.1  # a short run warms up
    assert last - middle < max(8.0, growth * middle), f"memory grows: {middle:.1f} -> {last:.1f} MB"
    row = ", ".join(f"{samples[place * (len(samples) - 1) // 9]:.0f}" for place in range(10))
    return {
        "mixed load": f"{options.seconds:g} s, {sum(done.values())} requests",
        **dict(sorted(done.items())),
        "resident memory over time": f"{row} MB",
        "middle third, last third": f"{middle:.1f}, {last:.1f} MB",
        "open files": server.open_files(),
        **await calm(server, expected),
    }


async def some_request(port: int, texts: list[str], chance: random.Random) -> str:
    """One of everything that clients do."""
    kind = chance.choice(("whole", "whole", "stream", "stream", "chat", "cancel", "scores", "wrong", "look"))
    prompt = chance.choice(texts) * chance.randrange(1, 4)
    body: dict[str, Any] = {"prompt": prompt, "max_tokens": chance.randrange(1, 48), "n": chance.choice((1, 1, 3))}
    path, wanted = "/v1/completions", {200, 429}
    if kind == "look":
        await get(port, chance.choice(("/metrics", "/v1/kv/blocks", "/health/ready", "/", "/v1/models")))
        return kind
    if kind == "cancel":
        await cancel(port, body | {"stream": chance.random() < 0.5}, chance)
        return kind
    if kind == "stream":
        body |= {"stream": True, "stop": "number"}
    elif kind == "chat":
        path = "/v1/chat/completions"
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 16, "logprobs": True}
    elif kind == "scores":
        body |= {"echo": True, "logprobs": 2, "max_tokens": 1}
    elif kind == "wrong":
        body |= chance.choice(({"n": 0}, {"temperature": "hot"}, {"prompt": [[]]}, {"model": "other"}, {"stop": ""}))
        wanted = {400, 404, 429}
    status, _, answer = await ask(port, body, path)
    assert status in wanted, (status, answer[:500])
    return kind if status in (200, 400, 404) else "refused, the queue was full"


async def kill(server: ServerProcess, options: argparse.Namespace) -> Table:
    """SIGKILL under load, and the same command again at once."""
    expected = await answer_text(server.port)
    seconds = [server.seconds_to_ready]
    body = {"prompt": options.texts[0], "max_tokens": 64, "stream": True}
    for _ in range(options.count):
        streams = await asyncio.gather(*(send(server.port, body) for _ in range(8)))
        await streams[0][0].readline()
        server.kill()
        server.start()
        seconds.append(server.seconds_to_ready)
        now = await metrics(server.port)
        assert now['octavo_kv_blocks{state="free"}'] > 0 == now['octavo_kv_blocks{state="cached"}'], "stale state"
        assert await answer_text(server.port) == expected, "the first answer differs"
        for _, writer in streams:
            writer.close()
    return {
        "killed under load, started again on the same port": f"{options.count} times",
        "start to ready": f"first {seconds[0]:.2f} s, then {min(seconds[1:]):.2f} to {max(seconds[1:]):.2f} s",
        "first answer each time": "right",
        **await calm(server, expected),
    }


STORMS: dict[str, Callable[[ServerProcess, argparse.Namespace], Awaitable[Table]]] = {
    "burst": burst,
    "cancels": cancels,
    "slow": slow,
    "mixed": mixed,
    "kill": kill,
}
COUNTS = {"burst": 500, "cancels": 10_000, "slow": 50, "kill": 5}
SECONDS = {"slow": 20.0, "mixed": 600.0}
SERVERS = {
    "cancels": ("--max-num-seqs", "32"),  # so that some wait
    "slow": ("--slow-client-seconds", "8"),
    "mixed": ("--kv-cache-memory", "96MiB"),  # full within seconds, so that memory can be flat
}


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("storm", choices=STORMS)
    cli.add_argument("model", nargs="?", default="smollm2")
    cli.add_argument("--count", type=int)
    cli.add_argument("--seconds", type=float)
    cli.add_argument("--limit", type=int, default=64, help="of queued requests")
    cli.add_argument("--tokens", type=int, default=512, help="of a stream with a slow reader")
    options = cli.parse_args()
    options.count = options.count or COUNTS.get(options.storm)
    options.seconds = options.seconds or SECONDS.get(options.storm)
    limits = ("--max-queued-requests", str(options.limit), *SERVERS.get(options.storm, ()))
    with ServerProcess(options.model, *limits) as server:
        options.texts = texts_for(server)
        table = asyncio.run(STORMS[options.storm](server, options))
    width = max(map(len, table))
    for name, value in table.items():
        print(f"{name:{width}}  {value}")


if __name__ == "__main__":
    main()
