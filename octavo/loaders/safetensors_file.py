"""One safetensors file over a memory map.

    header length u64 | header | data
    header: the JSON object {"__metadata__": ..., name: {"dtype", "shape", "data_offsets": [begin, end]}, ...}

The tensors must cover the data without gap or overlap, each exactly as many bytes as its shape needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from octavo.loaders.json_file import parse_object
from octavo.loaders.mapped_file import map_file
from octavo.loaders.tensor_source import CheckpointError

MAX_HEADER_BYTES: Final = 100_000_000
MAX_DIMENSIONS: Final = 8
_ITEM_BYTES: Final = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
}


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A tensor as the file has it; its dtype may be one that no weight can have."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    raw: NDArray[np.uint8]
    """read-only view of the mapped bytes"""


@dataclass(frozen=True, slots=True, eq=False)
class SafetensorsFile:
    """A parsed file."""

    path: Path
    tensors: dict[str, StoredTensor]
    header: NDArray[np.uint8]


def read_safetensors(path: Path) -> SafetensorsFile:
    """Maps and parses `path`. Raises CheckpointError, with the tensor at fault, on any malformed file."""
    data = map_file(path)
    if len(data) < 8:
        raise CheckpointError(f"{path}: has {len(data)} bytes, not even the length of a header")
    length = int(data[:8].view("<u8")[0])
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(f"{path}: the header has a length of {length} bytes, the limit is {MAX_HEADER_BYTES}")
    if length > len(data) - 8:
        raise CheckpointError(f"{path}: the header needs {length} bytes, the file has {len(data) - 8} after its length")
    header = parse_object(data[8 : 8 + length].tobytes(), f"{path}: header")
    header.pop("__metadata__", None)
    body = data[8 + length :]
    extents = {name: _read_entry(entry, f"{path}: tensor {name!r}") for name, entry in header.items()}
    _check_cover(extents, len(body), path)
    tensors = {
        name: StoredTensor(name, shape, dtype, body[begin:end]) for name, (dtype, shape, begin, end) in extents.items()
    }
    return SafetensorsFile(path, tensors, data[: 8 + length])


_Extent = tuple[str, tuple[int, ...], int, int]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _read_entry(entry: Any, where: str) -> _Extent:
    """(dtype, shape, begin, end) of a header entry."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where}: its entry must be an object with dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
        raise CheckpointError(f"{where}: has the unknown dtype {str(dtype)[:40]!r}")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(map(_is_count, shape)):
        raise CheckpointError(
            f"{where}: has the shape {str(shape)[:80]}, it must be a list of at most {MAX_DIMENSIONS} sizes"
        )
    if 0 in shape:
        raise CheckpointError(f"{where}: has the shape {shape}, no dimension may be 0")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise CheckpointError(f"{where}: has the data_offsets {str(offsets)[:80]}, it must be [begin, end]")
    begin, end = offsets
    needed = prod(shape) * _ITEM_BYTES[dtype]
    if end - begin != needed:
        raise CheckpointError(
            f"{where}: data_offsets {offsets} are {end - begin} bytes, but {dtype} {shape} needs {needed}"
        )
    return dtype, tuple(shape), begin, end


def _check_cover(extents: dict[str, _Extent], size: int, path: Path) -> None:
    """The tensors one after another, from the first byte of the data to the last."""
    position = 0
    previous = ""
    for name, (_, _, begin, end) in sorted(extents.items(), key=lambda item: item[1][2]):
        if begin != position:
            problem = "overlaps" if begin < position else "leaves a gap after"
            raise CheckpointError(
                f"{path}: tensor {name!r}: begins at byte {begin} of the data, {problem} {previous!r}, "
                f"which ends at {position}"
            )
        if end > size:
            raise CheckpointError(
                f"{path}: tensor {name!r}: ends at byte {end} of the data, the file has {size} (truncated?)"
            )
        position, previous = end, name
    if position != size:
        raise CheckpointError(f"{path}: the tensors end at byte {position} of the data, the file has {size}")
