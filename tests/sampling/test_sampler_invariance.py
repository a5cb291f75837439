"""A token depends on its own logits, sequence and position only; native and reference give the same bytes."""

import gc

import numpy as np
import pytest

from octavo.sampling import Sampler, SamplingState
from octavo.sampling_params import SamplingParams

native = pytest.importorskip("octavo._native")

INSTRUCTION_SETS = [name for name in ("avx2", "avx512_vnni", "avx512_bf16", "amx") if native.isa_supported(name)]


def random_params(rng):
    def maybe(value, otherwise):
        return value if rng.random() < 0.5 else otherwise

    return SamplingParams(
        temperature=float(rng.choice([0.0, 0.1, 0.7, 1.0, 1.5, 10.0])),
        top_k=maybe(int(rng.choice([1, 2, 5, 40, 200, 5000])), 0),
        top_p=maybe(float(rng.choice([0.05, 0.5, 0.9, 0.95, 0.999])), 1.0),
        min_p=maybe(float(rng.choice([0.01, 0.1, 0.5])), 0.0),
        repetition_penalty=maybe(float(rng.choice([0.5, 1.1, 2.0])), 1.0),
        presence_penalty=maybe(float(rng.choice([-2.0, 0.3, 2.0])), 0.0),
        frequency_penalty=maybe(float(rng.choice([-1.0, 0.7, 2.0])), 0.0),
        logit_bias=maybe({int(i): float(rng.normal(0, 9)) for i in rng.integers(0, 300, 9)}, None),
        min_tokens=int(rng.integers(0, 6)),
        stop_token_ids=[int(i) for i in rng.integers(0, 300, 3)],
        logprobs=maybe(int(rng.choice([0, 1, 5, 64])), None),
    )


def random_batch(rng, num_rows, vocab_size):
    """Logits from flat to steep, with ties, infinities and NaN, and a function that makes equal states."""
    scale = rng.choice([0.0, 0.5, 3.0, 30.0], (num_rows, 1))
    logits = (rng.standard_normal((num_rows, vocab_size)) * scale).astype(np.float32)
    tied = rng.random(num_rows) < 0.3
    logits[tied] = np.round(logits[tied])
    logits[rng.random(logits.shape) < 0.01] = -np.inf
    logits[rng.random(logits.shape) < 0.001] = np.nan
    params = [random_params(rng) for _ in range(num_rows)]
    prompts = [rng.integers(0, min(vocab_size, 300), 20).tolist() for _ in range(num_rows)]
    outputs = [rng.integers(0, min(vocab_size, 300), int(rng.integers(0, 12))).tolist() for _ in range(num_rows)]
    words = (vocab_size + 31) // 32
    masks = [rng.integers(0, 2**32, words, dtype=np.uint32) if rng.random() < 0.2 else None for _ in range(num_rows)]

    def make_states():
        states = []
        for row in range(num_rows):
            made = SamplingState(params[row], prompts[row], 1000 + row, row % 3, [2, 7])
            for token_id in outputs[row]:
                made.append(token_id)
            made.allowed_mask = masks[row]
            states.append(made)
        return states

    return logits, make_states


def as_bytes(sampled):
    parts = [sampled.token_ids.tobytes(), sampled.logprobs.tobytes()]
    for top in sampled.tops:
        parts.append(
            b"-" if top is None else top.ids.tobytes() + top.logprobs.tobytes() + bytes(str(top.rank), "ascii")
        )
    return b"|".join(parts)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("vocab_size", [1, 3, 16, 33, 1000, 4099])
def test_native_equals_the_reference_bit_for_bit(instruction_set, vocab_size):
    rng = np.random.default_rng(vocab_size)
    sampler = Sampler(vocab_size, native.ThreadTeam(2), use_native=True, instruction_set=instruction_set)
    reference = Sampler(vocab_size, use_native=False)
    for _ in range(3):
        logits, make_states = random_batch(rng, 100, vocab_size)
        expected = reference.sample(logits, make_states())
        got = sampler.sample(logits, make_states())
        assert as_bytes(got) == as_bytes(expected)
        ids = rng.integers(0, vocab_size, 100).astype(np.int32)
        assert as_bytes(sampler.score(logits, ids, 5)) == as_bytes(reference.score(logits, ids, 5))


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_native_equals_the_reference_on_a_large_vocabulary(instruction_set):
    vocab_size = 49152
    logits, make_states = random_batch(np.random.default_rng(5), 24, vocab_size)
    sampler = Sampler(vocab_size, native.ThreadTeam(2), use_native=True, instruction_set=instruction_set)
    expected = Sampler(vocab_size, use_native=False).sample(logits, make_states())
    assert as_bytes(sampler.sample(logits, make_states())) == as_bytes(expected)


@pytest.mark.parametrize("num_rows", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_bytes(num_rows):
    vocab_size = 131_101  # large enough that one row is shared out
    results = set()
    for threads in (1, 2, 3):
        sampler = Sampler(vocab_size, native.ThreadTeam(threads), use_native=True)
        logits, make_states = random_batch(np.random.default_rng(num_rows), num_rows, vocab_size)
        scored = sampler.score(logits, np.arange(num_rows, dtype=np.int32), 4)
        results.add(as_bytes(sampler.sample(logits, make_states())) + as_bytes(scored))
    assert len(results) == 1


def test_a_row_alone_equals_the_row_among_63_others(make_sampler):
    logits, make_states = random_batch(np.random.default_rng(9), 64, 1000)
    sampler = make_sampler(1000)
    together = sampler.sample(logits, make_states())
    backwards = sampler.sample(logits[::-1].copy(), make_states()[::-1])
    assert backwards.token_ids[::-1].tobytes() == together.token_ids.tobytes()
    assert backwards.logprobs[::-1].tobytes() == together.logprobs.tobytes()
    for row in range(64):
        alone = sampler.sample(logits[row : row + 1], make_states()[row : row + 1])
        assert alone.token_ids[0] == together.token_ids[row]
        assert alone.logprobs[0] == together.logprobs[row]


def test_some_rows_of_many_in_any_order(make_sampler):
    logits, make_states = random_batch(np.random.default_rng(3), 40, 1000)
    before = logits.copy()
    sampler = make_sampler(1000)
    together, states = sampler.sample(logits, make_states()), make_states()
    rows = [31, 4, 5, 39, 0]
    some = sampler.sample(before.copy(), [states[row] for row in rows], rows)
    assert some.token_ids.tobytes() == together.token_ids[rows].tobytes()
    assert some.logprobs.tobytes() == together.logprobs[rows].tobytes()
    assert len(some.tops) == len(rows)
    assert len(sampler.sample(before.copy(), [], []).token_ids) == 0


@pytest.mark.parametrize("rows", [[0, 0], [0, 4], [-1, 1], [0]])
def test_rows_that_are_not_there_or_come_twice_are_refused(rows):
    logits, make_states = random_batch(np.random.default_rng(3), 4, 100)
    with pytest.raises(ValueError, match="numbers"):
        Sampler(100, use_native=True).sample(logits, make_states()[:2], rows)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_neighbours_penalties_change_nothing(make_sampler, order):
    rng = np.random.default_rng(4)
    logits = rng.standard_normal((1, 500)).astype(np.float32)
    favourite = int(logits.argmax())
    plain = SamplingParams(temperature=0)
    strict = SamplingParams(temperature=0, repetition_penalty=2.0, presence_penalty=2, frequency_penalty=2)
    states = [SamplingState((plain, strict)[i], [favourite] * 30, 0) for i in order]
    chosen = make_sampler(500).sample(np.repeat(logits, 2, axis=0), states).token_ids[list(np.argsort(order))]
    assert chosen[0] == favourite
    assert chosen[1] != favourite


def test_seeded_tokens_depend_on_the_position_not_on_the_history(make_sampler):
    sampler = make_sampler(200)
    logits = np.random.default_rng(3).standard_normal((1, 200)).astype(np.float32)
    params = SamplingParams(temperature=1.0, seed=11)

    def run(disturb):
        made = SamplingState(params, [1, 2], 11)
        tokens = []
        for step in range(20):
            if disturb:  # a discarded sample (the step is computed again), and other traffic
                sampler.sample(logits, [made])
                sampler.sample(logits, [SamplingState(params, [5], 99 + step)])
            tokens.append(int(sampler.sample(logits, [made]).token_ids[0]))
            made.append(tokens[-1])
        return tokens

    tokens = run(disturb=False)
    assert run(disturb=True) == tokens
    # Rebuilt from its tokens half way, as after preemption with recomputation.
    rebuilt = SamplingState(params, [1, 2], 11)
    for token_id in tokens[:10]:
        rebuilt.append(token_id)
    assert int(sampler.sample(logits, [rebuilt]).token_ids[0]) == tokens[10]


def test_sequences_of_one_request_differ_and_repeat(make_sampler):
    sampler = make_sampler(1000)
    logits = np.zeros((8, 1000), np.float32)
    params = SamplingParams(seed=5)

    def draw():
        return sampler.sample(logits, [SamplingState(params, [], 5, index) for index in range(8)]).token_ids.tolist()

    assert draw() == draw()
    assert len(set(draw())) == 8


def test_a_sampler_keeps_its_threads(make_sampler):
    team = native.ThreadTeam(2)
    sampler = Sampler(140_000, team, use_native=True)
    del team
    gc.collect()
    assert (
        sampler.sample(np.zeros((1, 140_000), np.float32), [SamplingState(SamplingParams(), [], 0)]).token_ids[0] >= 0
    )
