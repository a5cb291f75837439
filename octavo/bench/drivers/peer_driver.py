"""Runs another engine for `octavo bench compare`, by that engine's own interpreter: it imports nothing of Octavo.

    python peer_driver.py openvino|transformers MODEL THREADS

Prints {"version": ...} when the model is loaded. Then, for each line {"concurrency", "input_len", "output_len", "seed"}
on standard input, computes random prompts greedily, ignoring the end of sequence, and prints {"first_s", "wall_s"}:
seconds to the end of the prefill (null where the engine does not tell it) and to the last token.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import Any


class OpenVino:
    """OpenVINO GenAI's continuous batching, without its prefix cache."""

    def __init__(self, model: str, threads: int) -> None:
        import openvino_genai

        self._genai = openvino_genai
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 4
        scheduler.max_num_batched_tokens = 2048
        scheduler.max_num_seqs = 256
        scheduler.enable_prefix_caching = False
        properties = {"INFERENCE_NUM_THREADS": threads}
        self._pipe = openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)
        self._next_id = 0
        self.version = f"openvino-genai {openvino_genai.__version__}"
        self.vocab_size = len(self._pipe.get_tokenizer().get_vocab())

    def run(self, prompts: Any, output_len: int) -> tuple[float | None, float]:
        """(seconds to the first token of the last prompt, to the last token)."""
        import numpy as np
        import openvino

        config = self._genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = output_len, True, False
        started, first = time.perf_counter(), None
        waiting = []
        for prompt in prompts:
            self._next_id += 1
            ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
            waiting.append(self._pipe.add_request(self._next_id, ids, config))
        handles = list(waiting)
        while self._pipe.has_non_finished_requests():
            self._pipe.step()
            if first is None:
                waiting = [handle for handle in waiting if not handle.can_read()]
                first = None if waiting else time.perf_counter() - started
        wall = time.perf_counter() - started
        del handles
        return first, wall


class Transformers:
    """generate() of transformers on torch's CPU, in bfloat16, all prompts as one static batch."""

    def __init__(self, model: str, threads: int) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        self._torch = torch
        self._model = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()
        self.version = f"transformers {transformers.__version__}, torch {torch.__version__}"
        self.vocab_size = int(self._model.config.get_text_config().vocab_size)

    def run(self, prompts: Any, output_len: int) -> tuple[float | None, float]:
        """(seconds to the first logits, to the last token)."""
        ids = self._torch.tensor(prompts)
        times: list[float] = []

        def note_time(_ids: Any, scores: Any) -> Any:
            times.append(time.perf_counter())
            return scores

        started = time.perf_counter()
        with self._torch.inference_mode():
            self._model.generate(
                ids,
                attention_mask=self._torch.ones_like(ids),
                max_new_tokens=output_len,
                min_new_tokens=output_len,
                do_sample=False,
                pad_token_id=0,
                logits_processor=[note_time],
            )
        return times[0] - started, time.perf_counter() - started


def main() -> None:
    kind, model, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # Libraries write to standard output; it is this program's own from here on.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    engine: Any = {"openvino": OpenVino, "transformers": Transformers}[kind](model, threads)
    print(json.dumps({"version": engine.version}), file=answers, flush=True)
    for line in sys.stdin:
        work = json.loads(line)
        chance = random.Random(work["seed"])
        prompts = [
            [chance.randrange(engine.vocab_size) for _ in range(work["input_len"])] for _ in range(work["concurrency"])
        ]
        first, wall = engine.run(prompts, work["output_len"])
        print(json.dumps({"first_s": first, "wall_s": wall}), file=answers, flush=True)


if __name__ == "__main__":
    main()
