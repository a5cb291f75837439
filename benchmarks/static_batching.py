"""The trace of `octavo bench memory --part engine` through transformers' generate, batched statically.

    PYTHONPATH=. python benchmarks/static_batching.py MODEL_DIRECTORY [--seconds 150] [--scale 0.5] [--threads 2]

Needs torch and transformers, which Octavo does not. Requests form batches in order of arrival, as many as fit the
memory when each is given room for the longest request; a batch is padded, and runs until its longest output is
there. Only the tokens that a request asked for count. Batches start until `--seconds` have passed.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from octavo.bench.lengths import MAX_LENGTH, SHAREGPT
from octavo.bench.memory_simulation import POOL_SLOTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--scale", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="float32", choices=("bfloat16", "float32"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype)).eval()
    trace = SHAREGPT.sample(options.requests, 0).scaled(options.scale)
    batch = int(POOL_SLOTS * options.scale) // int(MAX_LENGTH * options.scale)
    rng = np.random.default_rng(0)
    useful, held, slots = 0, 0, 0
    started, cpu_started = time.perf_counter(), time.process_time()
    for first in range(0, options.requests, batch):
        prompts, outputs = trace.prompts[first : first + batch], trace.outputs[first : first + batch]
        width, length = int(prompts.max()), int(outputs.max())
        ids = torch.from_numpy(rng.integers(100, model.config.vocab_size, (len(prompts), width)))
        mask = torch.from_numpy((np.arange(width) >= width - prompts[:, None]).astype(np.int64))
        with torch.inference_mode():
            model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,
                min_new_tokens=length,
                max_new_tokens=length,
                pad_token_id=0,
            )
        useful += int(outputs.sum())
        for step in range(length):
            held += int((prompts + np.minimum(step, outputs))[outputs > step].sum())
        slots += length * int(POOL_SLOTS * options.scale)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
        print(
            f"{first + len(prompts)} requests: {useful / seconds:.1f} tokens/s, {useful / cpu:.1f} per CPU second, "
            f"{held / slots:.1%} of the memory holds tokens of requests that run",
            flush=True,
        )
        if seconds > options.seconds:
            break


if __name__ == "__main__":
    main()
