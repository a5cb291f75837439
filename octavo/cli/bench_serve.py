"""`octavo bench serve`: load on any OpenAI-compatible server."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from octavo.cli.bench_output import POSITIVE, as_json, int_list, print_report
from octavo.cli.options import user_errors


def rate_list(context: click.Context, option: click.Parameter, value: str | None) -> list[float] | None:
    """Positive numbers with commas between: "0.5,2" -> [0.5, 2.0]."""
    if value is None:
        return None
    try:
        rates = [float(word) for word in value.split(",")]
    except ValueError:
        rates = [0.0]
    if not all(0 < rate < float("inf") for rate in rates):
        raise click.BadParameter(f"{value!r}: must be positive numbers with commas between")
    return rates


def _json_object(context: click.Context, option: click.Parameter, value: str) -> dict[str, Any]:
    try:
        fields = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise click.BadParameter("must be a JSON object")
    return fields


def _optional_ints(context: click.Context, option: click.Parameter, value: str | None) -> list[int] | None:
    return None if value is None else int_list(context, option, value)


@click.command(short_help="Load on any OpenAI-compatible server.")
@as_json
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="Of the server.")
@click.option("--model", help="Default: the first that the server names.")
@click.option("--key", envvar="OCTAVO_API_KEY", show_envvar=True, help="The API key.")
@click.option("--concurrency", callback=_optional_ints, metavar="N,N,...", help="Closed loop: requests at once.")
@click.option("--rate", "rates", callback=rate_list, metavar="R,R,...", help="Poisson arrivals: requests a second.")
@click.option("--requests", type=POSITIVE, default=64, show_default=True, help="Of each load.")
@click.option("--api", type=click.Choice(("completions", "chat")), default="completions", show_default=True)
@click.option("--text", is_flag=True, help="Prompts of random words, not of token ids; chat always has words.")
@click.option("--input-len", type=POSITIVE, default=128, show_default=True, help="Tokens, or words, of each prompt.")
@click.option("--output-len", type=POSITIVE, default=128, show_default=True, help="Most tokens of each answer.")
@click.option(
    "--lengths",
    type=click.Choice(("fixed", "sharegpt", "alpaca")),
    default="fixed",
    show_default=True,
    help="fixed: as the two options say; else varied like that trace.",
)
@click.option("--max-id", type=POSITIVE, default=10_000, show_default=True, help="Token ids are below this.")
@click.option("--stop-at-eos", is_flag=True, help="Do not send ignore_eos, which only some servers know.")
@click.option("--fields", callback=_json_object, metavar="JSON", default="{}", help="More fields of every request.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=600.0, show_default=True, help="Of a request, s.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of prompts and arrivals.")
def serve(
    as_json: bool,
    url: str,
    model: str | None,
    key: str | None,
    concurrency: list[int] | None,
    rates: list[float] | None,
    requests: int,
    api: Any,
    text: bool,
    stop_at_eos: bool,
    fields: dict[str, Any],
    timeout: float,
    seed: int,
    **lengths: Any,
) -> None:
    """Streams answers to random prompts and reports throughput, time to the first token (ttft), time per output token
    after it (tpot), time between pieces (itl), and errors. Give --concurrency or --rate; one row for each number."""
    if (concurrency is None) == (rates is None):
        raise click.UsageError("give either --concurrency or --rate")
    from octavo.bench.serve_load import Load, measure_serve
    from octavo.bench.serve_requests import Workload

    loads = [Load(concurrency=count) for count in concurrency or ()] + [Load(rate=rate) for rate in rates or ()]
    more = fields if stop_at_eos else {"ignore_eos": True} | fields
    workload = Workload(api=api, ids=api == "completions" and not text, fields=more, **lengths)
    with user_errors():
        name, rows = measure_serve(
            url, loads, workload, requests, model, key, timeout, seed, lambda load: _progress(load.name, requests)
        )
    print_report("serve", rows, as_json, url=url, model=name, requests=requests, seed=seed)


def _progress(name: str, requests: int) -> Callable[[], None]:
    """A bar on a terminal; what is called after each request."""
    if not sys.stderr.isatty():
        return lambda: None
    from tqdm import tqdm

    bar = tqdm(total=requests, unit=" req", desc=name, dynamic_ncols=True)

    def done() -> None:
        bar.update()
        if bar.n == requests:
            bar.close()

    return done
