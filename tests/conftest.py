"""What several areas share. Being here, it also lets tests import the helpers in tests/support."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from octavo.executors.interface import Executor
from octavo.executors.reference import ReferenceExecutor
from octavo.program.operations import Program

MakeExecutor = Callable[[Program, Any], Executor]

EXECUTORS: dict[str, MakeExecutor] = {"reference": ReferenceExecutor}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "real_model: needs a real model's file under $OCTAVO_HOME; skipped without"
    )


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
