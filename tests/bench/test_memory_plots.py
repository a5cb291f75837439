"""Plots: well-formed, and of the rows' figures."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.memory_plots import write_plots
from octavo.bench.svg import lines, stacked_bars


def test_bars_are_as_long_as_their_shares() -> None:
    root = ElementTree.fromstring(stacked_bars("a < b", {"one": [0.5, 0.25], "two": [1.0, 0.0]}, ["x", "y"]))
    bars = [float(each.attrib["width"]) for each in root if each.attrib.get("height") == "26"]
    assert bars[0] == pytest.approx(2 * bars[1], abs=0.2) and bars[2] == pytest.approx(2 * bars[0], abs=0.2)
    assert next(each.text for each in root if each.text and each.text.strip()) == "a < b"


def test_the_engine_part_has_plots(tmp_path: Path) -> None:
    row = {"policy": "paged", "tokens_share": 0.95, "output_tokens_per_s": 100.0, "mean_batch": 30.5}
    written = write_plots({"engine": [row, row | {"policy": "contiguous-max", "tokens_share": 0.2}]}, tmp_path)
    assert {path.name for path in written} == {"engine-memory.svg", "engine-speed.svg"}
    assert "contiguous-max" in (tmp_path / "engine-memory.svg").read_text()


def test_lines_have_a_point_a_name() -> None:
    root = ElementTree.fromstring(lines("t", ["1", "2", "4"], {"one": [1.0, 0.5, 0.0]}, "axis"))
    heights = [float(each.attrib["cy"]) for each in root if each.tag.endswith("circle")]
    assert heights == sorted(heights) and len(heights) == 3


def test_the_command_writes_plots(tmp_path: Path, octavo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.bench import memory_simulation

    whole = memory_simulation.measure_simulation
    monkeypatch.setattr(memory_simulation, "measure_simulation", lambda: whole(requests=40))
    result = octavo("bench", "memory", "--part", "simulation", "--json", "--plots", str(tmp_path))
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert {row["trace"] for row in report["simulation"]} == {"sharegpt", "alpaca"}
    assert {row["block_size"] for row in report["simulation"]} == {0, 1, 2, 4, 8, 16, 32, 64, 128, 256}
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"sharegpt-memory.svg", "alpaca-memory.svg", "block-size.svg"}
    assert write_plots({}, tmp_path) == []


def test_the_engine_part_scales_blocks_too(octavo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.bench import memory_engine

    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(memory_engine, "measure_engine", lambda loaded, *values, say: seen.append(values) or [])
    result = octavo("bench", "memory", "--part", "engine", "--scale", "0.25", "--requests", "7")
    assert result.exit_code == 0, result.output
    assert seen == [(7, 0.25, 16)]
    assert octavo.loaded_with.enable_prefix_caching is False
