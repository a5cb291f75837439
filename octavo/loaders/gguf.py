"""GGUF files, versions 2 and 3: metadata and tensors over a memory map.

    magic "GGUF" | version u32 | tensor count u64 | key count u64 | key-values | tensor infos | padding | data
    tensor info: name | dimensions u32 | their sizes u64, innermost first | type u32 | offset in the data u64

Nothing in a file is trusted: what is read is checked first, and every tensor must lie within the file, on
its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from octavo.loaders.dequantize import BLOCK_FORMATS
from octavo.loaders.gguf_metadata import Cursor, Value, read_metadata
from octavo.loaders.mapped_file import map_file
from octavo.loaders.tensor_source import byte_size

MAX_TENSORS: Final = 1 << 16
MAX_TENSOR_NAME_BYTES: Final = 1024
MAX_DIMENSIONS: Final = 4
MAX_ELEMENTS: Final = (1 << 63) - 1
MAX_ALIGNMENT: Final = 1 << 16
DEFAULT_ALIGNMENT: Final = 32

_KINDS: Final = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    30: "BF16",
}
KIND_NUMBERS: Final = {kind: number for number, kind in _KINDS.items()}
# Known by name only, so that the error says what the file holds.
_OTHER_KINDS: Final = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
}


@dataclass(frozen=True, slots=True, eq=False)
class GgufTensor:
    """A tensor as the file has it."""

    name: str
    """the file's own name, such as blk.0.attn_q.weight"""
    shape: tuple[int, ...]
    """row-major: the file's dimensions reversed"""
    kind: str
    raw: NDArray[np.uint8]
    """read-only view of the mapped bytes"""


@dataclass(frozen=True, slots=True, eq=False)
class GgufFile:
    """A parsed file. The map lives as long as any view of it."""

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, GgufTensor]
    header: NDArray[np.uint8]
    """everything before the tensors' data"""


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    name: str
    shape: tuple[int, ...]
    kind: str
    offset: int
    size: int


def read_gguf(path: Path) -> GgufFile:
    """Maps and parses `path`. Raises CheckpointError, with the key or tensor at fault, on any malformed
    file."""
    cursor = Cursor(map_file(path), path)
    magic = cursor.data[: cursor.take(4, "magic") + 4].tobytes()
    if magic != b"GGUF":
        raise cursor.fail("magic", f"is {magic!r}, a GGUF file begins with b'GGUF'")
    version = cursor.u32("version")
    if version not in (2, 3):
        big_endian = " (a big-endian file)" if version in (2 << 24, 3 << 24) else ""
        raise cursor.fail("version", f"is {version}{big_endian}, versions 2 and 3 can be read")
    num_tensors = cursor.u64("tensor count")
    num_keys = cursor.u64("metadata key count")
    if num_tensors > MAX_TENSORS:
        raise cursor.fail("tensor count", f"is {num_tensors}, the limit is {MAX_TENSORS}")
    metadata = read_metadata(cursor, num_keys)
    alignment = _alignment(cursor, metadata)
    infos = _read_infos(cursor, num_tensors, alignment)
    data_start = -(-cursor.position // alignment) * alignment
    _check_extents(cursor, infos, data_start)
    tensors = {
        info.name: GgufTensor(
            info.name,
            info.shape,
            info.kind,
            cursor.data[data_start + info.offset : data_start + info.offset + info.size],
        )
        for info in infos
    }
    return GgufFile(path, metadata, tensors, cursor.data[: cursor.position])


def _alignment(cursor: Cursor, metadata: dict[str, Value]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    what = "metadata key 'general.alignment'"
    if not isinstance(value, int) or isinstance(value, bool):
        raise cursor.fail(what, f"is a {type(value).__name__}, it must be an integer")
    if not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise cursor.fail(what, f"is {value}, it must be a power of two from 8 to {MAX_ALIGNMENT}")
    return value


def _read_infos(cursor: Cursor, count: int, alignment: int) -> list[_TensorInfo]:
    infos: dict[str, _TensorInfo] = {}
    for index in range(count):
        name = cursor.string(f"name of tensor {index}", MAX_TENSOR_NAME_BYTES)
        if not name:
            raise cursor.fail(f"name of tensor {index}", "is empty")
        if name in infos:
            raise cursor.fail(f"tensor {name!r}", "appears twice")
        infos[name] = _read_info(cursor, name, alignment)
    return list(infos.values())


def _read_info(cursor: Cursor, name: str, alignment: int) -> _TensorInfo:
    what = f"tensor {name!r}"
    num_dimensions = cursor.u32(what)
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise cursor.fail(what, f"has {num_dimensions} dimensions, 1 to {MAX_DIMENSIONS} are possible")
    shape = tuple(reversed([cursor.u64(what) for _ in range(num_dimensions)]))
    if 0 in shape:
        raise cursor.fail(what, f"has the shape {shape}, no dimension may be 0")
    if prod(shape) > MAX_ELEMENTS:
        raise cursor.fail(what, f"has the shape {shape}, more than {MAX_ELEMENTS} elements")
    number = cursor.u32(what)
    kind = _KINDS.get(number)
    if kind is None:
        label = f"{number} ({_OTHER_KINDS[number]})" if number in _OTHER_KINDS else f"{number}"
        raise cursor.fail(what, f"has the type {label}, which cannot be read; readable: {', '.join(BLOCK_FORMATS)}")
    values_per_block = BLOCK_FORMATS[kind][0]
    if shape[-1] % values_per_block:
        raise cursor.fail(what, f"has rows of {shape[-1]} values, {kind} needs a multiple of {values_per_block}")
    if values_per_block > 1 and num_dimensions == 1:
        raise cursor.fail(what, f"is a vector of type {kind}, vectors must be F32, F16 or BF16")
    offset = cursor.u64(what)
    if offset % alignment:
        raise cursor.fail(what, f"has the offset {offset}, it must be a multiple of the alignment {alignment}")
    return _TensorInfo(name, shape, kind, offset, byte_size(kind, shape))


def _check_extents(cursor: Cursor, infos: list[_TensorInfo], data_start: int) -> None:
    """Every tensor within the file, none over another."""
    data_size = max(0, len(cursor.data) - data_start)
    previous: _TensorInfo | None = None
    for info in sorted(infos, key=lambda info: info.offset):
        what = f"tensor {info.name!r}"
        end = info.offset + info.size
        if end > data_size:
            raise cursor.fail(what, f"ends at byte {end} of the data, the file has {data_size} (is it truncated?)")
        if previous is not None and info.offset < previous.offset + previous.size:
            raise cursor.fail(what, f"starts at byte {info.offset} of the data, inside tensor {previous.name!r}")
        previous = info
