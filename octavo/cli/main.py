"""The command `octavo`. A command's module is imported when it is called, so that the others do not wait for
it."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from octavo import __version__

COMMANDS: Final = {
    "run": "octavo.cli.run:run",
    "serve": "octavo.cli.serve:serve",
    "generate": "octavo.cli.generate:generate",
    "bench": "octavo.cli.bench:bench",
    "tune": "octavo.cli.tune:tune",
    "pull": "octavo.cli.pull:pull",
    "quantize": "octavo.cli.quantize:quantize",
    "doctor": "octavo.cli.doctor:doctor",
}


class LazyGroup(click.Group):
    """A group whose commands are imported by name."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name].split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="octavo", message="%(prog)s %(version)s")
def main() -> None:
    """Octavo: a PagedAttention inference engine for the machine you have."""
