"""Steps from token lists, for tests of executors."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from octavo.engine.step import Step
from octavo.executors.interface import Executor
from octavo.program.operations import Program

Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Part:
    """Tokens that one sequence gets in a step; the first one has position `start`."""

    sequence: int
    start: int
    tokens: Sequence[int]


class Layout:
    """Block tables for sequences 0 to num_seqs - 1 of up to max_len tokens, in every KV group.

    Physical blocks are dealt out in a shuffled order, so that nothing works by their being neighbours.
    Blocks behind a group's window are left unmapped in a step's tables, as the engine does.
    """

    def __init__(self, program: Program, block_size: int, num_seqs: int, max_len: int) -> None:
        self.program = program
        self.block_size = block_size
        self.blocks_per_seq = -(-max_len // block_size)
        groups = len(program.kv_groups)
        self.num_blocks = groups * num_seqs * self.blocks_per_seq
        ids = np.random.default_rng(3).permutation(self.num_blocks).astype(np.int32)
        self.tables = ids.reshape(groups, num_seqs, self.blocks_per_seq)

    def reserve(self, executor: Executor) -> None:
        """Reserves the blocks; skips the test where the executor says that it cannot use the block size."""
        try:
            executor.block_bytes(self.block_size)
        except ValueError as error:
            pytest.skip(str(error))
        executor.reserve_kv(self.num_blocks, self.block_size)

    def step(
        self,
        parts: Sequence[Part],
        all_logits: bool = False,
        copies: Iterable[tuple[int, int]] = (),
        logits_rows: Iterable[int] | None = None,
    ) -> Step:
        """One step; logits of each part's last token, or of every token, or of the given rows."""
        counts = [len(part.tokens) for part in parts]
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        if logits_rows is None:
            logits_rows = range(starts[-1]) if all_logits else starts[1:] - 1
        return Step(
            token_ids=np.concatenate([part.tokens for part in parts]).astype(np.int32),
            positions=np.concatenate([np.arange(p.start, p.start + len(p.tokens)) for p in parts]).astype(np.int32),
            query_start_loc=starts,
            seq_lens=np.array([part.start + len(part.tokens) for part in parts], np.int32),
            block_tables=tuple(
                np.stack([self._table(number, part) for part in parts]) for number in range(len(self.tables))
            ),
            logits_rows=np.array(list(logits_rows), np.int32),
            copies=np.array(list(copies), np.int32).reshape(-1, 2),
        )

    def _table(self, group: int, part: Part) -> Int32Array:
        table = self.tables[group, part.sequence].copy()
        window = self.program.kv_groups[group].window
        if window is not None:
            table[: max(0, part.start - window + 1) // self.block_size] = -1
        table[-(-(part.start + len(part.tokens)) // self.block_size) :] = -1
        return table


def run_in_chunks(
    executor: Executor, layout: Layout, tokens: Sequence[int], chunk: int, sequence: int = 0
) -> Float32Array:
    """[len(tokens), vocab] logits of every token, the prompt cut into steps of `chunk` tokens."""
    rows = []
    for start in range(0, len(tokens), chunk):
        part = Part(sequence, start, tokens[start : start + chunk])
        rows.append(executor.execute(layout.step([part], all_logits=True)).copy())
    return np.concatenate(rows)


def run_greedy(
    executor: Executor, layout: Layout, prompts: Sequence[Sequence[int]], new_tokens: int
) -> list[list[int]]:
    """Greedy continuations of all prompts, run together as one batch."""
    outputs: list[list[int]] = [[] for _ in prompts]
    parts = [Part(number, 0, prompt) for number, prompt in enumerate(prompts)]
    for _ in range(new_tokens):
        chosen = executor.execute(layout.step(parts)).argmax(axis=-1)
        for output, token in zip(outputs, chosen.tolist(), strict=True):
            output.append(token)
        parts = [Part(p.sequence, p.start + len(p.tokens), outputs[p.sequence][-1:]) for p in parts]
    return outputs
