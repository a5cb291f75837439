"""Repositories of the model hub: their file lists, and what of them a model needs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from octavo.loaders.aliases import HubFile
from octavo.loaders.download import RemoteFile, download, open_url
from octavo.loaders.model_cache import PullError, read_note, write_note

DEFAULT_ENDPOINT: Final = "https://huggingface.co"
MAX_LISTING_BYTES: Final = 1 << 25
_NOTE: Final = ".octavo.json"
_REVISION: Final = re.compile(r"[0-9a-f]{40,64}")
_WEIGHTS: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_BESIDE_WEIGHTS: Final = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
)


def endpoint() -> str:
    """The hub's base URL: $HF_ENDPOINT, else the public one."""
    url = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    if not url.startswith(("https://", "http://")):
        raise PullError(f"HF_ENDPOINT is {url!r}, it must begin with https:// or http://")
    return url


def remote_file(file: HubFile, size: int | None, digest: str | None) -> RemoteFile:
    """Where `file` can be fetched. $HF_TOKEN is sent along, for repositories that need it."""
    url = f"{endpoint()}/{file.repository}/resolve/{file.revision}/{quote(file.filename)}"
    return RemoteFile(url, size, digest, os.environ.get("HF_TOKEN"))


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository's files at one revision."""

    repository: str
    revision: str
    files: dict[str, tuple[int | None, str | None]]
    """name -> (size, SHA-256), each where the hub knows it"""

    def remote(self, name: str) -> RemoteFile:
        """Where the file can be fetched."""
        return remote_file(HubFile(self.repository, self.revision, name), *self.files[name])


def list_repository(repository: str) -> Listing:
    """The files of the default branch, now. Raises PullError."""
    url = f"{endpoint()}/api/models/{repository}?blobs=true"
    try:
        with open_url(RemoteFile(url, None, None, os.environ.get("HF_TOKEN"))) as response:
            data = response.read(MAX_LISTING_BYTES + 1)
        document = json.loads(data)
        revision = document["sha"]
        files = dict(_entries(document["siblings"]))
    except PullError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PullError(f"{url}: is no listing of a repository: {error!r}") from None
    except Exception as error:
        raise PullError(f"{url}: not reachable: {error}") from None
    if not isinstance(revision, str) or not _REVISION.fullmatch(revision):
        raise PullError(f"{url}: is no listing of a repository: its revision is {revision!r}")
    return Listing(repository, revision, files)


def _entries(siblings: list[dict[str, Any]]) -> Iterator[tuple[str, tuple[int | None, str | None]]]:
    for sibling in siblings:
        name, size = sibling["rfilename"], sibling.get("size")
        digest = (sibling.get("lfs") or {}).get("sha256")
        # A name from outside becomes a path here: only plain relative ones.
        if isinstance(name, str) and is_plain_path(name):
            known = isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest)
            yield name, (size if isinstance(size, int) else None, digest if known else None)


def is_plain_path(name: str) -> bool:
    """Whether every part of `name` is an ordinary file name, so that it stays below its folder."""
    parts = name.split("/")
    return all(part not in ("", ".", "..") and "\\" not in part and "\0" not in part for part in parts)


def is_complete(folder: Path) -> bool:
    """Whether `folder` holds a model that `fetch_repository` has finished, unchanged since."""
    note = read_note(folder / _NOTE)
    files = note.get("files") if note else None
    if not isinstance(files, dict) or not files:
        return False
    try:
        return all(_mark(folder / name) == mark for name, mark in files.items())
    except OSError:
        return False


def _mark(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def fetch_repository(repository: str, folder: Path, progress: bool) -> None:
    """Fetches configuration, tokenizer and safetensors weights into `folder`; what is there already is kept.

    Raises PullError, also where the repository has no such model.
    """
    listing = list_repository(repository)
    names = [name for name in _BESIDE_WEIGHTS if name in listing.files]
    if "config.json" not in names or not (_WEIGHTS in listing.files or _INDEX in listing.files):
        ggufs = [name for name in listing.files if name.endswith(".gguf")]
        hint = f"; name one of its files, such as {repository}:{ggufs[0]}" if ggufs else ""
        raise PullError(f"{repository} has no config.json with safetensors weights{hint}")
    marks: dict[str, list[int]] = {}
    for name in [*names, *_weight_names(listing, folder, progress)]:
        target = folder / name
        size, digest = listing.files[name]
        if digest is None or not _is_kept(target, size, digest):
            digest = download(listing.remote(name), target, progress)
            write_note(target.with_name(f".{target.name}.json"), {"mark": _mark(target), "sha256": digest})
        marks[name] = _mark(target)
    write_note(folder / _NOTE, {"repository": repository, "revision": listing.revision, "files": marks})


def _is_kept(target: Path, size: int | None, digest: str) -> bool:
    """Whether an earlier, interrupted call has fetched this very file."""
    note = read_note(target.with_name(f".{target.name}.json"))
    return (
        target.exists()
        and note is not None
        and note.get("sha256") == digest
        and note.get("mark") == _mark(target)
        and size in (None, target.stat().st_size)
    )


def _weight_names(listing: Listing, folder: Path, progress: bool) -> list[str]:
    if _WEIGHTS in listing.files:
        return [_WEIGHTS]
    download(listing.remote(_INDEX), folder / _INDEX, progress)
    try:
        weight_map = json.loads((folder / _INDEX).read_bytes())["weight_map"]
        shards = sorted(set(weight_map.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PullError(f"{listing.repository}: {_INDEX} is malformed: {error!r}") from None
    if missing := [name for name in shards if name not in listing.files]:
        raise PullError(f"{listing.repository}: {_INDEX} names {missing[0]!r}, which the repository does not have")
    return [_INDEX, *shards]
