"""What is written is read back the same; what cannot be written leaves nothing behind."""

from __future__ import annotations

import shutil
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loader_files import gguf_bytes, llama_keys, llama_tensors

from octavo.loaders.dequantize import BLOCK_FORMATS
from octavo.loaders.gguf import read_gguf
from octavo.loaders.gguf_writer import (
    NewTensor,
    copied_metadata,
    decoded_metadata,
    numbers,
    scalar,
    text,
    texts,
    write_gguf,
)
from octavo.loaders.tensor_source import byte_size

KINDS = st.sampled_from(sorted(BLOCK_FORMATS))


def _tensor(name: str, kind: str, shape: tuple[int, ...], seed: int = 0) -> NewTensor:
    data = np.random.default_rng(seed).integers(0, 256, byte_size(kind, shape), dtype=np.uint8)
    return NewTensor(name, shape, kind, lambda: np.array_split(data, 3))


def test_metadata_of_every_kind_is_read_back() -> None:
    metadata = {
        "u": scalar("u32", 4_000_000_000),
        "i": scalar("i32", -5),
        "l": scalar("u64", 1 << 40),
        "f": scalar("f32", 0.5),
        "b": scalar("bool", True),
        "t": text("héllo"),
        "ts": texts(["", "a", "日本"]),
        "fs": numbers(np.array([1.5, -2], np.float32)),
        "is": numbers(np.array([1, -2], np.int32)),
        "bs": numbers(np.array([True, False])),
    }
    read = decoded_metadata(metadata)
    assert {key: read[key] for key in "uilfbt"} == {
        "u": 4_000_000_000,
        "i": -5,
        "l": 1 << 40,
        "f": 0.5,
        "b": True,
        "t": "héllo",
    }
    assert [list(read[key]) for key in ("ts", "fs", "is", "bs")] == [  # type: ignore[arg-type]
        ["", "a", "日本"],
        [1.5, -2.0],
        [1, -2],
        [True, False],
    ]


@given(
    st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=50), max_size=5),
    st.lists(st.tuples(KINDS, st.integers(1, 3), st.integers(1, 3)), max_size=5),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_are_read_back(tmp_path: Path, strings: dict[str, str], tensors: list[tuple[str, int, int]]) -> None:
    strings = {key: value for key, value in strings.items() if key != "general.alignment"}
    made = [
        _tensor(f"t{place}", kind, (rows, blocks * BLOCK_FORMATS[kind][0]), place)
        for place, (kind, rows, blocks) in enumerate(tensors)
    ]
    path = tmp_path / "m.gguf"
    size = write_gguf(path, {key: text(value) for key, value in strings.items()}, made)
    assert path.stat().st_size == size
    file = read_gguf(path)
    assert file.metadata == strings
    assert [(t.name, t.shape, t.kind) for t in file.tensors.values()] == [(t.name, t.shape, t.kind) for t in made]
    for tensor in made:
        assert np.array_equal(file.tensors[tensor.name].raw, np.concatenate(list(tensor.chunks())))


def test_a_copy_of_a_files_metadata_has_its_types_and_order(tmp_path: Path) -> None:
    keys = llama_keys(a__u8=("u8", 3), a__nested=("arr", ("arr", [("u8", [1]), ("str", ["x"])])), a__f64=("f64", 1e300))
    original = tmp_path / "original.gguf"
    original.write_bytes(gguf_bytes(keys, llama_tensors()))
    copied = copied_metadata(read_gguf(original))
    assert list(copied) == list(keys)
    copy = tmp_path / "copy.gguf"
    write_gguf(copy, copied, [])
    # A tensor count, a key count and everything after them: the key-values are the same bytes.
    end = len(b"".join(copied.values())) + sum(8 + len(key) for key in copied) + 24
    assert copy.read_bytes()[24:end] == original.read_bytes()[24:end]


def test_bytes_are_counted_while_they_are_written(tmp_path: Path) -> None:
    counts: list[int] = []
    tensors = [_tensor("a", "Q8_0", (3, 64)), _tensor("b", "F32", (5,))]
    write_gguf(tmp_path / "m.gguf", {}, tensors, counts.append)
    assert sum(counts) == sum(tensor.nbytes for tensor in tensors) and len(counts) == 6


def _assert_refused(tmp_path: Path, tensors: list[NewTensor], error: type[Exception], message: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"what was there")
    with pytest.raises(error, match=message):
        write_gguf(path, {}, tensors)
    assert path.read_bytes() == b"what was there"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failing_tensor_leaves_what_was_there(tmp_path: Path) -> None:
    def fails() -> Iterator[np.ndarray[tuple[int], np.dtype[np.uint8]]]:
        yield np.zeros(16, np.uint8)
        raise ValueError("row 7 is no good")

    _assert_refused(tmp_path, [NewTensor("a", (8,), "F32", fails)], ValueError, "row 7 is no good")


def test_too_few_bytes_are_refused(tmp_path: Path) -> None:
    short = NewTensor("a", (8,), "F32", lambda: [np.zeros(16, np.uint8)])
    _assert_refused(tmp_path, [short], ValueError, r"tensor 'a': 16 bytes were made, F32 \(8,\) has 32")


def test_equal_names_and_too_many_dimensions_are_refused(tmp_path: Path) -> None:
    twice = [_tensor("a", "F32", (2,)), _tensor("a", "F32", (2,))]
    _assert_refused(tmp_path, twice, ValueError, "same name")
    _assert_refused(tmp_path, [_tensor("a", "F32", (1, 1, 1, 1, 2))], ValueError, "has 5 dimensions")


def test_a_full_disk_is_refused_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 2_000_000))
    tensors = [_tensor("a", "F32", (1_000_000,))]
    _assert_refused(tmp_path, tensors, OSError, "has 2 MB free, 4 MB are needed")
