"""`octavo pull`: fetches a model into the cache."""

from __future__ import annotations

import click

from octavo.cli.options import user_errors


@click.command(short_help="Fetch a model into the cache.")
@click.argument("name")
def pull(name: str) -> None:
    """Fetch the model NAME (an alias such as smollm2 or gemma3-270m) and print where its file lies.

    The cache is $OCTAVO_HOME, by default ~/.cache/octavo.
    """
    from octavo.loaders.hub import pull as fetch

    with user_errors():
        path = fetch(name)
    click.echo(path)
