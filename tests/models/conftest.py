"""Opens the small models in tests/models/data."""

from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.loaders.checkpoint import Checkpoint, open_checkpoint

DATA = Path(__file__).parent / "data"


@pytest.fixture
def open_model() -> Callable[[str], Checkpoint]:
    """Name of a directory in data -> checkpoint."""
    return lambda name: open_checkpoint(DATA / name)
