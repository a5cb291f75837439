"""The key-value section of a GGUF file, read from untrusted bytes.

Every count and length in it is checked against the bytes that are left before anything is allocated or
skipped, and the elements of all string and nested arrays together are limited, so that no file makes the
reader slow or large.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, overload

import numpy as np
from numpy.typing import NDArray

from octavo.loaders.tensor_source import CheckpointError

MAX_KEYS: Final = 1 << 16
MAX_KEY_BYTES: Final = (1 << 16) - 1
MAX_STRING_BYTES: Final = 1 << 24
MAX_ARRAY_DEPTH: Final = 4
MAX_ARRAY_ELEMENTS: Final = 1 << 23
"""of all string and nested arrays of a file together; plain numbers are limited by the size of the file"""

_STRING: Final = 8
_ARRAY: Final = 9
_BOOL: Final = 7
_LAST_TYPE: Final = 12
_NUMBERS: Final = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    _BOOL: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_U64: Final = struct.Struct("<Q")
_U32: Final = struct.Struct("<I")


class StringArray(Sequence[str]):
    """An array of strings that is decoded at its first use: a vocabulary is large, and not every user needs
    it.

    Its extent in the file has been checked; text that is no UTF-8 raises CheckpointError at that first use.
    """

    def __init__(self, data: NDArray[np.uint8], count: int, label: str) -> None:
        """`data` holds exactly `count` strings, each after its length; `label` names file and key for
        errors."""
        self._data = data
        self._count = count
        self._label = label
        self._strings: list[str] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._decoded()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._decoded() == list(other)

    def __repr__(self) -> str:
        return f"StringArray({self._count} strings of {self._label})"

    __hash__ = None  # type: ignore[assignment]

    def _decoded(self) -> list[str]:
        if self._strings is None:
            data = self._data.tobytes()
            strings: list[str] = []
            position = 0
            try:
                for _ in range(self._count):
                    start = position + 8
                    position = start + _U64.unpack_from(data, position)[0]
                    strings.append(data[start:position].decode())
            except UnicodeDecodeError as error:
                raise CheckpointError(f"{self._label}: element {len(strings)} is not UTF-8: {error}") from None
            self._strings = strings
        return self._strings


Value = bool | int | float | str | NDArray[np.generic] | StringArray | list["Value"]
"""A metadata value. Arrays of numbers and bools are read-only numpy arrays of their own type; an array of
arrays is a list."""


class Cursor:
    """Reads little-endian values from the mapped bytes of a file, front to back; every read is checked."""

    def __init__(self, data: NDArray[np.uint8], path: object) -> None:
        self.data = data
        self.path = path
        self.position = 0
        self._view = data.data
        self._array_elements = 0

    @property
    def remaining(self) -> int:
        """bytes left"""
        return len(self.data) - self.position

    def fail(self, what: str, why: str) -> CheckpointError:
        """The error for `what` (a key, a tensor, a field of the header)."""
        return CheckpointError(f"{self.path}: {what}: {why}")

    def take(self, size: int, what: str) -> int:
        """Moves over `size` bytes and returns where they start."""
        if size > self.remaining:
            raise self.fail(
                what, f"is cut off: needs {size} bytes at {self.position}, the file has {self.remaining} left"
            )
        start = self.position
        self.position += size
        return start

    def u32(self, what: str) -> int:
        """An unsigned 32-bit integer."""
        return int(_U32.unpack_from(self._view, self.take(4, what))[0])

    def u64(self, what: str) -> int:
        """An unsigned 64-bit integer."""
        return int(_U64.unpack_from(self._view, self.take(8, what))[0])

    def string(self, what: str, limit: int) -> str:
        """A length of at most `limit` bytes, and so much UTF-8."""
        length = self.u64(what)
        if length > limit:
            raise self.fail(what, f"has a length of {length} bytes, the limit is {limit}")
        start = self.take(length, what)
        try:
            return bytes(self._view[start : start + length]).decode()
        except UnicodeDecodeError as error:
            raise self.fail(what, f"is not UTF-8: {error}") from None

    def value(self, kind: int, what: str) -> Value:
        """A value of GGUF type number `kind`."""
        if kind == _STRING:
            return self.string(what, MAX_STRING_BYTES)
        if kind == _ARRAY:
            return self._array(what, 1)
        number = self._numbers(kind, 1, what)[0]
        return bool(number) if kind == _BOOL else number.item()

    def _numbers(self, kind: int, count: int, what: str) -> NDArray[np.generic]:
        if kind not in _NUMBERS:
            raise self.fail(what, f"has the unknown value type {kind}, the types are 0 to {_LAST_TYPE}")
        dtype = np.dtype(_NUMBERS[kind])
        start = self.take(count * dtype.itemsize, what)
        numbers: NDArray[np.generic] = np.frombuffer(self.data, dtype, count, start)
        if kind != _BOOL:
            return numbers
        if count and int(numbers.view(np.uint8).max()) > 1:
            raise self.fail(what, "holds a BOOL that is neither 0 nor 1")
        return numbers.view(np.bool_)

    def _array(self, what: str, depth: int) -> Value:
        kind, count = self.u32(what), self.u64(what)
        if kind == _STRING:
            return self._string_array(count, what)
        if kind != _ARRAY:
            return self._numbers(kind, count, what)
        if depth >= MAX_ARRAY_DEPTH:
            raise self.fail(what, f"nests arrays more than {MAX_ARRAY_DEPTH} deep")
        self._count_elements(count, 12, what)
        return [self._array(what, depth + 1) for _ in range(count)]

    def _count_elements(self, count: int, least_bytes: int, what: str) -> None:
        if count * least_bytes > self.remaining:
            raise self.fail(what, f"has {count} elements, but only {self.remaining} bytes are left in the file")
        self._array_elements += count
        if self._array_elements > MAX_ARRAY_ELEMENTS:
            raise self.fail(
                what,
                f"brings the array elements to {self._array_elements}, the limit is {MAX_ARRAY_ELEMENTS}",
            )

    def _string_array(self, count: int, what: str) -> StringArray:
        self._count_elements(count, 8, what)
        view, end, start = self._view, len(self.data), self.position
        last_length_at = end - 8
        position = start
        unpack = _U64.unpack_from
        for index in range(count):
            if position > last_length_at:
                raise self.fail(what, f"is cut off in element {index} of {count}: the file has {end} bytes")
            position += 8 + unpack(view, position)[0]
        if position > end:
            raise self.fail(what, f"is cut off: its strings end at byte {position}, the file has {end}")
        self.position = position
        return StringArray(self.data[start:position], count, f"{self.path}: {what}")


def read_metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    """The `count` key-value pairs at the cursor. Raises CheckpointError with the key on anything
    malformed."""
    if count > MAX_KEYS:
        raise cursor.fail("metadata", f"has {count} keys, the limit is {MAX_KEYS}")
    metadata: dict[str, Value] = {}
    for index in range(count):
        key = cursor.string(f"metadata key {index}", MAX_KEY_BYTES)
        if not key:
            raise cursor.fail(f"metadata key {index}", "is empty")
        if key in metadata:
            raise cursor.fail(f"metadata key {key!r}", "appears twice")
        what = f"metadata key {key!r}"
        metadata[key] = cursor.value(cursor.u32(what), what)
    return metadata
