"""The same work for several engines: rows, turns, medians and ratios."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_model import make_fake_model

from octavo import LLM
from octavo.bench.compare import Row, compare_table, make_rows, measure_compare
from octavo.bench.peers import PeerError, Taken, Work


class FakePeer:
    """Takes ever longer, and fails where it is told to."""

    version = "1"

    def __init__(self, name: str, log: list[tuple[str, Work]], fails_at: int | None = None) -> None:
        self.name, self.log, self.fails_at, self.runs = name, log, fails_at, 0

    def run(self, work: Work) -> Taken:
        self.runs += 1
        self.log.append((self.name, work))
        if self.runs == self.fails_at:
            raise PeerError(f"{self.name} fell over")
        return Taken(1.0, 1.0 + self.runs)

    def close(self) -> None:
        pass


def test_figures_are_named_for_what_they_are() -> None:
    work, taken = Work(4, 100, 21), Taken(2.0, 12.0)
    assert Row("", work, "output").value(taken) == 4 * 21 / 12
    assert Row("", work, "prefill").value(taken) == 4 * 100 / 2
    assert Row("", Work(1, 100, 21), "decode").value(taken) == 20 / 10
    unknown = Taken(None, 12.0)
    assert Row("", work, "output").value(unknown) == 7
    assert Row("", work, "prefill").value(unknown) is None and Row("", work, "decode").value(unknown) is None


def test_rows_of_a_comparison() -> None:
    rows = make_rows([1, 8], 128, 64, prefill=512, context=2048)
    assert [(row.name, row.measure) for row in rows] == [
        ("one stream, decode", "decode"),
        ("one stream, output", "output"),
        ("8 streams, output", "output"),
        ("prefill of 512", "prefill"),
        ("context 2048, decode", "decode"),
        ("context 2048, prefill", "prefill"),
    ]
    assert rows[-1].work == Work(1, 2048 - 64, 64) and rows[3].work == Work(1, 512, 1)
    assert len(make_rows([8], 128, 64, prefill=0, context=0)) == 1
    with pytest.raises(ValueError, match="context=64"):
        make_rows([1], 128, 64, prefill=0, context=64)


def test_engines_take_turns_on_each_piece_of_work() -> None:
    log: list[tuple[str, Work]] = []
    peers = [FakePeer("a", log), FakePeer("b", log)]
    rows = make_rows([1, 2], 8, 4, prefill=0, context=0)
    with LLM.from_loaded(make_fake_model()) as llm:
        measured, failed = measure_compare(llm, peers, rows, rounds=2)
    assert failed == {}
    assert [name for name, _ in log] == ["a", "b"] * 5
    assert [work.concurrency for _, work in log[2:]] == [1, 1, 2, 2] * 2
    assert [work.seed for _, work in log[2:]] == [1] * 4 + [2] * 4
    by_name = {(row["row"], row["engine"]): row for row in measured}
    a = by_name["2 streams, output", "a"]
    assert a["values"] == [2 * 4 / 4, 2 * 4 / 6] and a["tokens_per_s"] == pytest.approx((2 + 4 / 3) / 2)
    ours = by_name["2 streams, output", "octavo"]
    assert ours["octavo_ratio"] == 1 and a["octavo_ratio"] == ours["tokens_per_s"] / a["tokens_per_s"]
    (line,) = [line for line in compare_table(measured) if line["tokens/s"] == "2 streams, output"]
    best = max(by_name["2 streams, output", name]["tokens_per_s"] for name in "ab")
    assert line["over_best_ratio"] == ours["tokens_per_s"] / best


def test_an_engine_that_fails_is_left_out_from_there_on() -> None:
    log: list[tuple[str, Work]] = []
    peers = [FakePeer("a", log, fails_at=3), FakePeer("b", log)]
    with LLM.from_loaded(make_fake_model()) as llm:
        measured, failed = measure_compare(llm, peers, make_rows([2], 8, 4, 0, 0), rounds=3)
    assert failed == {"a": "a fell over"}
    assert {row["engine"]: len(row["values"]) for row in measured} == {"octavo": 3, "a": 1, "b": 3}


def test_work_that_is_too_long_is_refused_before_the_first_round() -> None:
    log: list[tuple[str, Work]] = []
    with LLM.from_loaded(make_fake_model()) as llm, pytest.raises(ValueError, match=r"needs 8192 .* 4096"):
        measure_compare(llm, [FakePeer("a", log)], make_rows([1], 8, 4, prefill=0, context=8192))
    assert log == []


def test_the_command_names_what_is_absent(octavo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OCTAVO_LLAMA_CPP", "OCTAVO_OPENVINO_PYTHON", "OCTAVO_TRANSFORMERS_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    arguments = ("bench", "compare", "smollm2", "--rounds", "1", "--concurrency", "1,2", "--input-len", "4")
    arguments += ("--output-len", "3", "--prefill", "8", "--context", "0")
    report = json.loads(octavo(*arguments, "--json").stdout)
    assert set(report["absent"]) == {"llama.cpp", "openvino", "transformers"}
    assert [row["row"] for row in report["rows"]] == [
        "one stream, decode", "one stream, output", "2 streams, output", "prefill of 8"
    ]  # fmt: skip
    assert all(row["tokens_per_s"] > 0 and row["octavo_ratio"] == 1 for row in report["rows"])
    assert octavo.loaded_with.enable_prefix_caching is False
    text = octavo(*arguments).stdout
    assert "openvino: absent: no interpreter (--openvino-python); docs/benchmarks.md" in text
    assert octavo(*arguments, "--max-num-seqs", "1").exit_code == 2
    assert "context=2" in octavo(*arguments, "--context", "2").stderr
