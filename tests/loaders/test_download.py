from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hub_server import Hub, running_hub

from octavo.loaders import download as module
from octavo.loaders.download import RemoteFile, download
from octavo.loaders.model_cache import PullError

DATA = random.Random(1).randbytes(1_000_000)
DIGEST = sha256(DATA).hexdigest()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    with running_hub() as hub:
        hub.files["/f"] = DATA
        yield hub


def _remote(hub: Hub, path: str = "/f", digest: str | None = DIGEST, token: str | None = None) -> RemoteFile:
    return RemoteFile(hub.url + path, len(DATA), digest, token)


def test_a_file_arrives_whole(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "f"
    assert download(_remote(hub), target) == DIGEST
    assert target.read_bytes() == DATA
    assert [path.name for path in target.parent.iterdir()] == ["f"]
    assert capsys.readouterr().err == ""  # no bar: this is no terminal


def test_a_broken_connection_is_taken_up_where_it_ended(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after = [300_000, 100_000]
    download(_remote(hub), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == DATA
    assert [asked for _, asked, _ in hub.requests] == [None, "bytes=300000-", "bytes=400000-"]


def test_a_part_of_an_earlier_process_is_used(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(DATA[:700_000])
    download(_remote(hub), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == DATA
    assert hub.requests[0][1] == "bytes=700000-"


def test_a_part_that_is_already_whole_needs_no_request(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(DATA)
    download(_remote(hub), tmp_path / "f")
    assert hub.requests == []


@pytest.mark.parametrize("part", [b"something else" * 100, DATA + b"more"])
def test_a_part_of_something_else_is_fetched_anew(hub: Hub, tmp_path: Path, part: bytes) -> None:
    (tmp_path / "f.part").write_bytes(part)
    download(_remote(hub), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == DATA


def test_a_server_without_ranges_starts_over(hub: Hub, tmp_path: Path) -> None:
    hub.ignore_ranges = True
    (tmp_path / "f.part").write_bytes(DATA[:700_000])
    download(_remote(hub), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == DATA


def test_a_file_of_unknown_hash_is_never_joined_from_two_answers(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(b"old")
    hub.cut_after = [300_000]
    assert download(_remote(hub, digest=None), tmp_path / "f") == DIGEST
    assert [asked for _, asked, _ in hub.requests] == [None, None]


def test_a_connection_that_always_breaks_is_given_up(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after = [0] * 100
    with pytest.raises(PullError, match=r"gave up after repeated attempts: .*0 of 1000000 bytes"):
        download(_remote(hub), tmp_path / "f")
    assert len(hub.requests) == module.ATTEMPTS
    assert not (tmp_path / "f").exists()


def test_another_content_is_refused_and_removed(hub: Hub, tmp_path: Path) -> None:
    hub.files["/f"] = bytes(len(DATA))
    with pytest.raises(PullError, match=rf"has the SHA-256 .* expected {DIGEST}"):
        download(_remote(hub), tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


def test_more_bytes_than_expected_are_refused(hub: Hub, tmp_path: Path) -> None:
    hub.files["/f"] = DATA + b"x"
    with pytest.raises(PullError, match=r"sends more than the expected 1000000 bytes"):
        download(_remote(hub), tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_missing_files_and_unreachable_hosts_are_said_so(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(PullError, match=r"/g: HTTP 404"):
        download(_remote(hub, "/g"), tmp_path / "f")
    with pytest.raises(PullError, match=r"http://127.0.0.1:1/f: not reachable"):
        download(RemoteFile("http://127.0.0.1:1/f", None, None), tmp_path / "f")


def test_the_hub_is_believed_that_it_has_another_file(hub: Hub, tmp_path: Path) -> None:
    hub.redirects["/r"] = (hub.url + "/f", {"X-Linked-Etag": f'"{"0" * 64}"'})
    with pytest.raises(PullError, match=r"has the SHA-256 0000"):
        download(_remote(hub, "/r"), tmp_path / "f")
    assert [path for path, *_ in hub.requests] == ["/r"]
    hub.redirects["/r"] = (hub.url + "/f", {"X-Linked-Etag": f'"{DIGEST}"'})
    assert download(_remote(hub, "/r"), tmp_path / "f") == DIGEST


def test_a_token_does_not_follow_to_another_host(hub: Hub, tmp_path: Path) -> None:
    with running_hub() as other:
        other.files["/f"] = DATA
        hub.redirects["/r"] = (other.url + "/f", {})
        hub.redirects["/s"] = ("/f", {})
        download(_remote(hub, "/r", token="secret"), tmp_path / "f")
        download(_remote(hub, "/s", token="secret"), tmp_path / "g")
    assert [sent for _, _, sent in hub.requests] == ["Bearer secret"] * 3
    assert [sent for _, _, sent in other.requests] == [None]


def test_a_full_disk_is_noticed_before(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(PullError, match=r"MB free, 1\d+ MB are needed"):
        download(RemoteFile(hub.url + "/f", 1 << 60, DIGEST), tmp_path / "f")
    assert hub.requests == []
