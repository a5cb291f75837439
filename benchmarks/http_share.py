"""What is left of the throughput over HTTP: a server with a client against the same engine offline, in turns.

    python benchmarks/http_share.py smollm2 [--concurrency 1,8,32] [--requests 8,16,64] [--rounds 8] [--json]
                                            [--client 'COMMAND'] [--figure output_tokens_per_s] [--serve 'OPTIONS']

Each round asks `octavo serve` for so many answers of 128 tokens to 128, in a closed loop, and before and after it an
engine without a server in a process of its own for the same, so many at once as a call, its prefix cache off, as
`octavo bench throughput` does. `http_share` is the median over rounds of HTTP's output tokens/s over the mean of both
beside it. COMMAND is any client that prints JSON with the figure somewhere in it; {url}, {model}, {concurrency},
{requests} and {seed} are filled in. Every round has a seed of its own: the prefix cache finds nothing.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
from typing import Any

from octavo import LLM, SamplingParams
from octavo.bench.prompts import random_prompts
from octavo.bench.report import make_report, table
from octavo.bench.server_process import ServerProcess

CLIENT = (
    f"{sys.executable} -m octavo bench serve --json --url {{url}} --model {{model}} --concurrency {{concurrency}} "
    "--requests {requests} --seed {seed}"
)
CHORES_SECONDS = 1.0
"""A server that has just become idle makes memory ready for the next requests: not while the other side is measured"""
TOKENS = 128
"""Of each prompt and of each answer"""


def work_offline(model: str) -> None:
    """A child: loads the model and says so. A line asks for so many calls of so many prompts; the answer to it says how
    many output tokens a second they made."""
    with LLM(model, enable_prefix_caching=False, max_draft_tokens=0) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
        print("ready", flush=True)
        for seed, line in enumerate(sys.stdin):
            calls, concurrency = map(int, line.split())
            prompts = random_prompts(calls * concurrency, TOKENS, llm.loaded.vocab_size, seed)
            started = time.perf_counter()
            for first in range(0, len(prompts), concurrency):
                llm.generate(prompts[first : first + concurrency], params)
            print(len(prompts) * TOKENS / (time.perf_counter() - started), flush=True)


class Offline:
    """An engine without a server, in a process of its own."""

    def __init__(self, model: str) -> None:
        words = [sys.executable, __file__, model, "--offline"]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._read()

    def tokens_per_s(self, concurrency: int, requests: int) -> float:
        assert self._process.stdin is not None
        print(max(1, requests // concurrency), concurrency, file=self._process.stdin, flush=True)
        return float(self._read())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the offline engine ended early; its own words are above")
        return line


def find(name: str, value: Any) -> float | None:
    """The first figure of that name, however deep."""
    if isinstance(value, dict):
        if isinstance(value.get(name), int | float):
            return float(value[name])
        value = list(value.values())
    if isinstance(value, list):
        return next((found for entry in value if (found := find(name, entry)) is not None), None)
    return None


def over_http(options: argparse.Namespace, port: int, concurrency: int, requests: int, seed: int) -> float:
    """Output tokens/s of one run of the client."""
    command = options.client.format(
        url=f"http://127.0.0.1:{port}", model=options.model, concurrency=concurrency, requests=requests, seed=seed
    )
    answer = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=True).stdout
    figure = find(options.figure, json.loads(answer))
    if figure is None:
        raise SystemExit(f"the client says nothing of {options.figure}: {answer}")
    return figure


def measure(
    options: argparse.Namespace, offline: Offline, port: int, concurrency: int, requests: int
) -> dict[str, Any]:
    """One row: medians over the rounds."""
    offline.tokens_per_s(concurrency, requests)
    over_http(options, port, concurrency, requests, 1_000_000 * concurrency)
    time.sleep(CHORES_SECONDS)
    before, http, shares = [offline.tokens_per_s(concurrency, requests)], [], []
    for number in range(options.rounds):
        http.append(over_http(options, port, concurrency, requests, 1_000_000 * concurrency + 1 + number))
        time.sleep(CHORES_SECONDS)
        before.append(offline.tokens_per_s(concurrency, requests))
        shares.append(http[-1] / statistics.mean(before[-2:]))
        print(f"{concurrency} at once: {http[-1]:.0f}, share {shares[-1]:.3f}", file=sys.stderr)
    return {
        "concurrency": concurrency,
        "requests": requests,
        "rounds": options.rounds,
        "offline_tokens_per_s": statistics.median(before),
        "http_tokens_per_s": statistics.median(http),
        "http_share": statistics.median(shares),
        "lowest_share": min(shares),
        "highest_share": max(shares),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--concurrency", default="1,8,32", help="numbers with commas between")
    parser.add_argument("--requests", default="8,16,64", help="of each of them in a round")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--client", default=CLIENT)
    parser.add_argument("--figure", default="output_tokens_per_s", help="its name in what the client prints")
    parser.add_argument("--serve", default="", help="more options of octavo serve")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--offline", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.offline:
        work_offline(options.model)
        return
    words = zip(options.concurrency.split(","), options.requests.split(","), strict=True)
    pairs = [(int(concurrency), int(requests)) for concurrency, requests in words]
    offline = Offline(options.model)
    with ServerProcess(options.model, "--max-draft-tokens", "0", *shlex.split(options.serve)) as server:
        rows = [measure(options, offline, server.port, *pair) for pair in pairs]
    offline.close()
    print(json.dumps(make_report("http_share", rows), indent=2) if options.json else table(rows))


if __name__ == "__main__":
    main()
