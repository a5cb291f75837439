"""What transformers computes with the real models, and how an executor is held against it."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from support.steps import Layout, Part, run_greedy

from octavo.executors.interface import Executor
from octavo.program.operations import Program

DATA = Path(__file__).parents[1] / "data"
NAMES = ("gemma3-270m", "smollm2")


@dataclass(frozen=True)
class GoldenPrompt:
    """A prompt, its greedy fp32 continuation, and for each token of it the logprob and the lead in logits."""

    prompt: str
    prompt_token_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]
    gaps: list[float]


def read_goldens(name: str) -> list[GoldenPrompt]:
    """The 20 prompts of a model (scripts/make_real_model_goldens.py)."""
    return [GoldenPrompt(**row) for row in json.loads((DATA / f"golden_{name}.json").read_text())["prompts"]]


def logprobs_in_one_step(
    executor: Executor, program: Program, golden: GoldenPrompt, block_size: int = 16
) -> tuple[list[int], npt.NDArray[np.float64]]:
    """(most likely token, logprob of the golden token) at each place of the continuation, by one prefill."""
    tokens = golden.prompt_token_ids + golden.token_ids[:-1]
    layout = Layout(program, block_size, num_seqs=1, max_len=len(tokens))
    layout.reserve(executor)
    first = len(golden.prompt_token_ids) - 1
    step = layout.step([Part(0, 0, tokens)], logits_rows=range(first, len(tokens)))
    logits = executor.execute(step).astype(np.float64)
    highest = logits.max(axis=-1)
    norms = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=-1))
    chosen = logits[np.arange(len(golden.token_ids)), golden.token_ids]
    return logits.argmax(axis=-1).tolist(), chosen - norms


def greedy_in_a_batch(
    executor: Executor, program: Program, goldens: list[GoldenPrompt], block_size: int = 16
) -> list[list[int]]:
    """64 greedy tokens for every prompt, decoded step by step beside each other."""
    prompts = [golden.prompt_token_ids for golden in goldens]
    new_tokens = len(goldens[0].token_ids)
    layout = Layout(program, block_size, len(prompts), max(map(len, prompts)) + new_tokens)
    layout.reserve(executor)
    return run_greedy(executor, layout, prompts, new_tokens)
