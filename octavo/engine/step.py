"""The step: everything that an executor needs to know for one call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Step:
    """One ragged batch: R sequences with T new tokens in all.

    The tokens of sequence r are rows query_start_loc[r] to query_start_loc[r + 1] of token_ids and positions. They are
    consecutive: the last one has position seq_lens[r] - 1. Their K and V are written at their slots before attention
    reads them, so a token sees its own sequence up to and including itself.

    All arrays are C-contiguous int32.
    """

    token_ids: Int32Array
    """[T] ids to embed."""
    positions: Int32Array
    """[T] absolute positions, from 0."""
    query_start_loc: Int32Array
    """[R + 1] first row of each sequence; the last entry is T."""
    seq_lens: Int32Array
    """[R] context length of each sequence after this step."""
    block_tables: tuple[Int32Array, ...]
    """One [R, blocks] table per KV group: logical block -> block id; -1 where nothing is mapped (behind a sliding
    window, or past the end)."""
    logits_rows: Int32Array
    """[L] rows of this step whose logits are wanted, ascending."""
    copies: Int32Array
    """[C, 2] (source, destination) block ids, copied in this order before anything else."""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_seqs(self) -> int:
        return len(self.seq_lens)
