"""An engine over a small real model, to look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_model import make_small_model

from octavo import AsyncLLM
from octavo.config import EngineOptions
from octavo.engine.engine import Engine
from octavo.loading import load


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small_model(tmp_path_factory.mktemp("observe") / "small")


@pytest.fixture
def engine(small_model: Path) -> Iterator[Engine]:
    """40 blocks of 8 tokens, contexts of up to 64."""
    loaded = load(EngineOptions(model=str(small_model), block_size=8, kv_cache_memory="160KiB", threads=1))
    yield loaded.engine
    loaded.close()


@pytest.fixture
def llm(small_model: Path) -> Iterator[AsyncLLM]:
    llm = AsyncLLM(str(small_model), block_size=8, kv_cache_memory="160KiB", threads=1)
    yield llm
    llm.close()
