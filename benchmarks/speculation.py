"""Drafts from a sequence's own tokens (--max-draft-tokens): what they gain, by kind of text, beside the same without.

    python benchmarks/speculation.py smollm2 [--streams 1,4,32] [--temperatures 0,0.8] [--output-len 128] [--rounds 5]
                                             [--max-draft-tokens 8] [--json]

Kinds: random token ids, whose greedy answers soon repeat themselves; questions; text to summarise and code to rewrite,
both of this repository. Two engines with all cores each take turns, a call of `streams` requests each, every answer of
the same length; wall clock with prefill. `ratio` is the median over rounds of the time without drafts over that with,
`accepted_share` what part of the drafted tokens was right, `tokens_by_drafts` what part of the answers they made. Both
must have the same tokens: a difference is an error.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from octavo import LLM, SamplingParams
from octavo.bench.prompts import random_prompts
from octavo.bench.report import make_report, table

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("random", "questions", "summaries", "code")
QUESTIONS = (
    "Write a short story about a fox.",
    "Explain how plants make sugar from light.",
    "List ten animals with a sentence about each.",
    "What is the capital of France, and what is it known for?",
    "Tell me about the sea.",
    "How do I bake bread?",
    "Write a poem about rain.",
    "Why is the sky blue?",
)
EXCERPT = 1500
"""Characters of text or code in a prompt"""


def conversations(kind: str) -> list[list[dict[str, str]]]:
    """Requests of one kind, as many as there happen to be."""
    if kind == "questions":
        asked = list(QUESTIONS)
    elif kind == "summaries":
        text = "\n".join((ROOT / "docs" / name).read_text() for name in ("server.md", "operations.md", "memory.md"))
        parts = [text[first : first + EXCERPT] for first in range(0, len(text) - EXCERPT, EXCERPT)]
        asked = [f"Summarize this text:\n{part}" for part in parts]
    else:
        files = sorted((ROOT / "octavo" / "engine").glob("*.py"))
        asked = [f"Add type comments to this code:\n```python\n{file.read_text()[:EXCERPT]}\n```" for file in files]
    return [[{"role": "user", "content": content}] for content in asked]


def run(llm: LLM, kind: str, streams: int, number: int, params: SamplingParams) -> tuple[float, list[list[int]]]:
    """Seconds of one call, and the tokens that it made."""
    if kind == "random":
        prompts = random_prompts(streams, 128, llm.loaded.vocab_size, seed=number)
        started = time.perf_counter()
        outputs = llm.generate(prompts, params)
    else:
        chosen = list(islice(cycle(conversations(kind)), number * streams, (number + 1) * streams))
        started = time.perf_counter()
        outputs = llm.chat(chosen, params)
    return time.perf_counter() - started, [list(output.outputs[0].token_ids) for output in outputs]


def measure(plain: LLM, drafting: LLM, kind: str, streams: int, temperature: float, options: Any) -> dict[str, Any]:
    """A row of the table."""
    without, with_drafts, before = [], [], drafting.stats()
    for number in range(options.rounds):
        params = SamplingParams(temperature=temperature, seed=number, max_tokens=options.output_len, ignore_eos=True)
        seconds, tokens = run(plain, kind, streams, number, params)
        without.append(seconds)
        seconds, drafted = run(drafting, kind, streams, number, params)
        with_drafts.append(seconds)
        if drafted != tokens:
            raise AssertionError(f"{kind}, {streams} streams, temperature {temperature}: drafts changed the tokens")
    after, produced = drafting.stats(), streams * options.output_len
    accepted = after.accepted_tokens - before.accepted_tokens
    return {
        "kind": kind,
        "temperature": temperature,
        "streams": streams,
        "tokens_per_s": produced / statistics.median(without),
        "drafting_tokens_per_s": produced / statistics.median(with_drafts),
        "ratio": statistics.median(a / b for a, b in zip(without, with_drafts, strict=True)),
        "accepted_share": accepted / max(1, after.drafted_tokens - before.drafted_tokens),
        "tokens_by_drafts": accepted / (produced * options.rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--streams", default="1,4,32")
    parser.add_argument("--temperatures", default="0,0.8")
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-draft-tokens", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    settings: dict[str, Any] = {"kv_cache_memory": "1GiB", "enable_prefix_caching": False}
    with (
        LLM(options.model, max_draft_tokens=0, **settings) as plain,
        LLM(options.model, max_draft_tokens=options.max_draft_tokens, **settings) as drafting,
    ):
        rows = []
        for streams in map(int, options.streams.split(",")):
            for kind in KINDS:
                for temperature in map(float, options.temperatures.split(",")):
                    print(f"{streams} streams, {kind}, temperature {temperature}", file=sys.stderr, flush=True)
                    rows.append(measure(plain, drafting, kind, streams, temperature, options))
    print(json.dumps(make_report("speculation", rows), indent=2) if options.json else table(rows))


if __name__ == "__main__":
    main()
