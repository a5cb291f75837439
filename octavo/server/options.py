"""What a user may say about the server, checked once."""

from __future__ import annotations

import math
import os
import re
import ssl
from dataclasses import dataclass, fields
from pathlib import Path

from octavo.tools.style import AUTO, FORMAT_NAMES

KEY_VARIABLE = "OCTAVO_API_KEYS"
MAX_STREAM_INTERVAL = 10.0
_KEY = re.compile(r"[\x21-\x7e]{1,512}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How requests are taken in and let go. Raises ValueError at construction, with field, value and limit."""

    model_names: tuple[str, ...] = ()
    """Names that requests may use for the model, the first one in answers; none: the name it was loaded by"""
    api_keys: tuple[str, ...] = ()
    """Any of them opens every route; none: no key is asked for"""
    max_queued_requests: int = 256
    """Sequences that may wait for their first token (a request with n=4 is four)"""
    max_queued_tokens: int = 262_144
    """Prompt tokens that may wait"""
    max_prompts: int = 256
    """Prompts of one completion request"""
    max_body_bytes: int = 4 * 2**20
    max_connections: int = 1000
    """Past it a connection is closed with 503"""
    head_seconds: float = 10.0
    """Time for a request's head to arrive, from its first byte or a new connection's start"""
    body_seconds: float = 30.0
    """Time for a request's body to arrive"""
    keep_alive_seconds: float = 5.0
    """An idle connection is closed after so long"""
    request_seconds: float = 600.0
    """A request's deadline, where it asks for none or for a later one"""
    stream_interval: float = 0.05
    """Seconds between the events of a prompt's stream, or 0: tokens that come faster are sent together, which spares
    the processor for the engine"""
    slow_client_seconds: float = 30.0
    """A stream whose reader takes nothing for so long is dropped"""
    stall_seconds: float = 30.0
    """Not ready when there is work and no step has ended for so long"""
    drain_seconds: float = 30.0
    """At SIGTERM, running requests may go on for so long"""
    cors_origins: tuple[str, ...] = ()
    """Web origins that may call; none: CORS is off"""
    log_prompts: bool = False
    """Write prompts' text into the log"""
    tool_format: str = AUTO
    """How the model writes calls of functions, one of FORMAT_NAMES; auto: as its chat template says"""

    def __post_init__(self) -> None:
        if not 0 <= self.stream_interval <= MAX_STREAM_INTERVAL:
            raise ValueError(f"stream_interval={self.stream_interval!r}: must be from 0 to {MAX_STREAM_INTERVAL:g}")
        for field in fields(self):
            if field.name == "stream_interval":
                continue
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                if not all(isinstance(entry, str) and entry for entry in value):
                    raise ValueError(f"{field.name}: must be texts that are not empty")
            elif isinstance(value, float | int) and not isinstance(value, bool) and not 0 < value < math.inf:
                raise ValueError(f"{field.name}={value!r}: must be a number above 0")
        if self.tool_format not in FORMAT_NAMES:
            raise ValueError(f"tool_format={self.tool_format!r}: must be one of {', '.join(FORMAT_NAMES)}")
        for number, key in enumerate(self.api_keys):
            if not _KEY.fullmatch(key):
                raise ValueError(f"api_keys[{number}]: must be 1 to 512 visible ASCII characters without spaces")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """Where the server listens."""

    host: str = "127.0.0.1"
    port: int = 8000
    tls_cert: str | None = None
    tls_key: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port={self.port}: must be from 0 to 65535")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key: must both be given, or neither")
        for name in ("tls_cert", "tls_key"):
            path = getattr(self, name)
            if path is not None and not Path(path).is_file():
                raise ValueError(f"{name}={path!r}: is not a file")
        if self.tls_cert is not None:
            self._check_pair()

    def _check_pair(self) -> None:
        """Now, and not when the model has been loaded."""
        assert self.tls_cert is not None
        try:
            # A password would be asked for on the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.tls_cert, self.tls_key, password="")
        except OSError as error:
            why = getattr(error, "reason", None) or error
            raise ValueError(
                f"tls_cert={self.tls_cert!r}, tls_key={self.tls_key!r}: are no certificate and its key in PEM "
                f"without a password ({why})"
            ) from None


def read_api_keys(path: str | None) -> tuple[str, ...]:
    """Keys of a file (one a line, # begins a comment) and of OCTAVO_API_KEYS (commas between).

    ValueError where a file was named and it holds none: the server must not open up by mistake.
    """
    keys = [key.strip() for key in os.environ.get(KEY_VARIABLE, "").split(",")]
    if path is not None:
        lines = [line.split("#", 1)[0].strip() for line in Path(path).read_text().splitlines()]
        if not any(lines):
            raise ValueError(f"{path}: has no key")
        keys += lines
    return tuple(dict.fromkeys(key for key in keys if key))
