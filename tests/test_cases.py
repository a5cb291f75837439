"""docs/cases.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
CASES = (ROOT / "docs" / "cases.md").read_text()
WANTED = {
    f"F{number:02}"
    for number in (1, 2, 4, 5, 6, 7, 9, 11, 12, 13, 15, 16, 17, 19, 21, 22, 23, 24, 26, 28, 29, 31, 32, 33, 36, 37, 39,
                   *range(41, 44), 46, 47, 49, 51, 52, 53, 56, 57, *range(59, 62), *range(63, 66))
}  # fmt: skip


def defined_in(path: Path) -> set[str]:
    """Test functions and test cases that a file makes at its top level."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_every_case_has_tests_that_exist() -> None:
    rows = {row[0]: row[1] for row in re.findall(r"^\| (F\d\d) \|[^|]*\| (.*) \|$", CASES, re.MULTILINE)}
    assert set(rows) >= WANTED
    for case, tests in rows.items():
        named = re.findall(r"`([^`:]+)::(\w+)`", tests)
        assert named, case
        for file, name in named:
            assert name in defined_in(ROOT / file), f"{case}: {file}::{name}"
