"""A server on a free port of this machine, in a thread."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from octavo import AsyncLLM
from octavo.server.options import ListenOptions, ServerOptions
from octavo.server.serve import DrainingServer, make_server


@dataclass
class Client:
    """Requests to a server, wherever it runs."""

    port: int
    client: httpx2.Client

    def post(self, path: str, body: Any, **more: Any) -> httpx2.Response:
        return self.client.post(path, json=body, **more)

    def complete(self, **body: Any) -> httpx2.Response:
        return self.post("/v1/completions", body)

    def chat(self, content: Any = "hi", **body: Any) -> httpx2.Response:
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **body})

    def events(self, path: str, **body: Any) -> list[dict[str, Any]]:
        return read_events(self.post(path, {**body, "stream": True}))

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics."""
        lines = self.client.get("/metrics").text.splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


@dataclass
class Running(Client):
    """A server in a thread of this process."""

    llm: AsyncLLM
    server: DrainingServer
    thread: threading.Thread

    def assert_well(self) -> None:
        """Nothing is held, and the next request is right."""
        until(lambda: self.llm.progress().unfinished == 0)
        until(lambda: self.llm.stats().referenced_blocks == 0)
        stats = self.llm.stats()
        assert stats.free_blocks + stats.cached_blocks == stats.total_blocks
        answer = self.complete(prompt="hello", max_tokens=2, temperature=0)
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 2


def read_events(response: httpx2.Response) -> list[dict[str, Any]]:
    """The chunks of a stream, which must end in [DONE]."""
    assert response.status_code == 200, response.text
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def send_request(server: Running, body: dict[str, Any]) -> socket.socket:
    """A raw connection with a completion request on its way."""
    data = json.dumps(body).encode()
    lines = (
        "POST /v1/completions HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
    )
    head = "\r\n".join((*lines, "", ""))
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(head.encode() + data)
    return connection


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition was not met in time"
        time.sleep(0.002)


@contextmanager
def running(llm: AsyncLLM, **options: Any) -> Iterator[Running]:
    """A server in a thread until the block ends; closes the model too."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = make_server(llm, ServerOptions(model_names=("small",), **options), ListenOptions(port=port))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    until(lambda: server.started)
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        try:
            yield Running(port, client, llm, server, thread)
        finally:
            client.close()
            if thread.is_alive():
                server.stop()
            thread.join(timeout=10)
            llm.close()
            listener.close()
