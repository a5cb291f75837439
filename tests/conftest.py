"""What several areas share. Being here, it also lets tests import the helpers beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_model import make_fake_model
from support.machine import INSTRUCTION_SETS

from octavo.cli.main import main
from octavo.executors.interface import Executor
from octavo.executors.native import NativeExecutor
from octavo.executors.reference import ReferenceExecutor
from octavo.loading import LoadedModel
from octavo.program.operations import Program

MakeExecutor = Callable[[Program, Any], Executor]

EXECUTORS: dict[str, MakeExecutor] = {"reference": ReferenceExecutor} | {
    f"native-{name}": partial(NativeExecutor, dtype="float32", num_threads=2, instruction_set=name)
    for name in INSTRUCTION_SETS
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_model: needs a real model's file under $OCTAVO_HOME; skipped without")


@pytest.fixture(params=sorted(EXECUTORS))
def make_executor(request: pytest.FixtureRequest) -> Iterator[MakeExecutor]:
    """Builds executors of one kind in full precision, (program, checkpoint) -> Executor, and closes them."""
    made: list[Executor] = []

    def make(program: Program, checkpoint: Any) -> Executor:
        made.append(EXECUTORS[request.param](program, checkpoint))
        return made[-1]

    yield make
    for executor in made:
        executor.close()


@pytest.fixture
def fake_model() -> Iterator[LoadedModel]:
    """A model that answers with its prompt in capitals."""
    model = make_fake_model()
    yield model
    engine: Any = model.engine
    engine.gate.set()


class Command:
    """Calls `octavo ...` in this process; `loaded_with` are the options of the last model that was loaded."""

    def __init__(self) -> None:
        self.loaded_with: Any = None

    def __call__(self, *arguments: str, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, list(arguments), input=input, prog_name="octavo")


@pytest.fixture
def octavo(monkeypatch: pytest.MonkeyPatch, fake_model: LoadedModel) -> Command:
    """The command, with the fake model behind it."""
    command = Command()

    def load(options: Any, progress: Any = None) -> LoadedModel:
        command.loaded_with = options
        return fake_model

    monkeypatch.setattr("octavo.loading.load", load)
    return command
