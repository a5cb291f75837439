"""What `make demo` runs: three questions, answered together."""

import sys
import time

from octavo import LLM, SamplingParams

QUESTIONS = [
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Name three primary colours.",
]


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
    started = time.perf_counter()
    with LLM(model) as llm:
        loaded = time.perf_counter() - started
        conversations = [[{"role": "user", "content": question}] for question in QUESTIONS]
        outputs = llm.chat(conversations, SamplingParams(temperature=0.0, max_tokens=48))
        elapsed = time.perf_counter() - started - loaded
    for question, output in zip(QUESTIONS, outputs, strict=True):
        print(f"> {question}\n{output.outputs[0].text.strip()}\n")
    tokens = sum(output.metrics.num_output_tokens for output in outputs)
    print(f"{model}: loaded in {loaded:.2f} s; {len(outputs)} answers of {tokens} tokens in {elapsed:.2f} s.")
    print(f'Now yours: .venv/bin/octavo run {model} "your prompt"   (without a prompt: a chat)')


if __name__ == "__main__":
    main()
