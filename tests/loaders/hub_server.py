"""A tiny model hub on a local port, for tests: files, ranges, redirects, listings, and faults on demand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

REVISION = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """What the server serves, and what it was asked."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """by path, such as /owner/name/resolve/<revision>/x.gguf"""
    redirects: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    """path -> (other URL, headers)"""
    cut_after: list[int] = field(default_factory=list)
    """bytes after which the next responses break off, one for each response"""
    ignore_ranges: bool = False
    requests: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    """(path, Range, Authorization)"""

    def add_repository(self, repository: str, files: dict[str, bytes]) -> None:
        """Files of a repository and its listing; weights are in large-file storage, with a hash."""
        siblings: list[dict[str, Any]] = []
        for name, data in files.items():
            self.files[f"/{repository}/resolve/{REVISION}/{name}"] = data
            entry: dict[str, Any] = {"rfilename": name, "size": len(data)}
            if name.endswith((".gguf", ".safetensors")):
                entry["lfs"] = {"sha256": sha256(data).hexdigest(), "size": len(data)}
            siblings.append(entry)
        self.files[f"/api/models/{repository}?blobs=true"] = json.dumps(
            {"sha": REVISION, "siblings": siblings}
        ).encode()


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Serves until the end of the block."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            hub.requests.append((self.path, asked, self.headers.get("Authorization")))
            if self.path in hub.redirects:
                location, headers = hub.redirects[self.path]
                self.send_response(302)
                for name, value in {"Location": location, "Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
            elif self.path in hub.files:
                self.send_file(hub.files[self.path], asked)
            else:
                self.send_error(404)

        def send_file(self, data: bytes, asked: str | None) -> None:
            match = re.fullmatch(r"bytes=(\d+)-", asked or "")
            start = int(match[1]) if match and not hub.ignore_ranges else 0
            if start >= len(data) > 0:
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            body = data[start:]
            self.wfile.write(body[: hub.cut_after.pop(0)] if hub.cut_after else body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
