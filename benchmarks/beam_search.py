"""What `octavo bench beams` measures, through transformers' generate or through vLLM.

    PYTHONPATH=. python benchmarks/beam_search.py transformers|vllm MODEL_DIRECTORY [--width 4] [--threads 2]

Needs the engine that it names, which Octavo does not. Sampling of `width` answers and beam search of `width` beams take
turns; the end of sequence is never chosen. vLLM takes its threads and its memory from the environment
(VLLM_CPU_OMP_THREADS_BIND, VLLM_CPU_KVCACHE_SPACE).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from octavo.bench.report import table

KINDS = ("sampling", "beams")
Generate = Callable[[str, list[int], int], None]
"""Of a kind, a prompt's ids and an output length."""


def transformers_generate(options: argparse.Namespace) -> tuple[Generate, int]:
    """The call to be timed, and the size of the vocabulary."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype)).eval()
    kinds = {
        "sampling": {"do_sample": True, "num_return_sequences": options.width},
        "beams": {"do_sample": False, "num_beams": options.width, "num_return_sequences": options.width},
    }

    def generate(kind: str, ids: list[int], output_len: int) -> None:
        length = {"min_new_tokens": output_len, "max_new_tokens": output_len, "pad_token_id": 0}
        with torch.inference_mode():
            prompt = torch.tensor([ids])
            model.generate(prompt, attention_mask=torch.ones_like(prompt), **length, **kinds[kind])

    return generate, model.config.vocab_size


def vllm_generate(options: argparse.Namespace) -> tuple[Generate, int]:
    """The same of vLLM, with its prefix cache on: it sends every beam of every step as a new prompt."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import BeamSearchParams

    llm = LLM(options.model, dtype=options.dtype, max_model_len=2048, enable_prefix_caching=True)

    def generate(kind: str, ids: list[int], output_len: int) -> None:
        prompt = {"prompt_token_ids": ids}
        if kind == "beams":
            beams = BeamSearchParams(beam_width=options.width, max_tokens=output_len, ignore_eos=True)
            llm.beam_search([prompt], beams)
        else:
            samples = SamplingParams(n=options.width, max_tokens=output_len, ignore_eos=True, detokenize=False)
            llm.generate([prompt], samples, use_tqdm=False)

    return generate, llm.model_config.get_vocab_size()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=("transformers", "vllm"))
    parser.add_argument("model")
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--input-len", type=int, default=256)
    parser.add_argument("--output-len", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="float32", choices=("bfloat16", "float32"))
    options = parser.parse_args()
    make = transformers_generate if options.engine == "transformers" else vllm_generate
    generate, vocab_size = make(options)

    def seconds(kind: str, seed: int, output_len: int) -> float:
        ids = np.random.default_rng(seed).integers(0, vocab_size, options.input_len).tolist()
        started = time.perf_counter()
        generate(kind, ids, output_len)
        return time.perf_counter() - started

    for kind in KINDS:
        seconds(kind, 0, 4)
    rounds = []
    for number in range(1, options.repeat + 1):
        # Prompts of their own: no kind finds the other's in a prefix cache.
        rounds.append({kind: seconds(kind, 2 * number + at, options.output_len) for at, kind in enumerate(KINDS)})
    rows = []
    for kind in KINDS:
        elapsed = statistics.median(times[kind] for times in rounds)
        rows.append(
            {
                "kind": f"{options.engine}, {kind}",
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
