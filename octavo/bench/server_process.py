"""A server in a process of its own, and a client that speaks to it over raw connections."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ServerProcess:
    """`octavo serve` until the block ends. Its log is `log`, a file."""

    def __init__(self, model: str, *options: str, port: int = 0, tls: str | None = None) -> None:
        """`tls`: the certificate to trust, where the options make the server speak TLS."""
        self._tls = None if tls is None else ssl.create_default_context(cafile=tls)
        self.port = port or free_port()
        self._command = [sys.executable, "-m", "octavo", "serve", model, "--port", str(self.port), *options]
        self.log = Path(tempfile.mkstemp(prefix="octavo-", suffix=".log")[1])
        self.seconds_to_ready = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        self.log.unlink()

    def start(self) -> None:
        """Starts it, and returns when it says that it is ready."""
        started = time.perf_counter()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log)
        while not self._is_ready():
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended with {self.process.returncode}:\n{self.log.read_text()}")
            time.sleep(0.01)
        self.seconds_to_ready = time.perf_counter() - started

    def kill(self) -> None:
        """SIGKILL: nothing can be tidied up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def resident_mb(self) -> float:
        """Resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def open_files(self) -> int:
        """Descriptors that the process holds."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def _is_ready(self) -> bool:
        try:
            with self._connect() as connection:
                connection.sendall(b"GET /health/ready HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(100)
        except OSError:
            return False

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        return connection if self._tls is None else self._tls.wrap_socket(connection, server_hostname="localhost")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def request_bytes(body: dict[str, Any], path: str = "/v1/completions") -> bytes:
    """A POST whose connection is closed after its answer."""
    data = json.dumps(body).encode()
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + data


async def send(port: int, body: dict[str, Any], path: str = "/v1/completions", receive_buffer: int = 0) -> Streams:
    """Opens a connection and sends a request."""
    connection = socket.socket()
    connection.setblocking(False)
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=max(1024, receive_buffer or 65536))
    writer.write(request_bytes(body, path))
    await writer.drain()
    return reader, writer


async def ask(port: int, body: dict[str, Any], path: str = "/v1/completions") -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of a whole answer."""
    reader, writer = await send(port, body, path)
    try:
        return parse(await reader.read())
    finally:
        writer.close()


async def get(port: int, path: str) -> bytes:
    """The body of a GET."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return parse(answer)[2]


def parse(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """An answer's status (0 where there is none), headers and body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split(" ")[1]) if first else 0, headers, body


async def metrics(port: int) -> dict[str, float]:
    """Every sample of /metrics."""
    lines = (await get(port, "/metrics")).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}
