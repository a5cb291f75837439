"""/metrics, /v1/kv/blocks, /v1/kv/events and the page's files, over HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from small_model import make_small_model
from support.running_server import Running, running, until

from octavo import AsyncLLM
from octavo.observe.block_map import BlockMap
from octavo.server import observe_routes
from octavo.server.observe_routes import PAGE_FILES, PAGE_PATHS

KEY = "secret-key"
WORK: dict[str, Any] = {"prompt": "the sea is wide", "max_tokens": 40, "ignore_eos": True, "n": 2, "temperature": 1}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The small model, slowed down to some 200 steps a second."""
    llm = AsyncLLM(str(make_model(tmp_path_factory)), block_size=8, kv_cache_memory="1MiB", threads=1)
    engine: Any = llm.loaded.engine
    step = engine.step

    def slow_step() -> Any:
        time.sleep(0.005)
        return step()

    engine.step = slow_step
    with running(llm) as server:
        yield server


def make_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small_model(tmp_path_factory.mktemp("routes") / "small")


def read_events(response: httpx2.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def start_work(server: Running, count: int = 1) -> list[threading.Thread]:
    threads = [threading.Thread(target=server.complete, kwargs={**WORK, "seed": number}) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_metrics_are_prometheus_text(server: Running) -> None:
    server.complete(**WORK)
    response = server.client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    names = {family.name for family in text_string_to_metric_families(response.text)}
    assert {"octavo_requests", "octavo_kv_blocks", "octavo_time_to_first_token_seconds", "octavo_preemptions"} <= names


def test_dashboard_asks_for_metrics_that_there_are(server: Running) -> None:
    dashboard = json.loads((Path(__file__).parents[2] / "docs" / "grafana" / "octavo.json").read_text())
    text = server.client.get("/metrics").text
    known = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(queries) >= 12
    for query in queries:
        names = {word for word in _words(query) if word.startswith(("octavo_", "process_"))}
        assert names, query
        for name in names:
            base = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            assert name in known or base in known, f"{query}: {name} is not there"


def _words(query: str) -> list[str]:
    return "".join(letter if letter.isalnum() or letter == "_" else " " for letter in query).split()


def test_blocks_show_running_requests(server: Running) -> None:
    (worker,) = start_work(server)
    until(lambda: server.llm.stats().shared_blocks > 0)
    body = server.client.get("/v1/kv/blocks").json()
    worker.join()
    (request,) = body["requests"]
    assert request["sequences"] == 2
    assert body["figures"]["running"] == 1
    assert body["figures"]["shared_blocks"] == sum(cell[1] > 1 for cell in body["blocks"]) > 0
    assert body["block_size"] == 8
    assert len(body["timeline"][-1]) == len(body["timeline_columns"])


def test_events_lead_from_the_snapshot_to_the_present(server: Running) -> None:
    known: dict[int, list[int]] = {}
    times: list[float] = []
    with server.client.stream("GET", "/v1/kv/events") as response:
        events = read_events(response)
        name, data = next(events)
        assert name == "snapshot"
        known.update({cell[0]: cell[1:] for cell in data["blocks"]})
        workers = start_work(server, 3)
        wanted = data["figures"]["generated_tokens"] + 3 * 2 * 40
        for name, data in events:
            assert name == "change"
            times.append(time.monotonic())
            known.update({cell[0]: cell[1:] for cell in data["blocks"]})
            if data["figures"]["running"] == 0 and data["figures"]["generated_tokens"] == wanted:
                break
    for worker in workers:
        worker.join()
    now = {cell[0]: cell[1:] for cell in server.client.get("/v1/kv/blocks").json()["blocks"]}
    assert {block: cell for block, cell in known.items() if cell[:2] != [0, 0]} == now
    assert len(times) <= (times[-1] - times[0]) * 10 + 2


def test_nobody_is_counted_or_served_after_leaving(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe_routes, "MOST_LISTENERS", 2)
    for _ in range(4):
        with (
            server.client.stream("GET", "/v1/kv/events") as one,
            server.client.stream("GET", "/v1/kv/events") as two,
        ):
            readers = [read_events(one), read_events(two)]  # a reader that is forgotten closes its stream
            assert [next(reader)[0] for reader in readers] == ["snapshot", "snapshot"]
            with server.client.stream("GET", "/v1/kv/events") as refused:
                assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        until(lambda: _opens(server))


def _opens(server: Running) -> bool:
    with server.client.stream("GET", "/v1/kv/events") as response:
        return response.status_code == 200


def test_idle_listener_makes_no_maps(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    init = BlockMap.__init__
    monkeypatch.setattr(BlockMap, "__init__", lambda self, taken: (made.append(taken), init(self, taken))[1])
    with server.client.stream("GET", "/v1/kv/events") as response:
        events = read_events(response)
        next(events)
        time.sleep(0.6)
        assert len(made) <= 1


@pytest.mark.parametrize("path", sorted(PAGE_PATHS))
def test_page_is_served_with_a_strict_policy(server: Running, path: str) -> None:
    response = server.client.get(path)
    assert response.status_code == 200
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert not any(word in response.text for word in ("<script>", " style=", " onclick=", "https://"))


def test_every_file_of_the_page_is_served_and_no_other(server: Running) -> None:
    folder = files("octavo.server") / "page"
    assert {entry.name for entry in folder.iterdir()} == set(PAGE_FILES)
    for name in ("nothing.js", "..%2fapp.py", "%2e%2e/app.py"):
        assert server.client.get(f"/page/{name}").status_code == 404


def test_data_needs_the_key_and_the_shell_does_not(tmp_path_factory: pytest.TempPathFactory) -> None:
    llm = AsyncLLM(str(make_model(tmp_path_factory)), block_size=8, kv_cache_memory="64KiB", threads=1)
    with running(llm, api_keys=(KEY,)) as server:
        for path in ("/metrics", "/v1/kv/blocks", "/v1/kv/events"):
            assert server.client.get(path).status_code == 401
        for path in sorted(PAGE_PATHS):
            assert server.client.get(path).status_code == 200
        response = server.client.get("/v1/kv/blocks", headers={"Authorization": f"Bearer {KEY}"})
        assert response.status_code == 200


def test_listeners_do_not_hold_the_shutdown_up(tmp_path_factory: pytest.TempPathFactory) -> None:
    llm = AsyncLLM(str(make_model(tmp_path_factory)), block_size=8, kv_cache_memory="64KiB", threads=1)
    with running(llm) as server, server.client.stream("GET", "/v1/kv/events") as response:
        events = read_events(response)
        next(events)
        server.server._context.drain()
        server.server.stop()
        assert list(events) == []
        server.thread.join(timeout=5)
        assert not server.thread.is_alive()
