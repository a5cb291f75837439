"""Servers in processes of their own: signals, TLS, two beside each other."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from small_model import make_small_model
from support.machine import INSTRUCTION_SETS

from octavo.bench.server_process import ServerProcess
from octavo.server.options import ListenOptions


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_small_model(tmp_path_factory.mktemp("process") / "small"))


def test_two_servers_beside_each_other_give_the_same(model: str) -> None:
    """On all cores and on one, with the best instruction set and the least. In float32: sets that multiply bfloat16
    round what others do not."""
    best = ("--dtype", "float32")
    least = (*best, "--threads", "1", "--instruction-set", INSTRUCTION_SETS[0])
    body = {"prompt": "hello", "max_tokens": 20, "seed": 5, "logprobs": 2}
    with ServerProcess(model, *best) as first, ServerProcess(model, *least) as second:
        answers = [
            httpx2.post(f"http://127.0.0.1:{port}/v1/completions", json=body, timeout=60).json()["choices"]
            for port in (first.port, second.port)
        ]
    assert answers[0] == answers[1]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for localhost that its own key has signed."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    subprocess.run(["openssl", "req", *kind, *subject, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return str(cert), str(key)


def test_https_works_and_http_on_it_fails_cleanly(model: str, pair: tuple[str, str]) -> None:
    cert, key = pair
    with ServerProcess(model, "--tls-cert", cert, "--tls-key", key, "--executor", "reference", tls=cert) as server:
        trust = ssl.create_default_context(cafile=cert)
        with httpx2.Client(base_url=f"https://localhost:{server.port}", verify=trust, timeout=60) as client:
            for stream in (False, True):
                body = {"prompt": "hello", "max_tokens": 3, "stream": stream}
                assert client.post("/v1/completions", json=body).status_code == 200
            with pytest.raises(httpx2.TransportError):
                httpx2.get(f"http://localhost:{server.port}/health/live")
            with pytest.raises(httpx2.ConnectError):
                httpx2.get(f"https://localhost:{server.port}/health/live")  # which trusts nobody here
            assert client.get("/health/live").json() == {"status": "live"}
        log = server.log.read_text()
    assert "https://127.0.0.1" in log
    assert "Traceback" not in log


def test_bad_tls_files_are_named_before_the_model_is_loaded(pair: tuple[str, str], tmp_path: Path) -> None:
    cert, key = pair
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for files in ((str(empty), key), (cert, str(empty)), (key, cert), (cert, cert)):
        with pytest.raises(ValueError, match="are no certificate and its key") as caught:
            ListenOptions(tls_cert=files[0], tls_key=files[1])
        assert files[0] in str(caught.value) and files[1] in str(caught.value)
    with pytest.raises(ValueError, match="is not a file"):
        ListenOptions(tls_cert=str(tmp_path / "nowhere"), tls_key=key)
    with pytest.raises(ValueError, match="must both be given"):
        ListenOptions(tls_cert=cert)


def test_a_signal_ends_the_process_cleanly(model: str) -> None:
    """A real process: SIGTERM while nothing runs ends it with 0 and the last word in the log."""
    command = [sys.executable, "-m", "octavo", "serve", model, "--port", "0", "--executor", "reference"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "Octavo serves" in process.stderr.readline()
        assert '"event":"tools"' in process.stderr.readline()
        assert '"event":"listening"' in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert process.returncode == 0, rest
    assert [json.loads(line)["event"] for line in rest.splitlines()] == ["draining", "closed"]
