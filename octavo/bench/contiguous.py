"""Contiguous KV memory, the opponent of paging: how much a request reserves, and where."""

from __future__ import annotations

from bisect import insort
from typing import Literal, Protocol, get_args

Policy = Literal["max", "pow2", "oracle"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


def reserved_length(policy: Policy, prompt: int, output: int, limit: int) -> int:
    """Slots that a request reserves at admission.

    max: the longest that the model takes. pow2: the output length is guessed within a factor of two, as the paper
    does for Orca. oracle: it is known, which no system can.
    """
    if policy == "max":
        return limit
    if policy == "oracle":
        return prompt + output
    return min(limit, prompt + (1 << max(0, output - 1).bit_length()))


class Arena(Protocol):
    """Hands out ranges of a memory of `size` units."""

    size: int

    def allocate(self, length: int) -> int | None:
        """The start of a free range of at least `length` units, which is taken; None where there is none."""
        ...

    def free(self, start: int) -> None:
        """Takes the range at `start` back."""
        ...


class BuddyArena:
    """Ranges of powers of two that split and merge with their buddies, as in Orca and in the paper's baselines.

    A size that is not a power of two is a row of smaller and smaller ones.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._free: dict[int, list[int]] = {order: [] for order in range(size.bit_length())}
        self._taken: dict[int, int] = {}
        self._roots: dict[int, int] = {}
        start = 0
        for order in reversed(range(size.bit_length())):
            if size >> order & 1:
                self._roots[start] = order
                self._free[order].append(start)
                start += 1 << order

    def allocate(self, length: int) -> int | None:
        """The lowest free range of the smallest power of two that holds `length`."""
        wanted = max(0, length - 1).bit_length()
        order = next((each for each in range(wanted, self.size.bit_length()) if self._free[each]), None)
        if order is None:
            return None
        start = self._free[order].pop(0)
        while order > wanted:
            order -= 1
            insort(self._free[order], start + (1 << order))
        self._taken[start] = order
        return start

    def free(self, start: int) -> None:
        """Takes a range back and merges it with its free buddies."""
        order = self._taken.pop(start)
        while self._roots.get(start) != order:
            root = max(each for each in self._roots if each <= start)
            buddy = root + ((start - root) ^ (1 << order))
            if buddy not in self._free[order]:
                break
            self._free[order].remove(buddy)
            start = min(start, buddy)
            order += 1
        insort(self._free[order], start)


class FirstFitArena:
    """Ranges of exactly the wanted length, in the first hole that takes them: the stronger opponent."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._taken: list[tuple[int, int]] = []
        """(start, end) in order"""

    def allocate(self, length: int) -> int | None:
        """The lowest range of `length` units."""
        start = 0
        for taken, end in self._taken:
            if taken - start >= length:
                break
            start = end
        if start + length > self.size:
            return None
        insort(self._taken, (start, start + length))
        return start

    def free(self, start: int) -> None:
        """Takes the range at `start` back."""
        self._taken.remove(next(each for each in self._taken if each[0] == start))
