"""The block size that `octavo tune` found for a model on this machine, and what "auto" makes of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from octavo.loaders.model_cache import octavo_home, read_note, write_note
from octavo.native_library import best_instruction_set

DEFAULT_BLOCK_SIZE: Final = 64


@dataclass(frozen=True, slots=True)
class Tuning:
    """A block size and why it was taken."""

    block_size: int
    reason: str


def store_tuning(fingerprint: str, threads: int, tuning: Tuning, home: Path | None = None) -> Path:
    """Keeps a result under $OCTAVO_HOME for this model, CPU and number of threads; the file written."""
    path = _path(fingerprint, threads, home)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_note(path, asdict(tuning))
    return path


def stored_tuning(fingerprint: str, threads: int, home: Path | None = None) -> Tuning:
    """The result for this model, CPU and number of threads; else the default, with that as its reason."""
    note = read_note(_path(fingerprint, threads, home))
    if note is None:
        return Tuning(DEFAULT_BLOCK_SIZE, "the default: `octavo tune` has not run for this model on this machine")
    size, reason = note.get("block_size"), note.get("reason")
    if not isinstance(size, int) or size % 8 or not 8 <= size <= 256 or not isinstance(reason, str):
        return Tuning(DEFAULT_BLOCK_SIZE, "the default: the stored result of `octavo tune` cannot be read")
    return Tuning(size, reason)


def _path(fingerprint: str, threads: int, home: Path | None) -> Path:
    key = f"{fingerprint}\n{_cpu()}\n{best_instruction_set()}\n{threads}"
    return octavo_home(home) / "tuned" / f"{sha256(key.encode()).hexdigest()[:32]}.json"


def _cpu() -> str:
    """The CPU's name; empty where the system does not say it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return ""
