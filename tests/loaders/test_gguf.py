"""Case F59: whatever a GGUF file holds, it is read rightly or refused with the file and the place named."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loader_files import (
    f32,
    gguf_bytes,
    gguf_header,
    gguf_info,
    gguf_key,
    gguf_string,
    llama_keys,
    llama_tensors,
)

from octavo.loaders.checkpoint import open_checkpoint
from octavo.loaders.gguf import GgufFile, read_gguf
from octavo.loaders.tensor_source import CheckpointError

VALUES = {
    "u8": 200,
    "i8": -3,
    "u16": 60000,
    "i16": -300,
    "u32": 4_000_000_000,
    "i32": -5,
    "f32": 0.5,
    "bool": True,
    "str": "héllo",
    "u64": 1 << 63,
    "i64": -(1 << 62),
    "f64": 1e300,
}


def _read(tmp_path: Path, data: bytes) -> GgufFile:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    return read_gguf(path)


def _refused(tmp_path: Path, data: bytes) -> str:
    """The error's message, which must name the file."""
    with pytest.raises(CheckpointError) as caught:
        _read(tmp_path, data)
    assert str(caught.value).startswith(str(tmp_path / "m.gguf"))
    return str(caught.value)


def _padded(head: bytes, data: bytes = b"") -> bytes:
    return head + bytes(-len(head) % 32) + data


@pytest.mark.parametrize("version", [2, 3])
def test_values_of_every_type_are_read(tmp_path: Path, version: int) -> None:
    keys = [gguf_key(kind, kind, value) for kind, value in VALUES.items()]
    file = _read(tmp_path, gguf_header(keys, [], version))
    assert file.metadata == VALUES
    assert {key: type(value) for key, value in file.metadata.items()} == {k: type(v) for k, v in VALUES.items()}


@pytest.mark.parametrize("kind", sorted(VALUES))
@pytest.mark.parametrize("count", [0, 1, 3])
def test_arrays_of_every_type_are_read(tmp_path: Path, kind: str, count: int) -> None:
    file = _read(tmp_path, gguf_header([gguf_key("a", "arr", (kind, [VALUES[kind]] * count))], []))
    assert list(file.metadata["a"]) == [VALUES[kind]] * count  # type: ignore[arg-type]


def test_nested_arrays_are_lists(tmp_path: Path) -> None:
    value = ("arr", [("u8", [1, 2]), ("str", ["x"]), ("arr", [("i16", [-1])])])
    outer = _read(tmp_path, gguf_header([gguf_key("a", "arr", value)], [])).metadata["a"]
    assert isinstance(outer, list)
    assert [list(outer[0]), list(outer[1]), list(outer[2][0])] == [[1, 2], ["x"], [-1]]  # type: ignore[arg-type, index]


def test_string_arrays_are_sequences(tmp_path: Path) -> None:
    strings = ["", "a", "日本", "b" * 300]
    array = _read(tmp_path, gguf_header([gguf_key("a", "arr", ("str", strings))], [])).metadata["a"]
    assert len(array) == 4 and array == strings and array[2] == "日本" and array[1:3] == ["a", "日本"]  # type: ignore


def test_text_that_is_no_utf8_is_refused_at_first_use(tmp_path: Path) -> None:
    array = _read(tmp_path, gguf_header([gguf_key("a", "arr", ("str", ["ok", b"\xff"]))], [])).metadata["a"]
    with pytest.raises(CheckpointError, match="key 'a': element 1 is not UTF-8"):
        list(array)  # type: ignore[arg-type]


def test_tensors_are_read_only_views_in_row_major_order(tmp_path: Path) -> None:
    file = _read(tmp_path, gguf_bytes({}, {"v": f32((3,)), "m": f32((2, 4)), "t": f32((2, 3, 4))}))
    assert {name: tensor.shape for name, tensor in file.tensors.items()} == {
        "v": (3,),
        "m": (2, 4),
        "t": (2, 3, 4),
    }
    matrix = file.tensors["m"].raw
    assert matrix.view("<f4").tolist() == list(range(8))
    assert not matrix.flags.writeable


def test_a_declared_alignment_is_used(tmp_path: Path) -> None:
    head = gguf_header([gguf_key("general.alignment", "u32", 64)], [gguf_info("v", [2], 0, 64)])
    data = head + bytes(-len(head) % 64) + bytes(64) + struct.pack("<2f", 1, 2)
    assert _read(tmp_path, data).tensors["v"].raw.view("<f4").tolist() == [1, 2]


KEY = gguf_string("k")
MALFORMED_METADATA = {
    "wrong magic": (b"GGML" + bytes(20), "magic: is b'GGML'"),
    "old version": (gguf_header([], [], 1), "version: is 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "2^60 keys": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), f"has {1 << 60} keys, the limit is"),
    "2^60 tensors": (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), f"is {1 << 60}, the limit is"),
    "unknown type": (gguf_header([KEY + struct.pack("<I", 13)], []), "'k': has the unknown value type 13"),
    "unknown array type": (
        gguf_header([KEY + struct.pack("<IIQ", 9, 99, 1) + bytes(9)], []),
        "'k': has the unknown value type 99",
    ),
    "2^60 elements": (gguf_header([KEY + struct.pack("<IIQ", 9, 4, 1 << 60)], []), "'k': is cut off"),
    "elements times size beyond 2^64": (
        gguf_header([KEY + struct.pack("<IIQ", 9, 10, 1 << 61) + bytes(64)], []),
        "'k': is cut off",
    ),
    "2^60 strings": (
        gguf_header([KEY + struct.pack("<IIQ", 9, 8, 1 << 60)], []),
        f"'k': has {1 << 60} elements",
    ),
    "2^60 arrays": (
        gguf_header([KEY + struct.pack("<IIQ", 9, 9, 1 << 60)], []),
        f"'k': has {1 << 60} elements",
    ),
    "huge string": (
        gguf_header([KEY + struct.pack("<IQ", 8, (1 << 64) - 1)], []),
        f"'k': has a length of {(1 << 64) - 1} bytes, the limit is",
    ),
    "huge string in an array": (
        gguf_header([KEY + struct.pack("<IIQQ", 9, 8, 1, (1 << 64) - 8) + bytes(64)], []),
        "'k': is cut off",
    ),
    "huge key": (gguf_header([struct.pack("<Q", 1 << 40)], []), "key 0: has a length of"),
    "empty key": (gguf_header([gguf_key("", "u8", 1)], []), "key 0: is empty"),
    "key that is no text": (gguf_header([gguf_key(b"\xff", "u8", 1)], []), "key 0: is not UTF-8"),
    "string that is no text": (gguf_header([gguf_key("k", "str", b"\xff")], []), "'k': is not UTF-8"),
    "duplicate key": (gguf_header([gguf_key("k", "u8", 1)] * 2, []), "'k': appears twice"),
    "bool 2": (gguf_header([gguf_key("k", "bool", 2)], []), "'k': holds a BOOL that is neither"),
    "deep nesting": (
        gguf_header([KEY + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5000 + bytes(64)], []),
        "'k': nests arrays more than 4 deep",
    ),
    "alignment of a wrong type": (gguf_header([gguf_key("general.alignment", "str", "32")], []), "is a str"),
    "alignment that is an array": (
        gguf_header([gguf_key("general.alignment", "arr", ("u32", [32]))], []),
        "'general.alignment': is a ndarray",
    ),
    "alignment 0": (
        gguf_header([gguf_key("general.alignment", "u32", 0)], []),
        "is 0, it must be a power of two",
    ),
    "alignment 24": (
        gguf_header([gguf_key("general.alignment", "u32", 24)], []),
        "is 24, it must be a power",
    ),
    "alignment 2^31": (
        gguf_header([gguf_key("general.alignment", "u32", 1 << 31)], []),
        "it must be a power",
    ),
}


@pytest.mark.parametrize("case", sorted(MALFORMED_METADATA))
def test_malformed_metadata_is_refused(tmp_path: Path, case: str) -> None:
    data, message = MALFORMED_METADATA[case]
    assert message in _refused(tmp_path, data)


MALFORMED_TENSORS = {
    "no dimension": ([gguf_info("t", [], 0, 0)], "'t': has 0 dimensions"),
    "five dimensions": ([gguf_info("t", [1] * 5, 0, 0)], "'t': has 5 dimensions"),
    "2^32 - 1 dimensions": (
        [gguf_string("t") + struct.pack("<I", (1 << 32) - 1)],
        "'t': has 4294967295 dimensions",
    ),
    "zero dimension": ([gguf_info("t", [4, 0], 0, 0)], "'t': has the shape (0, 4), no dimension may be 0"),
    "product beyond 2^64": ([gguf_info("t", [1 << 32, 1 << 32, 4], 0, 0)], "'t': has the shape"),
    "product just within 2^63": ([gguf_info("t", [1 << 62], 0, 0)], "'t': ends at byte"),
    "unknown type": ([gguf_info("t", [4], 1234, 0)], "'t': has the type 1234, which cannot be read"),
    "type of another format": ([gguf_info("t", [256], 16, 0)], "'t': has the type 16 (IQ2_XXS)"),
    "rows of half a block": (
        [gguf_info("t", [48, 2], 2, 0)],
        "'t': has rows of 48 values, Q4_0 needs a multiple of 32",
    ),
    "quantised vector": ([gguf_info("t", [64], 2, 0)], "'t': is a vector of type Q4_0"),
    "odd offset": ([gguf_info("t", [4], 0, 16)], "'t': has the offset 16, it must be a multiple"),
    "offset past the end": (
        [gguf_info("t", [4], 0, 1 << 20)],
        "'t': ends at byte 1048592 of the data, the file has",
    ),
    "offset near 2^64": ([gguf_info("t", [4], 0, (1 << 64) - 32)], "'t': ends at byte"),
    "overlap": ([gguf_info("t", [16], 0, 0), gguf_info("u", [4], 0, 32)], "'u': starts at byte 32"),
    "same place": ([gguf_info("t", [4], 0, 0), gguf_info("u", [4], 0, 0)], "inside tensor 't'"),
    "duplicate tensor": ([gguf_info("t", [4], 0, 0), gguf_info("t", [4], 0, 32)], "'t': appears twice"),
    "empty name": ([gguf_info("", [4], 0, 0)], "name of tensor 0: is empty"),
    "name that is too long": (
        [gguf_info("t" * 2000, [4], 0, 0)],
        "has a length of 2000 bytes, the limit is 1024",
    ),
}


@pytest.mark.parametrize("case", sorted(MALFORMED_TENSORS))
def test_malformed_tensors_are_refused(tmp_path: Path, case: str) -> None:
    infos, message = MALFORMED_TENSORS[case]
    assert message in _refused(tmp_path, _padded(gguf_header([], infos), bytes(128)))


def test_more_strings_than_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.loaders.gguf_metadata.MAX_ARRAY_ELEMENTS", 5)
    two = [gguf_key(key, "arr", ("str", ["", "", ""])) for key in "ab"]
    assert "'b': brings the array elements to 6, the limit is 5" in _refused(tmp_path, gguf_header(two, []))


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    data = gguf_bytes(llama_keys(), {"a": f32((2, 4)), "b": f32((3,))})
    assert len(_read(tmp_path, data).tensors) == 2
    whole = len(data) - (32 - 12)  # the padding after the last tensor is not needed
    for size in range(whole):
        _refused(tmp_path, data[:size])


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"x\.gguf: does not exist"):
        read_gguf(tmp_path / "x.gguf")
    with pytest.raises(CheckpointError, match="is not a regular file"):
        read_gguf(tmp_path)
    assert "is empty" in _refused(tmp_path, b"")


SEED = gguf_bytes(llama_keys(llama__rope__scaling__factor=("f32", 1.0)), llama_tensors())
HEADER_SIZE = 2200
INTERESTING = [
    b"\0" * 4,
    b"\xff" * 4,
    b"\xff" * 8,
    struct.pack("<Q", 1 << 60),
    struct.pack("<Q", 1 << 63),
    b"\x01\0\0\0",
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, HEADER_SIZE), st.sampled_from(INTERESTING) | st.binary(min_size=1, max_size=4)),
        min_size=1,
        max_size=3,
    ),
    st.none() | st.integers(0, len(SEED)),
)
def test_mutated_files_load_or_are_refused(tmp_path: Path, changes: list[tuple[int, bytes]], cut: int | None) -> None:
    data = bytearray(SEED)
    for at, new in changes:
        data[at : at + len(new)] = new
    path = tmp_path / "m.gguf"
    path.write_bytes(data[:cut])
    try:
        checkpoint = open_checkpoint(path)
    except CheckpointError as error:
        assert str(path) in str(error)
        return
    with np.errstate(all="ignore"):
        for source in checkpoint.tensors.values():
            assert source.dequantize().shape == source.shape
    assert len(checkpoint.fingerprint) == 64


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_random_bytes_after_the_magic_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + data)
    try:
        read_gguf(path)
    except CheckpointError as error:
        assert str(path) in str(error)
