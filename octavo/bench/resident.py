"""Resident memory of a fresh process that has worked: what it holds beyond weights and KV.

python -m octavo.bench.resident OPTIONS    the fields of EngineOptions as JSON; prints one JSON object
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from octavo.config import EngineOptions
from octavo.observe.process import resident_bytes

PROMPTS, PROMPT_TOKENS, OUTPUT_TOKENS = 32, 64, 16
"""Enough for whole steps of the default budget: buffers are as large as they become"""


def measure_resident(options: EngineOptions) -> dict[str, int]:
    """Of a process that loads the model and answers some prompts, in bytes. Raises RuntimeError with its last words
    where it fails.

    beyond_bytes is what is resident beside packed weights and used KV blocks (of block_bytes each): the interpreter,
    libraries, tokenizer, buffers, and whatever of the model's file is still in memory.
    """
    command = [sys.executable, "-m", "octavo.bench.resident", json.dumps(asdict(options))]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"octavo.bench.resident failed with code {done.returncode}: {done.stderr.strip()[-2000:]}")
    measured: dict[str, int] = json.loads(done.stdout)
    return measured


def resident_now(options: EngineOptions) -> dict[str, int]:
    """Loads the model in this process, works, and looks."""
    from octavo.bench.prompts import random_prompts
    from octavo.llm import LLM
    from octavo.loading import load
    from octavo.sampling_params import SamplingParams

    with LLM.from_loaded(load(options)) as llm:
        loaded = llm.loaded
        length = max(1, min(PROMPT_TOKENS, loaded.max_model_len - OUTPUT_TOKENS))
        prompts = random_prompts(PROMPTS, length, loaded.vocab_size, seed=0)
        llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=OUTPUT_TOKENS, ignore_eos=True))
        executor: Any = loaded.executor
        weights = int(getattr(executor, "weight_bytes", loaded.weight_bytes))
        kv = llm.stats().peak_blocks * loaded.block_bytes
        resident = resident_bytes() or 0
        return {
            "resident_bytes": resident,
            "weight_bytes": weights,
            "kv_bytes": kv,
            "block_bytes": loaded.block_bytes,
            "beyond_bytes": resident - weights - kv,
            "file_pages_bytes": _file_pages(),
        }


def _file_pages() -> int:
    """Resident pages of mapped files, libraries among them: part of beyond_bytes, and shared with other processes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssFile:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    print(json.dumps(resident_now(EngineOptions(**json.loads(sys.argv[1])))))
