"""JSON from untrusted files: an object, without duplicate keys, of a limited size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from octavo.loaders.tensor_source import CheckpointError

MAX_JSON_BYTES: Final = 1 << 26


def read_json_file(path: Path) -> tuple[dict[str, Any], bytes]:
    """The object in `path`, and its bytes. Raises CheckpointError where it is missing, too large or
    malformed."""
    try:
        if not path.is_file():
            raise CheckpointError(f"{path}: {'is not a regular file' if path.exists() else 'does not exist'}")
        if (size := path.stat().st_size) > MAX_JSON_BYTES:
            raise CheckpointError(f"{path}: has {size} bytes, the limit is {MAX_JSON_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    return parse_object(data, path), data


def parse_object(data: bytes, where: object) -> dict[str, Any]:
    """The JSON object in `data`. Raises CheckpointError with `where` on anything else."""

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise CheckpointError(f"{where}: the key {key[:80]!r} appears twice")
            found[key] = value
        return found

    try:
        value = json.loads(data.decode(), object_pairs_hook=no_duplicates)
    except CheckpointError:
        raise
    except RecursionError:
        raise CheckpointError(f"{where}: nests too deep") from None
    except ValueError as error:  # malformed JSON, text that is no UTF-8, or an integer of absurd length
        raise CheckpointError(f"{where}: is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: holds a JSON {type(value).__name__}, it must be an object")
    return value
