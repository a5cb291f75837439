"""Figures for people and for machines."""

import json

import pytest

from octavo.bench.machine import machine_facts
from octavo.bench.prompts import random_prompts
from octavo.bench.report import make_report, table
from octavo.config import EngineOptions


def test_table_is_aligned_and_says_units_by_name() -> None:
    rows = [{"n": 1, "elapsed_s": 0.12345, "tokens_per_s": 12.34, "python_share": 0.051}]
    assert table(rows).splitlines() == [
        "n  elapsed_s  tokens_per_s  python_share",
        "1     0.1235          12.3          5.1%",
    ]
    assert table([]) == ""


def test_table_cells_of_other_units() -> None:
    rows = [{"peak_bytes": 1_500_000, "top_per_s": 0.1234, "paged_ratio": 1.0304, "context": None}]
    assert table(rows).splitlines()[1].split() == ["1.5", "MB", "0.123", "1.030", "-"]


def test_a_report_has_what_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/some/where/octavo", "bench", "serve", "--key", "secret", "--key=secret", "a b"])
    report = json.loads(json.dumps(make_report("serve", [{"a": 1}], EngineOptions(model="m"), url="u")))
    assert report["command"] == "octavo bench serve --key ... --key=... 'a b'"
    assert (report["benchmark"], report["rows"], report["url"]) == ("serve", [{"a": 1}], "u")
    assert report["options"]["model"] == "m" and report["machine"]["octavo"]
    assert report["measured_at"].endswith("+00:00")
    monkeypatch.setattr("sys.argv", ["/some/octavo/__main__.py", "bench"])
    report = make_report("x", [])
    assert report["command"] == "octavo bench" and report["options"] is None


def test_random_prompts_are_the_same_for_a_seed() -> None:
    assert random_prompts(2, 5, 100, seed=1) == random_prompts(2, 5, 100, seed=1)
    assert random_prompts(2, 5, 100, seed=1) != random_prompts(2, 5, 100, seed=2)
    assert all(0 <= token < 10 for prompt in random_prompts(3, 50, 10, seed=0) for token in prompt)


def test_machine_facts_name_the_machine() -> None:
    facts = machine_facts()
    assert facts["cpu"]
    assert facts["cores"] >= 1
