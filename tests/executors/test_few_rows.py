"""Steps of few rows: each thread does the operations on rows for itself.

Where the threads then meet follows from what a program's operations read and write.
"""

from itertools import pairwise

import numpy as np
import pytest
from support.machine import INSTRUCTION_SETS
from support.steps import Layout, Part, run_in_chunks
from support.weights import random_checkpoint, small_config

from octavo import _native
from octavo.executors.native import NativeExecutor
from octavo.models.registry import build_program

WIDTH, VOCABULARY = 32, 64
TEAM = _native.ThreadTeam(2)


def meetings_of_family(family):
    program = build_program(small_config(family=family))
    executor = NativeExecutor(program, random_checkpoint(program), "float32", num_threads=2)
    try:
        return executor._runner.few_row_meetings(), len(program.kv_layers)
    finally:
        executor.close()


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3"])
def test_threads_meet_after_shared_work_only(family):
    """Five times a layer: after four linears and after attention, in the last layer when the residual's wanted rows are
    there too. Between an operation on rows and the linear or the attention behind it nobody waits."""
    meetings, layers = meetings_of_family(family)
    shared = [meets for name, meets in meetings if name != "rows"]
    assert shared == [True] * (5 * layers - 4) + [False] + [True] * 4
    last_attention = max(index for index, (name, _) in enumerate(meetings) if name == "attention")
    assert meetings[last_attention + 1] == ("rows", True)
    for (name, meets), (following, _) in pairwise(meetings):
        assert not (name == "rows" and following != "rows" and meets)


def test_a_residual_that_linears_never_add_to_is_every_threads_own():
    """Gemma's, which begins as an embedding and takes sums of rows: on rows threads wait once, for the last attention.

    Llama's is the linears' work too, so the embedding in it is shared out."""
    assert [name for name, meets in meetings_of_family("gemma3")[0] if meets].count("rows") == 1
    assert meetings_of_family("gemma3")[0][0] == ("rows", False)
    assert meetings_of_family("llama")[0][0] == ("rows", True)


def weight(n, k, seed):
    values = np.random.default_rng(seed).standard_normal((n, k), np.float32)
    return _native.PackedWeight.pack("f32", "F32", values.view(np.uint8).reshape(-1), n, k, TEAM, None, None, None)


def runner_of(*additions, widths=(WIDTH, WIDTH, WIDTH)):
    """A runner of embed into buffer 0, the additions, and logits of buffer 0."""
    phases = _native.make_phase_list(list(widths), [], num_groups=1, places_per_block=1, vocab_size=VOCABULARY)
    phases.add_embed(value(0), weight(VOCABULARY, WIDTH, 0), 1.0)
    for add in additions:
        add(phases)
    phases.add_select_rows((1, 0, WIDTH, True), value(0))
    phases.add_logits((1, 0, WIDTH, True), weight(VOCABULARY, WIDTH, 1))
    return _native.Runner(phases, INSTRUCTION_SETS[-1], "float32", TEAM)


def value(buffer):
    return (buffer, 0, WIDTH, False)


def linear(out, x, seed):
    return lambda phases: phases.add_linear(value(out), value(x), [weight(WIDTH, WIDTH, seed)], False, False)


def write_kv(phases):
    phases.add_write_kv(value(0), value(0), 0, 0, 1, WIDTH)


def attention(out, window):
    return lambda phases: phases.add_attention(value(out), value(0), 0, 0, 1, 1, WIDTH, 1.0, window)


def test_threads_meet_before_a_linear_that_overwrites_what_others_may_still_read():
    """The first linear in place reads an embedding, of which each thread has its own, the second what that made."""
    meetings = runner_of(linear(0, 0, 2), linear(0, 0, 3)).few_row_meetings()
    assert meetings[:4] == [("rows", False), ("linear 32x32", True), ("rows", True), ("linear 32x32", True)]


def test_threads_meet_before_an_attention_that_shares_its_heads_out_otherwise():
    """Keys and values are written by the plan of the attention that comes first."""
    meetings = runner_of(write_kv, attention(2, 0), attention(1, 8)).few_row_meetings()
    assert meetings[:2] == [("rows", False), ("attention", True)]
    same = runner_of(write_kv, attention(2, 0), attention(1, 0)).few_row_meetings()
    assert same[:2] == [("rows", False), ("attention", False)]


def test_a_writing_of_keys_and_values_ends_its_phase():
    """That may wait for later rows, to write a group of them together, and so nothing may overwrite what it reads."""

    def double(phases):
        phases.add_sum(value(0), value(0), value(0))

    behind, before = (runner_of(*each).few_row_meetings() for each in ((write_kv, double), (double, write_kv)))
    assert len(behind) == len(before) + 1


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3"])
def test_few_rows_come_out_as_many_do(family, instruction_set):
    """Also where a chunk's new tokens lie in two partitions of attention (of 512), which two threads may do."""
    program = build_program(small_config(family=family, max_position_embeddings=600))
    checkpoint = random_checkpoint(program)
    tokens = np.random.default_rng(1).integers(0, program.vocab_size, 530).tolist()
    expected = None
    for threads, chunk in ((1, 530), (2, 530), (2, 1), (2, 3), (3, 4), (4, 2)):
        executor = NativeExecutor(program, checkpoint, "auto", threads, instruction_set)
        layout = Layout(program, 16, num_seqs=1, max_len=530)
        layout.reserve(executor)
        first = run_in_chunks(executor, layout, tokens[:500], 500)
        rest = [
            executor.execute(layout.step([Part(0, at, tokens[at : min(at + chunk, 530)])], all_logits=True)).copy()
            for at in range(500, 530, chunk)
        ]
        logits = np.concatenate([first, *rest])
        expected = logits if expected is None else expected
        assert np.array_equal(logits, expected), (threads, chunk)
        executor.close()
