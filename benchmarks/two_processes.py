"""Two engines on one machine at once, against one alone: do they share it, or hold each other up?

    python benchmarks/two_processes.py smollm2 [--threads 2,1] [--streams 8] [--seconds 10] [--rounds 3] [--json]

For each number of threads (0: as many as an engine takes by itself) and each round, one engine works alone for some
seconds, then two at once, both started at the same moment. `sum_ratio` is the throughput of both together over that of
one alone: 1 where they only share the cores, less where they disturb each other. `worst_ratio` is the slower one's over
half of one's alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

from octavo import LLM, SamplingParams
from octavo.bench.prompts import random_prompts
from octavo.bench.report import make_report, table


def work(model: str, threads: int, streams: int) -> None:
    """A child: loads the model and says so; then works for as many seconds as a line asks for, and says how many tokens
    a second that made."""
    with LLM(
        model, threads=threads or None, enable_prefix_caching=False, kv_cache_memory="256MiB", max_draft_tokens=0
    ) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)
        prompts = random_prompts(streams, 16, llm.loaded.vocab_size, seed=0)
        llm.generate(prompts, params)
        print("ready", flush=True)
        for line in sys.stdin:
            deadline, tokens, started = time.perf_counter() + float(line), 0, time.perf_counter()
            while time.perf_counter() < deadline:
                llm.generate(prompts, params)
                tokens += streams * 32
            print(tokens / (time.perf_counter() - started), flush=True)


class Child:
    """An engine in a process of its own."""

    def __init__(self, options: argparse.Namespace, threads: int) -> None:
        words = [options.model, "--child", "--threads", str(threads), "--streams", str(options.streams)]
        self.process = subprocess.Popen(
            [sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.read()

    def start(self, seconds: float) -> None:
        assert self.process.stdin is not None
        print(seconds, file=self.process.stdin, flush=True)

    def read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("an engine ended early; its own words are above")
        return line

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(options: argparse.Namespace, threads: int) -> dict[str, Any]:
    """Medians over the rounds."""
    children = [Child(options, threads) for _ in range(2)]
    alone, both, worst = [], [], []
    for _ in range(options.rounds):
        children[0].start(options.seconds)
        alone.append(float(children[0].read()))
        for child in children:
            child.start(options.seconds)
        speeds = [float(child.read()) for child in children]
        both.append(sum(speeds))
        worst.append(min(speeds))
    for child in children:
        child.close()
    one = statistics.median(alone)
    return {
        "threads_each": threads or "all",
        "alone_tokens_per_s": one,
        "both_tokens_per_s": statistics.median(both),
        "sum_ratio": statistics.median(both) / one,
        "worst_ratio": statistics.median(worst) / (one / 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--threads", default="0,1", help="numbers with commas between")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        work(options.model, int(options.threads), options.streams)
        return
    rows = [measure(options, int(threads)) for threads in options.threads.split(",")]
    print(json.dumps(make_report("two_processes", rows), indent=2) if options.json else table(rows))


if __name__ == "__main__":
    main()
