"""The real models, where they are on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.loaders.aliases import ALIASES
from octavo.loaders.hub import octavo_home


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_model: needs a real model's file under $OCTAVO_HOME; skipped without")


@pytest.fixture
def real_model() -> Callable[[str], Path]:
    """Finds an alias's file in the cache, and skips the test where it is not there; never fetches."""

    def find(alias: str) -> Path:
        path = octavo_home() / "models" / ALIASES[alias].filename
        if not path.exists():
            pytest.skip(f"{path} is not there")
        return path

    return find
