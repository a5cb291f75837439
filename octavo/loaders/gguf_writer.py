"""Writing GGUF files, version 3: typed metadata, and tensors whose bytes are made while they are written.

The layout is drawn in octavo.loaders.gguf. A file appears under its name only when it is whole.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from octavo.loaders.gguf import DEFAULT_ALIGNMENT, KIND_NUMBERS, MAX_DIMENSIONS, GgufFile
from octavo.loaders.gguf_metadata import Cursor, Value, read_metadata
from octavo.loaders.tensor_source import byte_size

_VERSION: Final = 3
_FIXED_HEADER_BYTES: Final = 24
_STRING, _ARRAY = 8, 9
_SCALARS: Final = {"u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<?"), "u64": (10, "<Q")}
_ARRAY_NUMBERS: Final = {"i4": 5, "f4": 6, "b1": 7}


@dataclass(frozen=True, slots=True, eq=False)
class NewTensor:
    """A tensor to write."""

    name: str
    """the file's own name, such as blk.0.attn_q.weight"""
    shape: tuple[int, ...]
    """row-major"""
    kind: str
    chunks: Callable[[], Iterable[NDArray[np.uint8]]]
    """makes its bytes, in order; called once, when its turn has come"""

    @property
    def nbytes(self) -> int:
        return byte_size(self.kind, self.shape)


def scalar(kind: str, value: float) -> bytes:
    """A metadata value of kind u32, i32, u64, f32 or bool, encoded. Raises struct.error where it does not fit."""
    number, form = _SCALARS[kind]
    return struct.pack("<I", number) + struct.pack(form, value)


def text(value: str) -> bytes:
    """A string as a metadata value."""
    return struct.pack("<I", _STRING) + _string(value)


def texts(values: Sequence[str]) -> bytes:
    """An array of strings as a metadata value."""
    return struct.pack("<IIQ", _ARRAY, _STRING, len(values)) + b"".join(map(_string, values))


def numbers(values: NDArray[np.generic]) -> bytes:
    """A vector of int32, float32 or bool as a metadata value."""
    kind = _ARRAY_NUMBERS[values.dtype.str[1:]]
    return struct.pack("<IIQ", _ARRAY, kind, values.size) + values.astype(values.dtype.newbyteorder("<")).tobytes()


def copied_metadata(file: GgufFile) -> dict[str, bytes]:
    """Every key of a file with its value as it is encoded there, type and all, in the file's order."""
    cursor = Cursor(file.header, file.path)
    cursor.take(_FIXED_HEADER_BYTES, "header")
    encoded = {}
    for _ in file.metadata:
        key = cursor.string("metadata key", len(file.header))
        start = cursor.position
        cursor.value(cursor.u32(key), key)
        encoded[key] = file.header[start : cursor.position].tobytes()
    return encoded


def decoded_metadata(metadata: Mapping[str, bytes]) -> dict[str, Value]:
    """What the reader makes of encoded metadata."""
    data = b"".join(_string(key) + value for key, value in metadata.items())
    return read_metadata(Cursor(np.frombuffer(data, np.uint8), "metadata"), len(metadata))


def write_gguf(
    path: Path,
    metadata: Mapping[str, bytes],
    tensors: Sequence[NewTensor],
    written: Callable[[int], None] = lambda _: None,
) -> int:
    """Writes `path`, replacing it where it exists, and returns its size in bytes.

    metadata: key -> encoded value, without general.alignment. `written` is told the bytes of every chunk.
    Raises OSError with both numbers where the disk has not the room, ValueError for tensors that no file can
    hold, and whatever making the bytes raises; then nothing is left behind.
    """
    header = _header(metadata, tensors)
    size = len(header) + sum(_padded(tensor.nbytes) for tensor in tensors)
    require_room(path.parent, size)
    with _whole_file(path) as file:
        file.write(header)
        for tensor in tensors:
            _write_tensor(file, tensor, written)
    return size


def require_room(folder: Path, needed: int) -> None:
    """Raises OSError unless the disk of `folder` has `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(errno.ENOSPC, f"{folder} has {free / 1e6:.0f} MB free, {needed / 1e6:.0f} MB are needed")


def _header(metadata: Mapping[str, bytes], tensors: Sequence[NewTensor]) -> bytes:
    names = [tensor.name for tensor in tensors]
    if len(set(names)) != len(names):
        raise ValueError("two tensors have the same name")
    keys = b"".join(_string(key) + value for key, value in metadata.items())
    infos, offset = [], 0
    for tensor in tensors:
        if not 1 <= len(tensor.shape) <= MAX_DIMENSIONS:
            raise ValueError(
                f"tensor {tensor.name!r}: has {len(tensor.shape)} dimensions, 1 to {MAX_DIMENSIONS} are possible"
            )
        dimensions = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
        infos.append(_string(tensor.name) + dimensions + struct.pack("<IQ", KIND_NUMBERS[tensor.kind], offset))
        offset += _padded(tensor.nbytes)
    head = b"GGUF" + struct.pack("<IQQ", _VERSION, len(tensors), len(metadata)) + keys + b"".join(infos)
    return head.ljust(_padded(len(head)), b"\0")


def _write_tensor(file: BinaryIO, tensor: NewTensor, written: Callable[[int], None]) -> None:
    count = 0
    for chunk in tensor.chunks():
        file.write(chunk.data)
        count += chunk.nbytes
        written(chunk.nbytes)
    if count != tensor.nbytes:
        raise ValueError(f"tensor {tensor.name!r}: {count} bytes were made, {tensor.kind} {tensor.shape} has "
                         f"{tensor.nbytes}")  # fmt: skip
    file.write(bytes(_padded(count) - count))


@contextmanager
def _whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path` that takes its name when all went well, and is gone when not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _string(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _padded(size: int) -> int:
    return -(-size // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT
