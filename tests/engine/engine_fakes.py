"""Fakes that make every bookkeeping error visible: the executor's KV is token ids in blocks, and its logits
are a hash of all (position, token) pairs that a token reads back through the block tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np

from octavo.engine.engine import Engine, EngineConfig
from octavo.engine.invariants import check_invariants
from octavo.engine.request import Request

VOCAB = 97
EOS = 3
MASK = (1 << 64) - 1


def mix(values: np.ndarray) -> np.ndarray:
    """splitmix64 of uint64 values."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def program(windows: tuple[int | None, ...] = (None,)) -> SimpleNamespace:
    """All that the engine reads of a program."""
    groups = tuple(SimpleNamespace(window=window) for window in windows)
    return SimpleNamespace(kv_groups=groups, vocab_size=VOCAB, max_model_len=4096)


class FakeExecutor:
    """Stores (position, token) pairs at slots of blocks, one number each, and hashes what tables show."""

    name = "fake"
    vocab_size = VOCAB

    def __init__(self, windows: tuple[int | None, ...] = (None,)) -> None:
        self.windows = windows
        self.steps: list = []
        self.keep_steps = False
        self.fail_next: Exception | None = None
        self.released: list[tuple[int, int]] = []
        self.committed: list[int] = []

    def reserve_kv(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.kv = np.full((num_blocks, block_size), -1, np.int64)

    def commit_blocks(self, first: int, count: int) -> None:
        self.committed += range(first, first + count)

    def release_blocks(self, first: int, count: int) -> None:
        self.released.append((first, count))
        self.kv[first : first + count] = -1

    def execute(self, step) -> np.ndarray:
        if self.keep_steps:
            self.steps.append(step)
        check_step(step, len(self.windows))
        for source, destination in step.copies.tolist():
            self.kv[destination] = self.kv[source]
        pairs = step.positions.astype(np.int64) * VOCAB + step.token_ids
        row_of = np.repeat(np.arange(step.num_seqs), np.diff(step.query_start_loc))
        group_salt = 1_000_003
        for group, table in enumerate(step.block_tables):
            blocks = table[row_of, step.positions // self.block_size]
            assert (blocks >= 0).all(), "a token is written to no block"
            self.kv[blocks, step.positions % self.block_size] = pairs * group_salt + group
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        wanted = step.logits_rows
        seeds = np.empty(len(wanted), np.uint64)
        for i, row in enumerate(wanted.tolist()):
            seeds[i] = self.context_hash(step, int(row_of[row]), int(step.positions[row]), group_salt)
        mixed = mix(seeds[:, None] ^ mix(np.arange(VOCAB, dtype=np.uint64))[None, :])
        return (mixed >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)

    def context_hash(self, step, sequence: int, position: int, group_salt: int) -> np.uint64:
        total = np.uint64(0)
        for group, window in enumerate(self.windows):
            first = 0 if window is None else max(0, position - window + 1)
            positions = np.arange(first, position + 1)
            blocks = step.block_tables[group][sequence, positions // self.block_size]
            assert (blocks >= 0).all(), "a visible block is not mapped"
            values = self.kv[blocks, positions % self.block_size]
            assert (values % group_salt == group).all(), "a block of another KV group is read"
            values = values // group_salt
            assert (values // VOCAB == positions).all(), "a slot holds another position"
            total ^= np.bitwise_xor.reduce(mix(values.astype(np.uint64) * np.uint64(7) + np.uint64(group)))
        return total


def check_step(step, num_groups: int) -> None:
    """The step is what its docstring says."""
    arrays = [
        step.token_ids,
        step.positions,
        step.query_start_loc,
        step.seq_lens,
        step.logits_rows,
        step.copies,
    ]
    arrays += step.block_tables
    assert all(array.dtype == np.int32 and array.flags.c_contiguous for array in arrays)
    assert len(step.block_tables) == num_groups
    counts = np.diff(step.query_start_loc)
    assert step.query_start_loc[0] == 0 and step.query_start_loc[-1] == step.num_tokens == len(step.positions)
    assert (counts > 0).all()
    last = step.query_start_loc[1:] - 1
    assert (step.positions[last] == step.seq_lens - 1).all()
    assert (np.diff(step.positions)[np.diff(np.repeat(np.arange(step.num_seqs), counts)) == 0] == 1).all()
    assert (np.diff(step.logits_rows) > 0).all()
    assert step.copies.shape[1:] == (2,)


@dataclass
class Params:
    """The fields of SamplingParams that the engine reads."""

    n: int = 1
    seed: int | None = 0
    max_tokens: int | None = 16
    min_tokens: int = 0
    ignore_eos: bool = True
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = 0
    prompt_logprobs: int | None = None

    @property
    def num_sequences(self):
        return self.n


@dataclass
class FakeState:
    """Position-keyed: knows how many tokens there are, nothing else."""

    params: Params
    prompt_token_ids: list[int]
    seed: int
    sequence_index: int
    eos_token_ids: tuple[int, ...]
    output_len: int = 0
    fail_at: int = -1

    def append(self, token_id: int) -> None:
        self.output_len += 1
        if self.output_len == self.fail_at:
            raise RuntimeError("this state fails")

    def fork(self) -> FakeState:
        return replace(self)


@dataclass
class FakeSampler:
    """Greedy for seed 0 and index 0; else logits plus noise keyed by (seed, index, position)."""

    fail_next: Exception | None = None
    calls: list[int] = field(default_factory=list)

    def sample(self, logits, states, rows=None):
        assert len(logits) == len(states) or rows is not None
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        if rows is None:
            rows = range(len(logits))
        assert len(set(rows)) == len(rows) == len(states)
        raw = logits[list(rows)]
        logits[list(rows)] = np.nan  # they may be overwritten
        keys = np.array(
            [((s.seed * 1009 + s.sequence_index) * 1_000_003 + s.output_len) & MASK for s in states],
            np.uint64,
        )
        noise = (mix(keys[:, None] ^ mix(np.arange(VOCAB, dtype=np.uint64))) >> np.uint64(40)).astype(np.float32)
        noisy = np.array([s.seed != 0 or s.sequence_index != 0 for s in states])
        tokens = np.argmax(raw + noise * noisy[:, None] / np.float32(1 << 24), axis=1)
        return self._rows(raw, tokens.astype(np.int32), 1)

    def continuations(self, logits, states, top):
        """Logits less 1 for logprobs."""
        assert len(logits) == len(states)
        ids = np.argsort(-logits, axis=1, kind="stable")[:, :top].astype(np.int32)
        return ids, np.take_along_axis(logits, ids, 1) - np.float32(1)

    def score(self, logits, token_ids, top):
        raw = logits.copy()
        logits[:] = np.nan
        return self._rows(raw, token_ids, top)

    def _rows(self, raw, tokens, top):
        chosen = raw[np.arange(len(raw)), tokens]
        tops = [
            SimpleNamespace(
                ids=[int(np.argmax(row))][:top],
                logprobs=[float(row.max())][:top],
                rank=int((row > value).sum()) + 1,
            )
            for row, value in zip(raw, chosen, strict=True)
        ]
        return SimpleNamespace(token_ids=tokens, logprobs=chosen, tops=tops)


def make_engine(windows: tuple[int | None, ...] = (None,), executor=None, sampler=None, **config) -> Engine:
    """A small engine over fakes; config overrides EngineConfig's fields. hash_function may be among them."""
    extra = {name: config.pop(name) for name in ("hash_function",) if name in config}
    sizes = {"num_blocks": 64, "block_size": 4, "max_model_len": 200, "max_num_seqs": 16} | config
    return Engine(
        executor or FakeExecutor(windows),
        sampler or FakeSampler(),
        program(windows),
        EngineConfig(**sizes),
        (EOS,),
        new_state=FakeState,
        **extra,
    )


@dataclass
class Answer:
    """All that came of one request."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    logprobs: dict[int, list] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    prompt_logprobs: list | None = None
    num_cached: int = 0


def run(engine: Engine, requests=(), *, each_step=None, check=True, limit=20_000) -> dict[str, Answer]:
    """Adds the requests and steps until all are done; each_step is called before every step."""
    answers: dict[str, Answer] = {}
    for request in requests:
        engine.add_request(request)
    steps = 0
    while engine.has_unfinished:
        if each_step is not None:
            each_step()
        collect(answers, engine.step())
        if check:
            check_invariants(engine)
        steps += 1
        assert steps < limit, "no progress"
    return answers


def collect(answers: dict[str, Answer], updates) -> None:
    for update in updates:
        answer = answers.setdefault(update.request_id, Answer())
        if update.token_id >= 0:
            answer.tokens.setdefault(update.index, []).append(update.token_id)
            answer.logprobs.setdefault(update.index, []).append(update.logprobs)
        if update.finish_reason:
            assert update.index not in answer.reasons
            answer.reasons[update.index] = update.finish_reason
        if update.prompt_logprobs is not None:
            answer.prompt_logprobs = update.prompt_logprobs
        answer.num_cached = update.num_cached_tokens


def prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(4, VOCAB, length).tolist()


def request(name: str, tokens: list[int], *, cache_salt=None, cache_fields=(), **params) -> Request:
    return Request(name, tokens, Params(**params), cache_salt, cache_fields)
