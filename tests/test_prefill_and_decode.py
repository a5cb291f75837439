"""F15: a token's logprob is the same bits whether it was sampled or is read back as part of a prompt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.machine import INSTRUCTION_SETS
from support.quantize import quantize
from support.weights import ArrayCheckpoint, random_checkpoint, small_config

from octavo.engine.engine import Engine, EngineConfig, Request
from octavo.executors.native import NativeExecutor
from octavo.models.registry import build_program
from octavo.sampling.sampler import Sampler
from octavo.sampling_params import SamplingParams

LENGTHS = (31, 63, 64, 126, 251, 255)
"""Eight tokens more cross the ends of blocks, tiles and, at 256, of a partition of the attention"""


def make_engine(instruction_set: str, dtype: Any, kv_cache_dtype: Any, activation_dtype: Any) -> Engine:
    program = build_program(small_config(max_position_embeddings=400, hidden_size=64))
    checkpoint = random_checkpoint(program)
    if dtype == "auto":
        tensors: dict[str, Any] = dict(checkpoint.tensors)
        for name, source in checkpoint.tensors.items():
            if len(source.shape) == 2 and source.shape[1] % 32 == 0:
                tensors[name] = quantize(source.array, "Q4_1")
        checkpoint = ArrayCheckpoint(tensors)
    executor = NativeExecutor(program, checkpoint, dtype, 2, instruction_set, kv_cache_dtype, activation_dtype)
    sampler = Sampler(program.vocab_size, executor.thread_team, instruction_set=instruction_set)
    return Engine(executor, sampler, program, EngineConfig(num_blocks=500, block_size=16, max_model_len=400), ())


def run(engine: Engine, prompts: list[list[int]], **params: Any) -> list[tuple[list[int], list[float], list[Any]]]:
    """(tokens, their logprobs, prompt logprobs) of each prompt, computed together."""
    for number, prompt in enumerate(prompts):
        engine.add_request(Request(str(number), prompt, SamplingParams(temperature=0, logprobs=0, **params)))
    answers: list[tuple[list[int], list[float], list[Any]]] = [([], [], []) for _ in prompts]
    while engine.has_unfinished:
        for update in engine.step():
            tokens, logprobs, scores = answers[int(update.request_id)]
            assert update.logprobs is not None
            tokens.append(update.token_id)
            logprobs.append(update.logprobs.logprob)
            scores += update.prompt_logprobs or []
    return answers


@pytest.mark.parametrize(
    "formats",
    [
        ("auto", "auto", "auto"),
        ("bfloat16", "auto", "auto"),
        ("float32", "auto", "auto"),
        ("auto", "int8", "auto"),
        ("float32", "int8", "auto"),
        ("auto", "auto", "int8"),
    ],
    ids="-".join,
)
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_prefill_and_decode_give_the_same_logprobs(instruction_set: str, formats: tuple[str, str, str]) -> None:
    engine = make_engine(instruction_set, *formats)
    generator = np.random.default_rng(0)
    prompts = [generator.integers(3, 60, length).tolist() for length in LENGTHS]
    together = run(engine, prompts, max_tokens=8)
    for prompt, (tokens, logprobs, _) in zip(prompts, together, strict=True):
        ((alone, alone_logprobs, _),) = run(engine, [prompt], max_tokens=8)
        assert (alone, alone_logprobs) == (tokens, logprobs)
        ((_, _, scores),) = run(engine, [prompt + tokens], max_tokens=1, prompt_logprobs=0)
        assert [entry.logprob for entry in scores[len(prompt) :]] == logprobs
    engine.executor.close()
