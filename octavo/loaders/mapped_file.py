"""A read-only memory map of a whole file."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from octavo.loaders.tensor_source import CheckpointError


def map_file(path: Path) -> NDArray[np.uint8]:
    """The bytes of `path` as a read-only uint8 array that keeps the map alive.

    Raises CheckpointError where the file is missing, unreadable, no regular file, or empty.
    """
    try:
        if not path.is_file():
            reason = "is not a regular file" if path.exists() else "does not exist"
            raise CheckpointError(f"{path}: {reason}")
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                raise CheckpointError(f"{path}: is empty")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    return np.frombuffer(mapped, dtype=np.uint8)
