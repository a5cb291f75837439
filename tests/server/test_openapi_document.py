"""schemathesis makes requests from the OpenAPI document, right ones and wrong ones: no fault, no hang, no leak."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.running_server import Running

SECONDS = 20
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)


def test_requests_made_from_the_document(small: Running, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from schemathesis.cli import schemathesis; schemathesis()",
        "run",
        f"http://127.0.0.1:{small.port}/openapi.json",
        f"--max-time={SECONDS}",
        "--phases=coverage,fuzzing",
        "--request-timeout=20",
        "--seed=1",
        "--no-color",
        f"--checks={','.join(CHECKS)}",
        "--exclude-path=/v1/kv/events",  # it does not end
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=10 * SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2000:]
    assert " generated" in done.stdout and "/v1/chat/completions" in small.client.get("/openapi.json").json()["paths"]
    small.assert_well()
