"""octavo bench: rows for people and for machines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest

from octavo.cli.bench import bench

DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def test_throughput_rows(octavo: Any) -> None:
    result = octavo(
        "bench",
        "throughput",
        "smollm2",
        "--json",
        "--concurrency",
        "1,4",
        "--input-len",
        "5",
        "--output-len",
        "6",
    )
    report = json.loads(result.stdout)
    assert [row["concurrency"] for row in report["rows"]] == [1, 4]
    for row in report["rows"]:
        assert row["output_tokens_per_s"] == pytest.approx(row["concurrency"] * 6 / row["elapsed_s"])
        assert row["total_tokens_per_s"] == pytest.approx(row["concurrency"] * 11 / row["elapsed_s"])
        assert row["steps"] == 6
        assert 0 <= row["python_share"] <= 1
        assert row["python_per_step_us"] == pytest.approx(row["python_share"] * row["elapsed_s"] / 6 * 1e6)
    assert report["machine"]["cores"] >= 1
    assert octavo.loaded_with.enable_prefix_caching is False


def test_throughput_table(octavo: Any) -> None:
    lines = octavo("bench", "throughput", "smollm2", "--concurrency", "2", "--input-len", "3").stdout.splitlines()
    assert lines[0].split()[0] == "concurrency"
    assert lines[1].split()[0] == "2"


def test_latency_rows(octavo: Any) -> None:
    report = json.loads(
        octavo("bench", "latency", "smollm2", "--json", "--input-len", "4,9", "--output-len", "5").stdout
    )
    assert [row["input_len"] for row in report["rows"]] == [4, 9]
    for row in report["rows"]:
        assert row["prefill_tokens_per_s"] == pytest.approx(row["input_len"] / row["time_to_first_token_s"])


@pytest.mark.parametrize("text", ["", "0", "1,,2", "a", "-1", "1.5"])
def test_bad_lists_are_usage_errors(octavo: Any, text: str) -> None:
    assert octavo("bench", "throughput", "smollm2", "--concurrency", text).exit_code == 2


def test_more_at_once_than_the_engine_runs_is_a_usage_error(octavo: Any) -> None:
    result = octavo("bench", "throughput", "smollm2", "--concurrency", "8", "--max-num-seqs", "4")
    assert result.exit_code == 2
    assert "--max-num-seqs 4" in result.stderr


def test_commands_and_options_of_the_document_exist() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"octavo bench (\w+)([^`|\n>]*)", text)
    assert {name for name, _ in found} == set(bench.commands)
    for name, rest in found:
        known = {option for each in bench.commands[name].params for option in each.opts}
        assert set(re.findall(r"--[\w-]+", rest)) <= known, (name, rest)
    every = {option for command in bench.commands.values() for each in command.params for option in each.opts}
    for option in re.findall(r"`(--[\w-]+)", text):
        assert option in every or option == "--help", option


def test_every_command_says_what_it_does() -> None:
    context = click.Context(bench)
    for name, command in bench.commands.items():
        assert command.get_short_help_str() and command.get_help(context), name
