"""Options of the server are checked when they are built."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.server.options import ListenOptions, ServerOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_queued_requests": 0}, "max_queued_requests=0"),
        ({"request_seconds": float("nan")}, "request_seconds=nan"),
        ({"head_seconds": -1.0}, "head_seconds=-1.0"),
        ({"stream_interval": -0.1}, "stream_interval=-0.1"),
        ({"stream_interval": 11.0}, "stream_interval=11.0: must be from 0 to 10"),
        ({"stream_interval": float("nan")}, "stream_interval=nan"),
        ({"api_keys": ("two words",)}, r"api_keys\[0\]"),
        ({"model_names": ("",)}, "model_names"),
        ({"tool_format": "yaml"}, "tool_format='yaml'"),
    ],
)
def test_bad_value_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ServerOptions(**options)


def test_an_event_a_step_may_be_asked_for() -> None:
    assert ServerOptions(stream_interval=0).stream_interval == 0


@pytest.mark.parametrize(("options", "message"), [({"port": 65_536}, "port=65536"), ({"tls_cert": "x"}, "tls_key")])
def test_bad_place_to_listen_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ListenOptions(**options)
