"""Attention over blocks equals attention over contiguous memory, for any head, block, window and ratio."""

import numpy as np
import pytest
from support.attention import attention_program, contiguous_attention
from support.steps import Layout, Part, run_in_chunks
from support.weights import checkpoint_of

VOCAB = 24
HEAD_DIMS = [16, 32, 40, 64, 80, 96, 100, 112, 128, 144, 256, 257]


class Case:
    """Random q, k, v for each token id, and what attention over some tokens must give."""

    def __init__(self, make_executor, heads, kv_heads, head_dim, block_size, window=None, layers=1, max_len=40):
        self.shape = (heads, kv_heads, head_dim, head_dim**-0.5, window)
        self.layers = layers
        self.program = attention_program(VOCAB, *self.shape, layers)
        generator = np.random.default_rng(head_dim)
        self.qkv = generator.standard_normal((VOCAB, (heads + 2 * kv_heads) * head_dim), np.float32)
        self.head = generator.standard_normal((VOCAB, heads * head_dim), np.float32) / np.float32(head_dim)
        checkpoint = checkpoint_of({"qkv": self.qkv, "head": self.head})
        self.executor = make_executor(self.program, checkpoint)
        self.layout = Layout(self.program, block_size, num_seqs=3, max_len=max_len)
        self.layout.reserve(self.executor)

    def tokens(self, length, seed=0):
        return np.random.default_rng(seed).integers(0, VOCAB, length).tolist()

    def expected(self, tokens):
        return self.layers * contiguous_attention(self.qkv[tokens], *self.shape) @ self.head.T


@pytest.mark.parametrize("block_size", [1, 3, 8, 16])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_head_dim_and_block_size(make_executor, head_dim, block_size):
    case = Case(make_executor, 2, 1, head_dim, block_size)
    tokens = case.tokens(21)
    for chunk in (21, 4):
        logits = run_in_chunks(case.executor, case.layout, tokens, chunk)
        np.testing.assert_allclose(logits, case.expected(tokens), atol=2e-5)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (6, 2), (9, 3), (8, 1), (15, 5)])
def test_every_ratio_of_query_to_kv_heads(make_executor, heads, kv_heads):
    case = Case(make_executor, heads, kv_heads, 16, 8)
    tokens = case.tokens(19)
    logits = run_in_chunks(case.executor, case.layout, tokens, 7)
    np.testing.assert_allclose(logits, case.expected(tokens), atol=2e-5)


@pytest.mark.parametrize("block_size", [1, 4, 8, 32])
@pytest.mark.parametrize("window", [1, 5, 8, 17, 1000])
def test_window(make_executor, window, block_size):
    """Blocks behind the window are not mapped, and the prompt is several windows long."""
    case = Case(make_executor, 2, 1, 16, block_size, window)
    tokens = case.tokens(40)
    for chunk in (40, 1, 6):
        logits = run_in_chunks(case.executor, case.layout, tokens, chunk)
        np.testing.assert_allclose(logits, case.expected(tokens), atol=2e-5)


@pytest.mark.parametrize("block_size", [4, 8])
def test_sequences_of_a_ragged_batch_do_not_mix(make_executor, block_size):
    case = Case(make_executor, 4, 2, 24, block_size, layers=2)
    streams = [case.tokens(length, seed=length) for length in (30, 17, 5)]
    cuts = [(0, 16, 29, 30), (0, 1, 2, 17), (0, 4, 4, 5)]
    for start, stop in ((0, 1), (1, 2), (2, 3)):
        parts = [
            Part(number, cut[start], stream[cut[start] : cut[stop]])
            for number, (stream, cut) in enumerate(zip(streams, cuts, strict=True))
            if cut[stop] > cut[start]
        ]
        logits = case.executor.execute(case.layout.step(parts))
        expected = [case.expected(streams[p.sequence][: p.start + len(p.tokens)])[-1] for p in parts]
        np.testing.assert_allclose(logits, expected, atol=2e-5)


def test_copies_happen_in_order_before_the_step(make_executor):
    """A forked sequence goes on in private copies of its parent's blocks, one copied through another."""
    case = Case(make_executor, 2, 1, 16, 8, layers=2)
    parent, branch = case.tokens(11), case.tokens(6, seed=1)
    case.executor.execute(case.layout.step([Part(0, 0, parent)]))
    source, through, target = (case.layout.tables[0, number] for number in range(3))
    copies = [(source[i], through[i]) for i in range(2)] + [(through[i], target[i]) for i in range(2)]
    logits = case.executor.execute(case.layout.step([Part(2, 11, branch)], copies=copies))
    np.testing.assert_allclose(logits[0], case.expected(parent + branch)[-1], atol=2e-5)
    rest = case.executor.execute(case.layout.step([Part(0, 11, branch[:1])]))
    np.testing.assert_allclose(rest[0], case.expected(parent + branch[:1])[-1], atol=2e-5)


def test_released_blocks_can_be_written_again(make_executor):
    case = Case(make_executor, 2, 1, 64, 16, layers=4)
    tokens = case.tokens(20)
    first = run_in_chunks(case.executor, case.layout, tokens, 20)
    case.executor.release_blocks(0, case.layout.num_blocks)
    np.testing.assert_array_equal(run_in_chunks(case.executor, case.layout, tokens, 20), first)


def test_releasing_a_block_keeps_its_neighbours(make_executor):
    case = Case(make_executor, 2, 1, 64, 16, layers=4, max_len=48)
    tokens = case.tokens(40)
    streams = [tokens[number:] for number in range(3)]
    case.executor.execute(case.layout.step([Part(n, 0, stream) for n, stream in enumerate(streams)]))
    for block in case.layout.tables[0, 1]:
        case.executor.release_blocks(int(block), 1)
    for number in (0, 2):
        logits = case.executor.execute(case.layout.step([Part(number, len(streams[number]), [5])]))
        np.testing.assert_allclose(logits[0], case.expected([*streams[number], 5])[-1], atol=2e-5)


def test_no_logits_wanted(make_executor):
    case = Case(make_executor, 2, 1, 16, 8)
    step = case.layout.step([Part(0, 0, case.tokens(5))], logits_rows=[])
    assert case.executor.execute(step).shape == (0, VOCAB)
