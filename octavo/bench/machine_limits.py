"""The machine's own limits, measured in the same run as what is set beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.native_library import native_library

if TYPE_CHECKING:
    from octavo._native import ThreadTeam

READ_SIZES = tuple(megabytes * 2**20 for megabytes in (1, 4, 32, 128, 512))
MOST_READ = 2**30
"""No cache holds as much: more is read as fast"""
PRODUCT_KINDS = ("int8", "bf16", "float32")


class MachineLimits:
    """How fast a team of threads reads memory, by size, and multiplies, by kind of number, with one instruction set.

    What is asked for first is measured (some milliseconds, and as much memory as is read), then remembered.
    """

    def __init__(self, isa: str, team: ThreadTeam, repeats: int = 5) -> None:
        self.isa = isa
        self._team = team
        self._repeats = repeats
        self._reads: dict[int, float] = {}
        self._products: dict[str, float] = {}

    def read_speed(self, size: int) -> float:
        """Bytes a second of reading `size` bytes over and over: what caches hold of them is read from there. For more
        than MOST_READ, that of MOST_READ."""
        size = _rounded(size)
        if size not in self._reads:
            self._reads[size] = native_library().time_reads(size, self.isa, self._team, self._repeats)
        return self._reads[size]

    def product_speed(self, kind: str) -> float:
        """Operations a second on values in registers; a product and its addition are two. kind: int8, bf16, float32.
        Without bf16 products of its own a machine takes float32 ones."""
        return self._own_speed(kind) or self._own_speed("float32")

    def _own_speed(self, kind: str) -> float:
        """0 where the instruction set has no products of this kind."""
        if kind not in self._products:
            self._products[kind] = native_library().time_products(kind, self.isa, self._team, self._repeats)
        return self._products[kind]

    def facts(self) -> dict[str, Any]:
        """Of READ_SIZES, and of those of PRODUCT_KINDS that the instruction set has, for a report."""
        return {
            "isa": self.isa,
            "threads": self._team.size,
            "reads": [{"bytes": size, "gb_per_s": self.read_speed(size) / 1e9} for size in READ_SIZES],
            "products": [
                {"kind": kind, "top_per_s": speed / 1e12} for kind in PRODUCT_KINDS if (speed := self._own_speed(kind))
            ],
        }


def _rounded(size: int) -> int:
    """To three significant binary digits, so that nearly equal sizes share a measurement; from 64 KiB to MOST_READ."""
    size = min(max(size, 2**16), MOST_READ)
    step = 1 << (size.bit_length() - 3)
    return -(-size // step) * step
