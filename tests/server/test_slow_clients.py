"""Clients that take nothing, or little at a time."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from typing import Any

from support.running_server import Running, send_request, until

LONG: dict[str, Any] = {"prompt": "long", "max_tokens": 3000, "ignore_eos": True, "stream": True}


def test_slow_client_is_dropped_and_the_others_notice_nothing(fake: Callable[..., Running]) -> None:
    """The application alone, with a client that takes one event and then no more."""
    server = fake(slow_client_seconds=0.1)
    app = server.server.config.app
    engine: Any = server.llm.loaded.engine
    engine.before_step = lambda: time.sleep(0.0005)
    sent: list[dict[str, Any]] = []
    body = json.dumps(LONG).encode()
    scope = {
        "type": "http", "method": "POST", "path": "/v1/completions", "raw_path": b"/v1/completions",
        "query_string": b"", "headers": [(b"content-type", b"application/json")], "client": ("x", 1),
        "server": ("x", 1), "scheme": "http", "http_version": "1.1", "root_path": "",
    }  # fmt: skip

    async def main() -> None:
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await asyncio.Event().wait()
            return {}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if len(sent) > 2:
                await asyncio.Event().wait()

        other = asyncio.create_task(asyncio.to_thread(server.complete, prompt="hello", max_tokens=5))
        await asyncio.wait_for(app(scope, receive, send), 5)
        assert (await other).json()["choices"][0]["text"] == "HELLO"

    asyncio.run(main())
    assert len(sent) == 3
    until(lambda: not engine.running)


def test_connection_of_a_slow_client_is_cut(fake: Callable[..., Running]) -> None:
    server = fake(slow_client_seconds=0.1, stream_interval=0.0)
    engine: Any = server.llm.loaded.engine
    engine.before_step = lambda: time.sleep(0.0005)
    server.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    body = json.dumps(LONG | {"logprobs": 5}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(head % len(body) + body)
        until(lambda: bool(engine.running))
        until(lambda: not engine.running)
        until(lambda: not server.server.server_state.connections)
    assert engine.generated < LONG["max_tokens"]
    server.assert_well()


def test_slow_reader_gets_all_text_in_fewer_events(fake: Callable[..., Running]) -> None:
    server = fake(lambda request: "x" * 2000)
    connection = send_request(server, {"prompt": "a", "max_tokens": 3000, "stream": True})
    until(lambda: server.llm.progress().unfinished == 0)
    data = b""
    while b"[DONE]" not in data:
        data += connection.recv(65536)
    connection.close()
    texts = [json.loads(line[6:])["choices"][0]["text"] for line in data.splitlines() if line.startswith(b"data: {")]
    assert "".join(texts) == "x" * 2000
    assert len(texts) < 2000
