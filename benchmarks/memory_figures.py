"""The measured figures of docs/memory.md that need a quiet machine, one after the other.

    python benchmarks/memory_figures.py OUT [--part engine ...] [--threads 2]
        [--peer-python PYTHON --peer-model DIRECTORY]

Run it by the Python that Octavo is installed in. PYTHON is one that has torch and transformers, DIRECTORY the same
model as safetensors; without them the peers are left out. Tables go to OUT, plots to docs/memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("engine", "static", "beams", "peer-beams", "system-prompt", "sharing", "tune")


def commands(options: argparse.Namespace) -> dict[str, list[str]]:
    """Part -> command line."""
    octavo = [sys.executable, "-m", "octavo"]
    threads = ["--threads", str(options.threads)]
    size = ["--scale", str(options.scale), "--requests", str(options.requests)]
    memory = [*octavo, "bench", "memory", options.model, "--json", *threads]
    plots = ["--plots", str(ROOT / "docs" / "memory")]
    parts = {
        "engine": [*memory, "--part", "engine", "--block-size", "32", *size, *plots],
        "beams": [*octavo, "bench", "beams", options.model, "--repeat", "2", "--json", *threads],
        "system-prompt": [*memory, "--part", "system-prompt", "--kv-cache-memory", "1GiB"],
        "sharing": [*memory, "--part", "sharing", "--kv-cache-memory", "1GiB"],
        "tune": [*octavo, "tune", options.model, *threads],
    }
    if options.peer_python is not None:
        peer = [options.peer_python, str(ROOT / "benchmarks")]
        parts["static"] = [peer[0], f"{peer[1]}/static_batching.py", options.peer_model, *size, *threads]
        parts["peer-beams"] = [peer[0], f"{peer[1]}/beam_search.py", options.peer_model, "--repeat", "1", *threads]
    return {name: parts[name] for name in options.parts or PARTS if name in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", dest="parts", choices=PARTS, action="append", help="may be repeated; default: all")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--scale", type=float, default=0.5)
    parser.add_argument("--peer-python")
    parser.add_argument("--peer-model")
    options = parser.parse_args()
    if (options.peer_python is None) != (options.peer_model is None):
        parser.error("--peer-python and --peer-model: give both or neither")
    options.out.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for name, command in commands(options).items():
        started = time.perf_counter()
        print(f"{name}: {' '.join(command)}", flush=True)
        with (options.out / f"{name}.txt").open("w") as output:
            result = subprocess.run(command, stdout=output, env=environment, check=False)
        print(f"{name}: exit {result.returncode} after {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
