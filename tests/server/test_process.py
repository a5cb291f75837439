"""Servers in processes of their own: signals, TLS, two beside each other."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import httpx2
import pytest
from small_model import make_small_model
from support.machine import INSTRUCTION_SETS

from octavo.bench.server_process import ServerProcess


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_small_model(tmp_path_factory.mktemp("process") / "small"))


def test_two_servers_beside_each_other_give_the_same(model: str) -> None:
    """On all cores and on one, with the best instruction set and the least."""
    least = ("--threads", "1", "--instruction-set", INSTRUCTION_SETS[0])
    body = {"prompt": "hello", "max_tokens": 20, "seed": 5, "logprobs": 2}
    with ServerProcess(model) as first, ServerProcess(model, *least) as second:
        answers = [
            httpx2.post(f"http://127.0.0.1:{port}/v1/completions", json=body, timeout=60).json()["choices"]
            for port in (first.port, second.port)
        ]
    assert answers[0] == answers[1]


def test_a_signal_ends_the_process_cleanly(model: str) -> None:
    """A real process: SIGTERM while nothing runs ends it with 0 and the last word in the log."""
    command = [sys.executable, "-m", "octavo", "serve", model, "--port", "0", "--executor", "reference"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "Octavo serves" in process.stderr.readline()
        assert '"event":"listening"' in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert process.returncode == 0, rest
    assert [json.loads(line)["event"] for line in rest.splitlines()] == ["draining", "closed"]
