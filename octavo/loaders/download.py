"""One file by HTTP: resumed where it was cut off, its size and SHA-256 checked, a bar on a terminal."""

from __future__ import annotations

import http.client
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tqdm import tqdm

from octavo import __version__
from octavo.loaders.model_cache import PullError, file_sha256, require_space

TIMEOUT_SECONDS: Final = 20.0
ATTEMPTS: Final = 4
"""in a row without a new byte"""
MAX_CONNECTIONS: Final = 50
PAUSE_SECONDS: Final = 0.5
_CHUNK_BYTES: Final = 1 << 18
_SHA256: Final = re.compile(r'"?([0-9a-f]{64})"?')


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """What is to be fetched, and what is known about it."""

    url: str
    size: int | None
    """bytes; None where it is not known"""
    sha256: str | None
    token: str | None = None
    """sent as a bearer token to the URL's own host"""


class _CutOff(Exception):
    """The connection ended early; what has come is kept."""


class _RangeRefused(_CutOff):
    """The file at the other end is shorter than what has come."""


def progress_bar(label: str, total: int | None, enabled: bool) -> tqdm[Any]:
    """A bar that counts bytes, shown on a terminal only."""
    hidden = not (enabled and sys.stderr.isatty())
    return tqdm(desc=label, total=total, unit="B", unit_scale=True, unit_divisor=1000, disable=hidden)


def open_url(remote: RemoteFile, start: int = 0) -> AbstractContextManager[Any]:
    """The response to a GET of the bytes from `start` on. Raises PullError in words, OSError for a lost
    connection."""
    headers = {"User-Agent": f"octavo/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    if remote.token:
        headers["Authorization"] = f"Bearer {remote.token}"
    try:
        opener = build_opener(_Redirects(remote.sha256))
        response: AbstractContextManager[Any] = opener.open(
            Request(remote.url, headers=headers), timeout=TIMEOUT_SECONDS
        )
        return response
    except HTTPError as error:
        error.close()
        if error.code == 416:
            raise _RangeRefused(f"{remote.url}: HTTP 416: has no byte {start}") from None
        if error.code >= 500 or error.code in (408, 429):
            raise _CutOff(f"{remote.url}: HTTP {error.code} {error.reason}") from None
        hint = " (a token in HF_TOKEN may be needed)" if error.code in (401, 403) else ""
        raise PullError(f"{remote.url}: HTTP {error.code} {error.reason}{hint}") from None
    except URLError as error:
        if isinstance(error.reason, PullError):
            raise error.reason from None
        raise PullError(f"{remote.url}: not reachable: {error.reason}") from None


class _Redirects(HTTPRedirectHandler):
    """Keeps the token from other hosts, and stops early where the hub says that it has another file."""

    def __init__(self, digest: str | None) -> None:
        self._digest = digest

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> Request | None:
        """The request to `newurl`."""
        linked = _SHA256.fullmatch(headers.get("X-Linked-Etag", ""))
        if self._digest and linked and linked[1] != self._digest:
            raise PullError(f"{req.full_url}: has the SHA-256 {linked[1]}, expected {self._digest}")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is None:
            return None
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if old.scheme == "https" and new.scheme != "https":
            raise PullError(f"{req.full_url}: redirects to {new.scheme}, only https is followed")
        if old.netloc != new.netloc:
            request.remove_header("Authorization")
        return request


def download(remote: RemoteFile, target: Path, progress: bool = True) -> str:
    """Fetches `remote` into `target`, atomically, and returns its SHA-256.

    `target`.part keeps what has come; a later call goes on from there if the hash of the whole is known.
    Only one process at a time may fetch into the same target. Raises PullError, with the URL, where it fails
    in the end.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    if remote.sha256 is None:
        part.unlink(missing_ok=True)
    require_space(target.parent, (remote.size or 0) - (part.stat().st_size if part.exists() else 0))
    resumed = part.exists()
    with progress_bar(target.name, remote.size, progress) as bar:
        _fetch(remote, part, bar)
        digest = file_sha256(part)
        if resumed and digest != remote.sha256:  # what was there belonged to something else: once more from the start
            part.unlink()
            bar.reset()
            _fetch(remote, part, bar)
            digest = file_sha256(part)
    if remote.sha256 and digest != remote.sha256:
        part.unlink()
        raise PullError(f"{remote.url}: has the SHA-256 {digest}, expected {remote.sha256}")
    part.replace(target)
    return digest


def _fetch(remote: RemoteFile, part: Path, bar: tqdm[Any]) -> None:
    """Makes `part` complete: goes on where the connection breaks, unless that happens again and again."""
    failures = 0
    for _ in range(MAX_CONNECTIONS):
        before = part.stat().st_size if part.exists() else 0
        if remote.size is not None and before == remote.size:
            bar.update(remote.size - bar.n)
            return
        try:
            _fetch_once(remote, part, before, bar)
            return
        except (_CutOff, TimeoutError, ConnectionError, http.client.HTTPException) as error:
            reason: Exception = error
        # Without a hash there is no telling whether the rest would belong to it.
        if remote.sha256 is None or isinstance(reason, _RangeRefused):
            part.unlink(missing_ok=True)
        after = part.stat().st_size if part.exists() else 0
        failures = 0 if after > before else failures + 1
        if failures >= ATTEMPTS:
            break
        time.sleep(failures * PAUSE_SECONDS)
    raise PullError(f"{remote.url}: gave up after repeated attempts: {reason}")


def _fetch_once(remote: RemoteFile, part: Path, start: int, bar: tqdm[Any]) -> None:
    if remote.size is not None and start > remote.size:
        part.unlink()
        start = 0
    with open_url(remote, start) as response:
        if start and not _continues(response, start):
            start = 0
        bar.update(start - bar.n)
        with part.open("ab" if start else "wb") as file:
            _copy(response.read, file.write, remote, bar, start)
            file.flush()
            os.fsync(file.fileno())
    size = remote.size
    if size is None and response.headers.get("Content-Length", "").isdigit():
        size = start + int(response.headers["Content-Length"])
    if size is not None and (got := part.stat().st_size) < size:
        raise _CutOff(f"the connection ended after {got} of {size} bytes")


def _copy(
    read: Callable[[int], bytes],
    write: Callable[[bytes], Any],
    remote: RemoteFile,
    bar: tqdm[Any],
    received: int,
) -> None:
    while chunk := read(_CHUNK_BYTES):
        received += len(chunk)
        if remote.size is not None and received > remote.size:
            raise PullError(f"{remote.url}: sends more than the expected {remote.size} bytes")
        write(chunk)
        bar.update(len(chunk))


def _continues(response: Any, start: int) -> bool:
    """Whether the response is the rest from byte `start` on, and not the whole."""
    return response.status == 206 and str(response.headers.get("Content-Range")).startswith(f"bytes {start}-")
