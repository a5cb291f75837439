"""Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw (2011), in Python."""

from __future__ import annotations

_MASK32 = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)

Counter = tuple[int, int, int, int]


def philox4x32(counter: Counter, key: tuple[int, int]) -> Counter:
    """Four random 32-bit words, a pure function of a 128-bit counter and a 64-bit key (words, low ones
    first)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ k0,
            product1 & _MASK32,
            (product0 >> 32) ^ c3 ^ k1,
            product0 & _MASK32,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK32, (k1 + _WEYL[1]) & _MASK32
    return c0, c1, c2, c3


def random_bits(seed: int, sequence_index: int, position: int) -> int:
    """The 64 random bits of one output position of one sequence. seed: 64 bits, sequence_index: 32,
    position: 64."""
    words = philox4x32(
        (position & _MASK32, position >> 32, sequence_index, 0), (seed & _MASK32, (seed >> 32) & _MASK32)
    )
    return words[1] << 32 | words[0]
