"""Random prompts for measurements."""

from __future__ import annotations

import numpy as np


def random_prompts(count: int, length: int, vocab_size: int, seed: int) -> list[list[int]]:
    """`count` prompts of `length` ids, uniform over the vocabulary; the same for the same seed."""
    ids = np.random.default_rng(seed).integers(0, vocab_size, size=(count, length))
    return [[int(token_id) for token_id in row] for row in ids]
