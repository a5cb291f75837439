"""The contract: a request's tokens and logprobs never depend on what happens around it.

Real kernels under the real engine: alone or among others, with and without prefix cache, in any chunks and blocks,
preempted at every step, on any number of threads, the bits are the same. One instruction set at a time.
"""

from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
from support.guesses import Guesses
from support.machine import INSTRUCTION_SETS
from support.quantize import quantize
from support.weights import ArrayCheckpoint

from octavo.beam_search_params import BeamSearchParams
from octavo.engine.engine import Engine, EngineConfig, Request
from octavo.executors.native import NativeExecutor
from octavo.loaders.aliases import ALIASES
from octavo.loaders.checkpoint import open_checkpoint
from octavo.loaders.hub import octavo_home
from octavo.models.registry import build_program
from octavo.sampling.sampler import Sampler
from octavo.sampling_params import SamplingParams

DATA = Path(__file__).parent / "models" / "data"
# weights, compute format, KV format, format of activations
CASES = [
    ("llama_nine_heads_tied", "auto", "auto", "auto"),
    ("gemma3", "auto", "auto", "auto"),
    ("qwen3", "bfloat16", "auto", "auto"),
    ("mistral_window", "float32", "auto", "auto"),
    ("llama_nine_heads_tied", "auto", "int8", "auto"),
    ("gemma3", "float32", "int8", "auto"),
    ("llama_head96", "auto", "auto", "int8"),
]


def quantized(checkpoint):
    """The checkpoint with its matrices as files have them: the head in 8 bits, the others by turns in 4 and 8."""
    tensors = {}
    for number, (name, source) in enumerate(checkpoint.tensors.items()):
        if len(source.shape) == 2 and source.shape[1] % 32 == 0:
            kind = "Q8_0" if number % 3 == 0 or "embed" in name else "Q4_1"
            tensors[name] = quantize(source.dequantize(), kind)
        else:
            tensors[name] = source
    return ArrayCheckpoint(tensors, checkpoint.config)


def collect(update, answer):
    assert update.finish_reason != "error", update.error
    tokens, logprobs, tops, prompts = answer
    tokens.append((update.index, update.token_id))
    if update.logprobs:
        logprobs.append((update.index, update.logprobs.logprob))
        tops.append((update.index, update.logprobs.top_ids, update.logprobs.top_logprobs))
    if update.beam:
        logprobs.append((update.index, update.beam.score))
    if update.prompt_logprobs:
        prompts.extend(update.prompt_logprobs)


class Model:
    def __init__(self, name, dtype, kv_cache_dtype, activation_dtype, instruction_set):
        checkpoint = open_checkpoint(DATA / name)
        self.checkpoint = quantized(checkpoint) if dtype == "auto" else checkpoint
        self.program = build_program(checkpoint.config)
        self.formats = dtype, kv_cache_dtype, activation_dtype
        self.instruction_set = instruction_set

    def prompt(self, seed, length):
        return np.random.default_rng(seed).integers(3, self.program.vocab_size, length).tolist()

    def answers(self, requests, threads=2, preempt=False, one_by_one=False, known=None, **config):
        """{request id: (token ids, logprobs, top logprobs, prompt logprobs)} of requests that run together. known: the
        same of earlier, of which drafts are made."""
        settings = dict(num_blocks=2000, block_size=16, max_model_len=self.program.max_model_len) | config
        dtype, *others = self.formats
        executor = NativeExecutor(self.program, self.checkpoint, dtype, threads, self.instruction_set, *others)
        sampler = Sampler(self.program.vocab_size, executor.thread_team, instruction_set=self.instruction_set)
        engine = Engine(executor, sampler, self.program, EngineConfig(**settings), eos_token_ids=())
        if known is not None:
            engine.speculation = Guesses(
                lambda sequence: [
                    token for index, token in known[sequence.request.request_id][0] if index == sequence.index
                ]
            )
        answers = {name: ([], [], [], []) for name, _, _ in requests}
        for number, (name, prompt, params) in enumerate(requests):
            made = BeamSearchParams(**params) if "beam_width" in params else SamplingParams(**params)
            engine.add_request(Request(name, prompt, made))
            while engine.has_unfinished and (one_by_one or number == len(requests) - 1):
                for update in engine.step():
                    collect(update, answers[update.request_id])
                if preempt:
                    engine.scheduler.preempt_all()
        assert known is None or engine.stats().accepted_tokens > 0
        executor.close()
        return {name: tuple(sorted(part, key=itemgetter(0)) if i < 3 else part for i, part in enumerate(answer))
                for name, answer in answers.items()}  # fmt: skip

    def targets(self):
        """Greedy, seeded and beams, with logprobs of the answer and of the prompt; some share a prefix."""
        return [
            ("greedy", self.prompt(0, 37), dict(temperature=0, max_tokens=12, logprobs=3)),
            ("seeded", self.prompt(0, 37) + self.prompt(1, 8), dict(seed=5, max_tokens=10, logprobs=1, top_p=0.9)),
            (
                "beams",
                self.prompt(0, 30),
                dict(beam_width=3, max_tokens=8, logprobs=1, repetition_penalty=1.1, prompt_logprobs=0),
            ),
            ("rescored", self.prompt(2, 41), dict(seed=9, max_tokens=2, prompt_logprobs=0)),
            ("scored", self.prompt(2, 50), dict(seed=9, max_tokens=4, prompt_logprobs=2, logprobs=0)),
            ("penalised", self.prompt(3, 16), dict(seed=1, max_tokens=8, logprobs=0, repetition_penalty=1.3, n=2)),
        ]

    def neighbours(self, count=32):
        return [
            (f"n{i}", self.prompt(100 + i, 1 + i * 7 % 45), dict(seed=i, max_tokens=1 + i % 11, temperature=i % 3 / 2))
            for i in range(count)
        ]


@pytest.fixture(scope="module", params=INSTRUCTION_SETS)
def instruction_set(request):
    return request.param


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request, instruction_set):
    model = Model(*request.param, instruction_set)
    expected = {}
    for target in model.targets():
        expected |= model.answers([target], enable_prefix_caching=False, max_num_batched_tokens=2048)
    return model, expected


def check(case, **settings):
    model, expected = case
    answers = model.answers(model.targets(), **settings)
    for name, answer in expected.items():
        assert answers[name] == answer, name


def test_among_32_others(case):
    model, expected = case
    others = model.neighbours()
    answers = model.answers(others[:16] + model.targets() + others[16:])
    for name, answer in expected.items():
        assert answers[name] == answer, name


@pytest.mark.parametrize("caching", [True, False])
def test_prefix_cache(case, caching):
    check(case, enable_prefix_caching=caching, max_num_batched_tokens=50)


def test_prefix_cache_after_other_requests(case):
    """Prompts that end and depart inside cached blocks, and prompt logprobs from the cache, in both orders."""
    model, expected = case
    for targets in (model.targets(), model.targets()[::-1]):
        answers = model.answers(targets, one_by_one=True)
        for name, answer in expected.items():
            assert answers[name] == answer, name


@pytest.mark.parametrize("budget", [16, 64, 2048])
def test_chunk_budget(case, budget):
    check(case, max_num_batched_tokens=budget)


@pytest.mark.parametrize("block_size", [8, 16, 24, 64, 256])
def test_block_size(case, block_size):
    check(case, block_size=block_size)


@pytest.mark.parametrize("caching", [True, False])
def test_preempted_at_every_step(case, caching):
    check(case, preempt=True, enable_prefix_caching=caching)


@pytest.mark.parametrize("settings", [{}, {"max_num_batched_tokens": 16}, {"threads": 1}], ids=str)
def test_drafts(case, settings):
    """Rows that are computed on trial, right ones and wrong ones."""
    check(case, known=case[1], **settings)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads(case, threads):
    check(case, threads=threads)


def test_a_scarce_pool(case):
    """So few blocks that requests wait for and preempt each other."""
    model, _ = case
    check(case, num_blocks=12 * len(model.program.kv_groups), block_size=8)


@pytest.mark.parametrize("activation_dtype", ["auto", "int8"])
def test_a_quantised_model_gives_the_same_greedy_tokens_on_every_instruction_set(activation_dtype):
    tokens = []
    for name in INSTRUCTION_SETS:
        model = Model("llama_head96", "auto", "int8", activation_dtype, name)
        tokens.append(model.answers(model.targets()[:1])["greedy"][0])
    assert all(one == tokens[0] for one in tokens)


@pytest.mark.real_model
@pytest.mark.parametrize(
    "formats",
    [("auto", "auto", "auto"), ("float32", "auto", "auto"), ("auto", "int8", "auto"), ("auto", "auto", "int8")],
    ids="-".join,
)
def test_a_real_model_on_any_number_of_threads_in_any_chunks(instruction_set, formats):
    """Rows enough that threads keep their own, and weights large enough that they drift apart."""
    path = octavo_home() / "models" / ALIASES["smollm2"].filename
    if not path.exists():
        pytest.skip(f"{path} is not there")
    model = Model.__new__(Model)
    model.checkpoint = open_checkpoint(path)
    model.program = build_program(model.checkpoint.config)
    model.formats, model.instruction_set = formats, instruction_set
    requests = [
        (f"r{i}", model.prompt(i, 20 + 40 * i), dict(seed=i, max_tokens=4, logprobs=0, prompt_logprobs=0))
        for i in range(5)
    ]
    expected = model.answers(requests, threads=1, max_num_batched_tokens=2048)
    for threads, budget in ((2, 2048), (2, 100), (3, 2048)):
        answers = model.answers(requests, threads=threads, max_num_batched_tokens=budget)
        assert answers == expected, (threads, budget)
