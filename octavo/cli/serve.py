"""`octavo serve`: the OpenAI-compatible server."""

from __future__ import annotations

import ipaddress
from importlib.util import find_spec
from typing import Any

import click

from octavo.cli.options import engine_options, make_engine_options, user_errors
from octavo.cli.run import DEFAULT_MODEL
from octavo.tools.style import AUTO, FORMAT_NAMES

_SERVER_NAMES = (
    "max_queued_requests",
    "max_queued_tokens",
    "max_body_bytes",
    "max_connections",
    "head_seconds",
    "body_seconds",
    "keep_alive_seconds",
    "request_seconds",
    "stream_interval",
    "slow_client_seconds",
    "stall_seconds",
    "drain_seconds",
    "log_prompts",
    "tool_format",
)


@click.command(short_help="Serve a model over HTTP.")
@click.argument("model", default=DEFAULT_MODEL)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=int, default=8000, show_default=True, help="0 takes a free one.")
@click.option("--api-key-file", metavar="FILE", help="Keys, one a line. OCTAVO_API_KEYS holds more, with commas.")
@click.option("--served-model-name", "names", multiple=True, metavar="NAME", help="May be repeated.")
@click.option("--tls-cert", metavar="FILE", help="Certificate chain, PEM.")
@click.option("--tls-key", metavar="FILE", help="Its private key, PEM.")
@click.option("--cors-origin", "cors_origins", multiple=True, metavar="ORIGIN", help="May be repeated.")
@click.option("--max-queued-requests", type=int, default=256, show_default=True, help="Past it: 429.")
@click.option("--max-queued-tokens", type=int, default=262_144, show_default=True, help="Of waiting prompts.")
@click.option("--max-body-bytes", type=int, default=4 * 2**20, show_default=True)
@click.option("--max-connections", type=int, default=1000, show_default=True, help="Past it: 503.")
@click.option("--head-seconds", type=float, default=10.0, show_default=True, help="For a request's head to arrive.")
@click.option("--body-seconds", type=float, default=30.0, show_default=True, help="For its body.")
@click.option("--keep-alive-seconds", type=float, default=5.0, show_default=True, help="For idle connections.")
@click.option("--request-seconds", type=float, default=600.0, show_default=True, help="Deadline of a request.")
@click.option(
    "--stream-interval", type=float, default=0.05, show_default=True, help="Seconds; faster tokens are sent together."
)
@click.option("--slow-client-seconds", type=float, default=30.0, show_default=True, help="Then it is dropped.")
@click.option("--stall-seconds", type=float, default=30.0, show_default=True, help="Then not ready.")
@click.option("--drain-seconds", type=float, default=30.0, show_default=True, help="At SIGTERM.")
@click.option("--log-prompts", is_flag=True, help="Write prompts into the log.")
@click.option(
    "--tool-format",
    type=click.Choice(FORMAT_NAMES),
    default=AUTO,
    show_default=True,
    help="How the model writes function calls; auto tells it from the chat template.",
)
@engine_options
def serve(
    model: str,
    host: str,
    port: int,
    api_key_file: str | None,
    names: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    cors_origins: tuple[str, ...],
    **values: Any,
) -> None:
    """Serve MODEL (default: smollm2) with OpenAI's API, until SIGTERM or Ctrl-C."""
    engine = make_engine_options(model, values)
    if not can_serve():
        raise click.ClickException("the server needs starlette, pydantic and uvicorn: pip install 'octavo[server]'")
    from octavo.server.options import ListenOptions, ServerOptions, read_api_keys

    try:
        options = ServerOptions(
            model_names=names,
            api_keys=read_api_keys(api_key_file),
            cors_origins=cors_origins,
            **{name: values[name] for name in _SERVER_NAMES},
        )
        listen = ListenOptions(host=host, port=port, tls_cert=tls_cert, tls_key=tls_key)
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from None
    from octavo.async_llm import AsyncLLM
    from octavo.loading import load
    from octavo.server.request_log import log_to_stderr
    from octavo.server.serve import run_server

    if not options.api_keys and not _is_loopback(host):
        click.echo(f"Warning: {host} can be reached from elsewhere, and no API key is asked for.", err=True)
    with user_errors():
        llm = AsyncLLM.from_loaded(load(engine))
    log_to_stderr()
    scheme = "http" if tls_cert is None else "https"
    click.echo(f"Octavo serves {model} on {scheme}://{host}:{port}", err=True)
    run_server(llm, options, listen)


def can_serve() -> bool:
    """Whether the packages of the extra are installed."""
    return all(find_spec(package) is not None for package in ("starlette", "pydantic", "uvicorn"))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
