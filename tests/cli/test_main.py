"""The command as a whole: version, help, and how little of the package it takes to print them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from octavo import __version__
from octavo.cli.main import COMMANDS
from octavo.cli.options import ENGINE_NAMES
from octavo.config import EngineOptions


def test_version(octavo: Any) -> None:
    assert octavo("--version").output == f"octavo {__version__}\n"


def test_version_imports_neither_numpy_nor_tokenizers() -> None:
    code = (
        "import sys\nfrom octavo.cli.main import main\n"
        "try:\n    main(['--version'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'numpy', 'tokenizers', 'jinja2', 'tqdm', 'octavo.loading'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "[]"


def test_python_dash_m_is_the_command() -> None:
    call = [sys.executable, "-m", "octavo", "--version"]
    assert subprocess.run(call, capture_output=True, text=True, check=True).stdout.startswith("octavo ")


def test_help_lists_every_command(octavo: Any) -> None:
    output = octavo("--help").output
    for name in COMMANDS:
        assert f"\n  {name} " in output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(octavo: Any, name: str) -> None:
    result = octavo(name, "--help")
    assert result.exit_code == 0
    assert "Usage: octavo" in result.output


def test_unknown_command_is_a_usage_error(octavo: Any) -> None:
    assert octavo("walk").exit_code == 2


def test_command_line_has_the_engine_options_of_python_with_their_defaults(octavo: Any) -> None:
    octavo("run", "smollm2", "hi")
    assert octavo.loaded_with == EngineOptions(model="smollm2")
    assert {*ENGINE_NAMES, "model"} == set(EngineOptions.__dataclass_fields__)
