"""Servers over the small model and over a fake one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from fake_model import make_fake_model
from small_model import make_small_model
from support.running_server import Client, Running, running

from octavo import AsyncLLM
from octavo.bench.server_process import ServerProcess
from octavo.loaders.aliases import ALIASES
from octavo.loaders.hub import octavo_home


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The small model: single letters, contexts of 64 tokens."""
    model = make_small_model(tmp_path_factory.mktemp("small"))
    llm = AsyncLLM(str(model), dtype="float32", kv_cache_memory="256KiB", block_size=8, executor="reference")
    with running(llm) as server:
        yield server


@pytest.fixture(scope="session")
def real() -> Iterator[Client]:
    """A process that serves a real model, under the name smollm2."""
    path = octavo_home() / "models" / ALIASES["smollm2"].filename
    if not path.exists():
        pytest.skip(f"{path} is not there")
    options = ("--served-model-name", "smollm2", "--kv-cache-memory", "256MiB", "--max-queued-requests", "64")
    with (
        ServerProcess(str(path), *options) as server,
        httpx2.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=120) as client,
    ):
        yield Client(server.port, client)


@pytest.fixture
def fake() -> Iterator[Callable[..., Running]]:
    """Makes servers over a model that answers with its prompt in capitals: fake(answer, **options)."""
    made: list[Any] = []
    engines: list[Any] = []

    def make(answer: Any = None, **options: Any) -> Running:
        model = make_fake_model() if answer is None else make_fake_model(answer)
        engines.append(model.engine)
        made.append(running(AsyncLLM.from_loaded(model), **options))
        return made[-1].__enter__()

    yield make
    for engine in engines:
        engine.gate.set()
    for server in made:
        server.__exit__(None, None, None)
