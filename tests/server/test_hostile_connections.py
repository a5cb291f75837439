"""Clients that speak HTTP badly, slowly or without end: each is answered or cut in time, and the next one is served."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.running_server import Running, until

POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
GOOD = b'{"prompt": "hello", "max_tokens": 9}'
SHORT = 0.3


@pytest.fixture
def server(fake: Callable[..., Running]) -> Iterator[Running]:
    """Short of patience; afterwards nothing runs and the next request is right."""
    server = fake(head_seconds=SHORT, body_seconds=SHORT, keep_alive_seconds=SHORT)
    yield server
    engine: Any = server.llm.loaded.engine
    until(lambda: not engine.running)
    until(lambda: not server.server.server_state.connections or server.complete(prompt="x").status_code == 200)
    assert server.complete(prompt="hello", max_tokens=9).json()["choices"][0]["text"] == "HELLO"


def post(body: bytes = GOOD, *headers: bytes) -> bytes:
    """A whole request."""
    return POST + b"".join(line + b"\r\n" for line in headers) + b"Content-Length: %d\r\n\r\n" % len(body) + body


def connect(server: Running, data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connection.sendall(data)
    return connection


def read_to_the_end(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    finally:
        connection.close()
    return data


def exchange(server: Running, data: bytes) -> bytes:
    """All that the server says to these bytes."""
    return read_to_the_end(connect(server, data))


def statuses(answer: bytes) -> list[int]:
    """Of all answers on one connection."""
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


def test_a_head_that_comes_byte_by_byte_is_cut(server: Running) -> None:
    connection = connect(server)
    started = time.monotonic()
    connection.settimeout(0.02)
    answer = b""
    for letter in POST * 100:
        try:
            connection.sendall(bytes([letter]))
            answer = connection.recv(1000)
            break
        except TimeoutError:
            continue
    assert statuses(answer) == [408]
    assert json.loads(answer.split(b"\r\n\r\n")[1])["error"]["code"] == "head_timeout"
    assert time.monotonic() - started < 5
    connection.close()


def test_a_silent_connection_is_closed_without_a_word(server: Running) -> None:
    assert exchange(server, b"") == b""


def test_an_idle_connection_is_closed_after_its_answer(server: Running) -> None:
    assert statuses(exchange(server, post())) == [200]


def test_a_second_head_must_come_in_time_too(server: Running) -> None:
    connection = connect(server, post())
    assert statuses(connection.recv(65536)) == [200]
    connection.sendall(b"GET /health/live HTTP/1.1\r\nX: ")
    assert statuses(read_to_the_end(connection)) == [408]


def test_a_body_that_stops_is_cut(server: Running) -> None:
    assert statuses(exchange(server, POST + b"Content-Length: 100\r\n\r\n{")) == [408]
    assert statuses(exchange(server, POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{")) == [408]


@pytest.mark.parametrize("head", [b"GET /health/live", b"POST /nowhere", b"DELETE /v1/models", b"POST /health/live"])
def test_a_body_that_nobody_wants_does_not_hold_the_connection(server: Running, head: bytes) -> None:
    """Answered at once; what still comes is dropped for a while, then the connection is."""
    connection = connect(server, head + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert statuses(connection.recv(65536))[0] in (200, 404, 405)
    with pytest.raises(OSError):
        for _ in range(1000):
            connection.sendall(b"1\r\nx\r\n")
            time.sleep(0.01)
    connection.close()


def test_a_body_without_end_is_refused(fake: Callable[..., Running]) -> None:
    server = fake(max_body_bytes=100_000)
    connection = connect(server, POST + b"Transfer-Encoding: chunked\r\n\r\n")
    deadline = time.monotonic() + 60
    with pytest.raises(OSError):
        while time.monotonic() < deadline:
            connection.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
    assert 413 in statuses(read_to_the_end(connection))
    assert server.complete(prompt="hello", max_tokens=9).status_code == 200


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((b"Content-Length: 5",), [400]),  # too short: the body is no JSON, and its rest is no request
        ((b"Content-Length: 1000",), [408]),
        ((b"Content-Length: -1",), [400]),
        ((b"Content-Length: x",), [400]),
        ((b"Content-Length: 1e3",), [400]),
        ((b"Content-Length: " + b"9" * 30,), [400]),
        ((b"Content-Length: 99999999999999999999",), [413]),
        ((b"Content-Length: 36", b"Content-Length: 5"), [400]),
        ((b"Content-Length: 36", b"Transfer-Encoding: chunked"), [408]),  # the chunks count, and these are none
        ((b"Transfer-Encoding: gzip",), [501, 400]),
        ((), [400]),
    ],
)
def test_lengths_that_lie(server: Running, lengths: tuple[bytes, ...], expected: list[int]) -> None:
    answer = statuses(exchange(server, POST + b"\r\n".join((*lengths, b"", b"")) + GOOD))
    assert answer and answer[0] in expected


def test_a_client_that_leaves_inside_its_body(server: Running) -> None:
    for cut in (1, 20, 35):
        connect(server, post()[: -len(GOOD)] + GOOD[:cut]).close()


def test_requests_may_come_ahead(server: Running) -> None:
    other = b'{"prompt": "bye", "max_tokens": 9}'
    answer = exchange(server, post() + post(other) + b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    assert statuses(answer) == [200, 200, 200]
    assert answer.index(b"HELLO") < answer.index(b"BYE") < answer.index(b'"live"')


def test_who_sent_more_ahead_is_seen_to_leave(server: Running) -> None:
    engine: Any = server.llm.loaded.engine
    engine.before_step = lambda: time.sleep(0.001)
    connection = connect(server, post(b'{"prompt": "long", "max_tokens": 100000, "ignore_eos": true}') + b"GET ")
    until(lambda: bool(engine.running))
    connection.sendall(b"/ HTTP/1.1")
    time.sleep(0.05)
    connection.close()
    until(lambda: not engine.running)
    assert engine.generated < 3000


def test_a_flood_behind_a_request_is_not_taken_in(server: Running) -> None:
    engine: Any = server.llm.loaded.engine
    engine.gate.clear()
    connection = connect(server, post())
    until(lambda: bool(engine.running))
    connection.settimeout(0.5)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 200 * 2**20:
            sent += connection.send(b"x" * 65536)
    engine.gate.set()
    connection.settimeout(10)
    assert statuses(read_to_the_end(connection))[0] == 200


@pytest.mark.parametrize("garbage", [b"\r\n", b"x" * 1000])
def test_what_follows_the_last_request_is_nobodys(server: Running, garbage: bytes) -> None:
    assert statuses(exchange(server, post(GOOD, b"Connection: close") + garbage)) == [200]


@pytest.mark.parametrize(
    "kind",
    [
        b"",
        b"text/plain",
        b"text/json",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=x",
        b"\xff",
    ],
)
def test_other_content_types_are_refused(server: Running, kind: bytes) -> None:
    header = b"Content-Type: " + kind + b"\r\n" if kind else b""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + header
    assert statuses(exchange(server, head + b"Content-Length: 36\r\n\r\n" + GOOD)) in ([415], [400])


def test_json_may_say_its_charset(server: Running) -> None:
    answer = exchange(server, post().replace(b"application/json", b'Application/JSON; charset="utf-8"'))
    assert statuses(answer) == [200]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % place for place in range(100_000)),
        b"GET /" + b"a" * 100_000,
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"\x00" * 1000,
        b"hello\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 100_000,
        POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\nx",
    ],
    ids=lambda data: repr(data[:60]),
)
def test_what_is_not_http_is_refused(server: Running, data: bytes) -> None:
    answer = exchange(server, data)
    assert statuses(answer) == [400]
    assert set(json.loads(answer.split(b"\r\n\r\n")[1])["error"]) == {"message", "type", "param", "code"}


def test_a_refused_client_may_go_on_sending_for_a_moment(server: Running) -> None:
    """Else its connection would be reset, and the answer with it."""
    connection = connect(server, b"hello\r\n\r\n")
    time.sleep(0.1)
    for _ in range(10):
        connection.sendall(b"x" * 100_000)
    assert statuses(read_to_the_end(connection)) == [400]


def test_a_refused_client_that_does_not_leave_is_cut(server: Running) -> None:
    connection, started = connect(server, b"hello\r\n\r\n"), time.monotonic()
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        while time.monotonic() - started < 8:
            connection.sendall(b"x")
            time.sleep(0.02)
    assert time.monotonic() - started < 5
    connection.close()


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"BREW /v1/models", 405),
        (b"GET /v1/models/%00%ff%2e%2e%2f", 404),
        (b"GET /page/..%2f..%2fetc%2fpasswd", 404),
        (b"GET //////", 404),
        (b"GET http://elsewhere/v1/models", 404),
        (b"OPTIONS *", 404),
        (b"HEAD /v1/models", 405),
    ],
)
def test_odd_paths_and_methods_are_answered(server: Running, head: bytes, expected: int) -> None:
    assert statuses(exchange(server, head + b" HTTP/1.1\r\nHost: x\r\n\r\n")) == [expected]


def test_other_versions_are_answered_in_this_one(server: Running) -> None:
    assert statuses(exchange(server, b"GET /health/live HTTP/9.9\r\nHost: x\r\n\r\n")) == [200]
    assert statuses(exchange(server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) == [404, 400]
    old = exchange(server, b"GET /health/live HTTP/1.0\r\n\r\n")
    assert statuses(old) == [200]


def test_an_upgrade_is_not_followed(server: Running) -> None:
    head = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert statuses(exchange(server, head)) == [200]


def test_many_headers_within_the_limit_are_read(server: Running) -> None:
    headers = [b"X-%d: y" % place for place in range(2000)]
    assert statuses(exchange(server, post(GOOD, *headers))) == [200]


def test_a_stream_whose_body_goes_on_is_cut(server: Running) -> None:
    """The body's second part is no chunk: the connection is of no more use."""
    body = b"24\r\n" + GOOD + b"\r\n"
    assert statuses(exchange(server, POST + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"nonsense\r\n")) == [400]


def test_connections_are_bounded(fake: Callable[..., Running]) -> None:
    server = fake(max_connections=3)
    state = server.server.server_state
    held = [connect(server) for _ in range(3)]
    until(lambda: len(state.connections) == 3)
    answer = exchange(server, b"")
    assert statuses(answer) == [503]
    assert b"which is the limit" in answer
    for connection in held:
        connection.close()
    until(lambda: not state.connections)
    assert server.complete(prompt="hello", max_tokens=9).status_code == 200
    assert 'octavo_http_requests_total{route="connections",status="503"} 1' in server.client.get("/metrics").text
