"""What the engine knows of an executor."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from octavo.engine.step import Step


class Executor(Protocol):
    """Runs one program over steps, and owns the memory of the KV blocks.

    An executor is built with its program, its weights, a compute dtype and a thread count. It must then be given its KV
    memory once, by reserve_kv. It is not thread-safe: one thread drives it.
    """

    name: str
    """"reference", "native" or "torch"."""
    vocab_size: int

    def block_bytes(self, block_size: int) -> int:
        """Bytes of one KV block of block_size tokens (K and V of all layers of one KV group; the same for each group).

        Raises ValueError where the executor cannot use this block size; the message says which sizes it can.
        """
        ...

    def reserve_kv(self, num_blocks: int, block_size: int) -> None:
        """Reserves address space for block ids 0 to num_blocks - 1; memory is committed by the first write."""
        ...

    def commit_blocks(self, first: int, count: int) -> None:
        """Commits the memory of block ids [first, first + count) before anything writes them, where the system can: the
        step that does has not to wait for it. Their content stays."""
        ...

    def release_blocks(self, first: int, count: int) -> None:
        """Gives the memory of block ids [first, first + count) back to the system. Their content is lost."""
        ...

    def execute(self, step: Step) -> npt.NDArray[np.float32]:
        """Runs the program over one step: [L, vocab_size] float32 logits of step.logits_rows.

        The array belongs to the executor and is valid until the next call; the caller may overwrite it.
        """
        ...

    def close(self) -> None:
        """Frees threads and memory. Nothing may be called afterwards."""
        ...
