"""Model directories with random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from random_directory import make_random_directory

MakeDirectory = Callable[..., Path]


@pytest.fixture
def random_model(tmp_path: Path) -> MakeDirectory:
    """Makes a directory of a family in tmp_path/FAMILY."""

    def make(family: str, **changes: Any) -> Path:
        return make_random_directory(tmp_path / family, family, **changes)

    return make
