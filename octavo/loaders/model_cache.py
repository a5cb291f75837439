"""Files in the model cache: where it is, which files in it are known to be whole, and who may write to it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

_CHUNK_BYTES: Final = 1 << 20


class PullError(OSError):
    """A model could not be found or fetched. The message says what was tried and why each try failed."""


def octavo_home(home: Path | None = None) -> Path:
    """`home`, else $OCTAVO_HOME, else ~/.cache/octavo."""
    return (home or Path(os.environ.get("OCTAVO_HOME") or "~/.cache/octavo")).expanduser()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _note_path(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def is_whole(path: Path, size: int, digest: str) -> bool:
    """Whether `path` is the file of that size and SHA-256.

    A file that has been checked is not read again: a note beside it keeps its size, time and hash.
    """
    try:
        stat = path.stat()
    except OSError:
        return False
    if stat.st_size != size:
        return False
    if read_note(_note_path(path)) == {"size": size, "mtime_ns": stat.st_mtime_ns, "sha256": digest}:
        return True
    if file_sha256(path) != digest:
        return False
    note_whole(path, digest)
    return True


def note_whole(path: Path, digest: str) -> None:
    """Writes the note that `path` has been checked. Where the cache cannot be written, it will be checked
    again."""
    stat = path.stat()
    note = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": digest}
    with suppress(OSError):
        write_note(_note_path(path), note)


def read_note(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`; None where there is none."""
    try:
        note = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) else None


def write_note(path: Path, note: dict[str, Any]) -> None:
    """Writes a JSON object, atomically."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(note))
    temporary.replace(path)


def require_space(directory: Path, needed: int) -> None:
    """Raises PullError unless `directory` has `needed` bytes free."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise PullError(f"{directory} has {free / 1e6:.0f} MB free, {needed / 1e6:.0f} MB are needed")


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds the lock file `path`, which is made where it is absent, and never removed: another may wait for
    it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if sys.stderr.isatty():
                print(f"waiting for another process that holds {path}", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
