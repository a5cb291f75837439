"""What the engine promises of the two real models, through LLM and `octavo`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.real_models import DATA, NAMES, read_goldens

from octavo import LLM, SamplingParams
from octavo.executors.native import NativeExecutor
from octavo.loaders.aliases import ALIASES
from octavo.loaders.checkpoint import open_checkpoint
from octavo.loaders.hub import octavo_home
from octavo.memory import core_facts, resident_bytes
from octavo.models.registry import build_program

pytestmark = pytest.mark.real_model


def real_model(name: str) -> str:
    path = octavo_home() / "models" / ALIASES[name].filename
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return str(path)


@pytest.mark.parametrize(("name", "every"), [("smollm2", 1), ("gemma3-270m", 5)])
def test_float32_equals_transformers_token_for_token(name: str, every: int) -> None:
    """Prompts of 64 new tokens, together in one engine; the chosen logprobs within 1e-3.

    Not all of Gemma's, for time: tests/models/test_real_model_goldens.py holds every one of them, by prefill.
    """
    goldens = read_goldens(name)[::every]
    params = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True, logprobs=0)
    with LLM(real_model(name), dtype="float32", kv_cache_memory="1GiB", max_model_len=512) as llm:
        outputs = llm.generate([golden.prompt_token_ids for golden in goldens], params)
    assert len(outputs) == 20 // every
    for golden, output in zip(goldens, outputs, strict=True):
        completion = output.outputs[0]
        assert completion.token_ids == golden.token_ids
        assert completion.logprobs is not None
        chosen = [entry[token].logprob for token, entry in zip(completion.token_ids, completion.logprobs, strict=True)]
        np.testing.assert_allclose(chosen, golden.logprobs, atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_default_format_is_close_to_float32_on_real_text(name: str) -> None:
    """2,000 positions: mean KL at most 0.01 nats, the same most likely token in 97 % of them."""
    checkpoint = open_checkpoint(Path(real_model(name)))
    program = build_program(checkpoint.config)
    token_ids = json.loads((DATA / f"real_text_{name}.json").read_text())
    assert len(token_ids) == 2000
    threads = core_facts().usable
    executors = [NativeExecutor(program, checkpoint, dtype, threads) for dtype in ("auto", "float32")]
    result = measure_kl().measure(*executors, program, token_ids)
    for executor in executors:
        executor.close()
    assert len(result.kl) == 2000
    assert result.kl.mean() <= 0.01
    assert result.same_top.mean() >= 0.97


def measure_kl() -> Any:
    """scripts/measure_kl.py as a module."""
    path = Path(__file__).parents[1] / "scripts" / "measure_kl.py"
    spec = importlib.util.spec_from_file_location("measure_kl_of_real_models", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_kv_memory_is_given_back() -> None:
    """Resident memory grows with what requests use and falls again when they are gone and the cache is dropped."""
    prompts = [[100 + number, *([200] * 900)] for number in range(3)]
    with LLM(real_model("smollm2"), kv_cache_memory="1GiB", block_size=16) as llm:
        llm.generate(prompts, SamplingParams(max_tokens=1))  # whatever else such steps allocate
        llm.reset_prefix_cache()
        assert llm.stats().committed_blocks == 0
        before = resident_bytes() or 0
        llm.generate(prompts, SamplingParams(max_tokens=1))
        used = llm.stats().cached_blocks * llm.loaded.block_bytes
        with_cache = resident_bytes() or 0
        assert llm.reset_prefix_cache() > 0
        after = resident_bytes() or 0
    assert used > 50_000_000
    assert with_cache - before > 0.8 * used
    assert after - before < 0.2 * used


def test_run_answers_soon() -> None:
    """A fresh process answers. The bound is loose, for the machine may be busy; `octavo bench startup` measures."""
    command = [sys.executable, "-m", "octavo", "run", real_model("smollm2"), "What is the capital of France?"]
    started = time.perf_counter()
    with subprocess.Popen([*command, "--max-tokens", "4"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 1)
        first = time.perf_counter() - started
        process.stdout.read()
        assert process.wait() == 0
    assert first < 30


def test_file_of_requests_over_the_real_model(tmp_path: Path) -> None:
    """Text, ids and messages in; a bad line is an error object in its place, and the exit code is 1."""
    lines = [
        {"prompt": "The capital of France is", "max_tokens": 5, "temperature": 0, "logprobs": 1, "prompt_logprobs": 1},
        {"prompt": [504, 3575, 282, 4649, 314], "max_tokens": 3, "temperature": 0, "id": "ids"},
        {"prompt": "x", "temperature": -1},
        {"messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 4, "seed": 1},
    ]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(map(json.dumps, lines)))
    command = [sys.executable, "-m", "octavo", "generate", real_model("smollm2")]
    done = subprocess.run(
        [*command, "--input", str(source), "--output", str(target)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    text, ids, bad, chat = map(json.loads, target.read_text().splitlines())
    assert " Paris" in text["text"]
    assert len(text["token_ids"]) == len(text["logprobs"]) == 5
    assert len(text["prompt_logprobs"]) == len(text["prompt_token_ids"])
    assert text["prompt_logprobs"][0] is None
    assert text["finish_reason"] == "length"
    assert ids["id"] == "ids" and ids["prompt_token_ids"] == lines[1]["prompt"] and len(ids["token_ids"]) == 3
    assert bad["error"]["line"] == 3 and "temperature" in bad["error"]["message"] and "-1" in bad["error"]["message"]
    assert chat["token_ids"] and chat["prompt_token_ids"]
