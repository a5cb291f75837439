"""What `octavo bench beams` measures, through transformers' generate.

    PYTHONPATH=. python benchmarks/beam_search.py MODEL_DIRECTORY [--width 4] [--threads 2]

Needs torch and transformers, which Octavo does not. Sampling of `width` answers and beam search of `width` beams take
turns; the end of sequence is never chosen.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from octavo.bench.report import table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--input-len", type=int, default=256)
    parser.add_argument("--output-len", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="float32", choices=("bfloat16", "float32"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype)).eval()
    kinds = {
        "sampling": {"do_sample": True, "num_return_sequences": options.width},
        "beams": {"do_sample": False, "num_beams": options.width, "num_return_sequences": options.width},
    }

    def seconds(kind: str, seed: int, output_len: int) -> float:
        ids = np.random.default_rng(seed).integers(0, model.config.vocab_size, (1, options.input_len))
        length = {"min_new_tokens": output_len, "max_new_tokens": output_len, "pad_token_id": 0}
        started = time.perf_counter()
        with torch.inference_mode():
            prompt = torch.from_numpy(ids)
            model.generate(prompt, attention_mask=torch.ones_like(prompt), **length, **kinds[kind])
        return time.perf_counter() - started

    for kind in kinds:
        seconds(kind, 0, 4)
    rounds = [{kind: seconds(kind, number, options.output_len) for kind in kinds} for number in range(options.repeat)]
    rows = []
    for kind in kinds:
        elapsed = statistics.median(times[kind] for times in rounds)
        rows.append(
            {
                "kind": f"transformers, {kind}",
                "width": options.width,
                "input_len": options.input_len,
                "output_len": options.output_len,
                "elapsed_s": elapsed,
                "tokens_per_s": options.width * options.output_len / elapsed,
                "against_sampling_ratio": statistics.median(times[kind] / times["sampling"] for times in rounds),
            }
        )
    print(table(rows))


if __name__ == "__main__":
    main()
