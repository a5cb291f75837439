"""Load on servers: ours, and small ones that answer as they like."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from fake_model import make_fake_model
from support.running_server import running

from octavo import AsyncLLM
from octavo.bench.http_stream import Address, ProtocolError, send
from octavo.bench.serve_load import Load, measure_serve, serve_table
from octavo.bench.serve_requests import Sample, Workload, take
from octavo.cli.main import main


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives one answer after the other, the last one for ever: (its URL, the requests it got)."""
    requests: list[bytes] = []
    started, stopped = threading.Event(), asyncio.Event()
    tasks: list[asyncio.Task[None] | None] = []
    loop = asyncio.new_event_loop()
    port = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
        requests.append(head + body)
        writer.write(answers[min(len(requests), len(answers)) - 1])
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def run() -> None:
        nonlocal port
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        started.set()
        await stopped.wait()
        server.close()
        await server.wait_closed()
        await asyncio.gather(*(task for task in tasks if task is not None))

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    started.wait()
    try:
        yield f"http://127.0.0.1:{port}", requests
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()


def events(*chunks: Any, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + (["data: [DONE]\n\n"] if done else [])
    return "".join(lines).encode()


def plain(body: bytes, status: bytes = b"200 OK") -> bytes:
    """An answer that the connection's end ends."""
    return b"HTTP/1.1 " + status + b"\r\nContent-Type: text/event-stream\r\n\r\n" + body


def chunked(body: bytes, size: int = 7) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x;note\r\n%s\r\n" % (len(each), each) for each in pieces) + b"0\r\nTrailer: x\r\n\r\n"


TEXT = events(
    {"choices": [{"index": 0, "text": "a", "finish_reason": None}]},
    {"choices": [{"index": 0, "text": "b", "finish_reason": "length"}]},
    {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4}},
)


def one(answer: bytes, api: Any = "completions", timeout: float = 5.0) -> Sample:
    with answering(answer) as (url, _):
        return asyncio.run(take(Address.of(url), api, {"prompt": "x"}, None, timeout))


@pytest.mark.parametrize("answer", [plain(TEXT), chunked(TEXT), chunked(TEXT, 1), plain(TEXT.replace(b"\n", b"\r\n"))])
def test_a_stream_is_read_as_it_comes(answer: bytes) -> None:
    sample = one(answer)
    assert sample.error is None
    assert (len(sample.arrivals), sample.prompt_tokens, sample.output_tokens) == (2, 5, 4)
    assert sample.tpot == pytest.approx((sample.arrivals[1] - sample.arrivals[0]) / 3)
    assert sample.ttft == sample.arrivals[0] and len(sample.gaps) == 1


def test_a_chat_counts_what_is_said_not_who_speaks() -> None:
    role = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
    words = [{"choices": [{"delta": {"content": word}}]} for word in ("a", "b")]
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    sample = one(plain(events(role, *words, end)), "chat")
    assert (len(sample.arrivals), sample.output_tokens, sample.prompt_tokens) == (3, 3, 0)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (plain(b'{"error": "full"}', b"429 Too Many"), 'status 429: {"error": "full"}'),
        (plain(events({"error": {"message": "broke"}})), "error in the stream: {'message': 'broke'}"),
        (plain(TEXT.replace(b"data: [DONE]\n\n", b"")), "the stream ended without [DONE]"),
        (plain(events()), "an answer without output"),
        (plain(b"data: {no\n\n"), "no JSON in the stream"),
        (b"SSH-2.0\r\n\r\n", "no HTTP answer"),
        (b"", "the answer has no end"),
        (chunked(TEXT)[:-40], "the answer has no end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "no size of a chunk"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc", "96 bytes before the answer did"),
    ],
)
def test_what_goes_wrong_is_the_samples_error(answer: bytes, error: str) -> None:
    assert error in (one(answer).error or "")


def test_a_body_of_a_given_length_and_a_key() -> None:
    async def get(url: str) -> tuple[int, str]:
        async with send(Address.of(url), "GET", "/v1/models", key="secret") as answer:
            return answer.status, await answer.text()

    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef") as (url, requests):
        assert asyncio.run(get(url + "/base/v1/")) == (200, "abc")
    assert requests[0].startswith(b"GET /base/v1/models HTTP/1.1\r\n") and b"Bearer secret" in requests[0]


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999999", "http://x/?a=b", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="url="):
        Address.of(url)


def test_addresses() -> None:
    assert Address.of("localhost:8000") == Address("localhost", 8000, False, "")
    assert Address.of("https://api.example.org/v1") == Address("api.example.org", 443, True, "")
    assert issubclass(ProtocolError, RuntimeError)


def test_workloads_are_the_same_for_a_seed_and_ask_for_what_they_say() -> None:
    workload = Workload(input_len=6, output_len=9, max_id=50, fields={"ignore_eos": True})
    first, second = (list(workload.bodies("m", 3, seed)) for seed in (1, 1))
    assert first == second != list(workload.bodies("m", 3, 2))
    for body in first:
        assert len(body["prompt"]) == 6 and max(body["prompt"]) < 50
        assert (body["model"], body["max_tokens"], body["stream"], body["ignore_eos"]) == ("m", 9, True, True)
    (chat,) = Workload(api="chat", ids=False, input_len=4).bodies("m", 1, 0)
    assert len(chat["messages"][0]["content"].split()) == 4
    varied = list(Workload(lengths="alpaca").bodies("m", 50, 0))
    assert len({body["max_tokens"] for body in varied}) > 10 and len({len(body["prompt"]) for body in varied}) > 10


def test_a_closed_loop_and_arrivals_by_chance_against_our_server() -> None:
    done: list[str] = []
    fake = make_fake_model()
    engine: Any = fake.engine
    engine.before_step = lambda: time.sleep(0.002)  # or its tokens would come in one piece
    with running(AsyncLLM.from_loaded(fake)) as server:
        url = f"http://127.0.0.1:{server.port}"
        workload = Workload(input_len=5, output_len=7, max_id=90, fields={"ignore_eos": True})
        loads = [Load(concurrency=3), Load(rate=200.0)]
        model, rows = measure_serve(url, loads, workload, 8, on_load=lambda load: lambda: done.append(load.name))
        server.assert_well()
    assert model == "small"
    assert [row["load"] for row in rows] == ["3 at once", "200 a second"]
    assert done == ["3 at once"] * 8 + ["200 a second"] * 8
    for row in rows:
        assert (row["requests"], row["errors"], row["error_kinds"]) == (8, 0, {})
        assert row["output_tokens_per_s"] == pytest.approx(8 * 7 / row["elapsed_s"])
        assert row["input_tokens_per_s"] == pytest.approx(8 * 5 / row["elapsed_s"])
        for figure in ("ttft_ms", "tpot_ms", "itl_ms"):
            assert 0 <= row[figure]["p50"] <= row[figure]["p90"] <= row[figure]["p95"] <= row[figure]["p99"]
    assert serve_table(rows)[0]["ttft_p99_ms"] == rows[0]["ttft_ms"]["p99"]


def test_errors_under_load_are_counted_by_kind() -> None:
    good = plain(TEXT)
    with answering(good, good, plain(b"busy", b"503 Busy")) as (url, _):
        _, (row,) = measure_serve(url, [Load(concurrency=1)], Workload(), 3, model="m")
    assert (row["requests"], row["errors"], row["error_kinds"]) == (3, 2, {"status 503: busy": 2})
    assert row["output_tokens_per_s"] == pytest.approx(4 / row["elapsed_s"])
    assert np.isclose(row["requests_per_s"] * row["elapsed_s"], 1)


def test_a_server_that_cannot_be_used_is_an_error_at_once() -> None:
    workload, loads = Workload(), [Load(concurrency=1)]
    with answering(plain(b"no", b"401 No")) as (url, _):
        with pytest.raises(ValueError, match=r"does not name a model .status 401."):
            measure_serve(url, loads, workload, 1)
        with pytest.raises(ValueError, match="the first request failed: status 401: no"):
            measure_serve(url, loads, workload, 1, model="m")
    with pytest.raises(ValueError, match="no answer from the server"):
        measure_serve(url, loads, workload, 1)
    with pytest.raises(ValueError, match="no connection"):
        measure_serve(url, loads, workload, 1, model="m")


def test_an_answer_that_does_not_end_is_given_up() -> None:
    async def hang() -> Sample:
        left = asyncio.Event()

        async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            await writer.wait_closed()
            left.set()

        async with await asyncio.start_server(nothing, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            sample = await take(Address("127.0.0.1", port, False, ""), "completions", {}, None, timeout=0.05)
            await left.wait()
            return sample

    assert asyncio.run(hang()).error == "not ended after 0.05 s"


def test_the_command() -> None:
    with answering(plain(TEXT)) as (url, requests):
        arguments = ["bench", "serve", "--url", url, "--model", "m", "--concurrency", "1,2", "--requests", "2"]
        arguments += ["--fields", '{"top_k": 5}', "--stop-at-eos", "--key", "secret"]
        result = CliRunner().invoke(main, [*arguments, "--json"])
        assert result.exit_code == 0, result.output
        text = CliRunner().invoke(main, arguments).stdout
    report = json.loads(result.stdout)
    assert [row["load"] for row in report["rows"]] == ["1 at once", "2 at once"]
    assert (report["model"], report["url"]) == ("m", url)
    body = json.loads(requests[0].split(b"\r\n\r\n")[1])
    assert body["top_k"] == 5 and "ignore_eos" not in body and b"Bearer secret" in requests[0]
    assert text.splitlines()[1].split()[:4] == ["load", "requests", "errors", "elapsed_s"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--concurrency", "1", "--rate", "1"],
        ["--rate", "0"],
        ["--rate", "x"],
        ["--concurrency", "0"],
        ["--rate", "1", "--fields", "[]"],
        ["--rate", "1", "--fields", "{"],
    ],
)
def test_bad_loads_are_usage_errors(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, ["bench", "serve", *arguments]).exit_code == 2
