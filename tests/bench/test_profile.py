"""A step's anatomy: parts, groups, and that looking changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from small_model import make_small_model
from support.machine import INSTRUCTION_SETS

from octavo import LLM, SamplingParams
from octavo.bench.profile import group_of, measure_profile, profile_table
from octavo.bench.stopwatch import Stopwatch
from octavo.cli.main import main

native = pytest.mark.skipif(not INSTRUCTION_SETS, reason="the native library does not run here")


def small_llm(tmp_path: Path, executor: str = "native") -> LLM:
    options: dict[str, Any] = {"executor": executor, "threads": 2, "kv_cache_memory": "1MiB", "block_size": 8}
    options["max_draft_tokens"] = 0
    return LLM(str(make_small_model(tmp_path / "model")), enable_prefix_caching=False, **options)


@native
def test_parts_of_decode_and_prefill(tmp_path: Path) -> None:
    with small_llm(tmp_path) as llm:
        rows = measure_profile(llm, (1, 3), context=8, prefill=40, steps=4)
        assert not llm.driver.has_unfinished
    steps = {row["step"] for row in rows}
    assert steps == {"decode 1 x 8", "decode 3 x 8", "prefill 1 x 40"}
    for step in steps:
        mine = {row["part"]: row for row in rows if row["step"] == step}
        assert {"linear 32x64", "linear 48x32", "logits", "attention", "gated_activation", "prepare"} <= mine.keys()
        assert {"sampling", "scheduler", "step builder", "engine", "delivery", "waiting"} <= mine.keys()
        assert sum(row["step_share"] for row in mine.values()) == pytest.approx(1)
        assert all(row["time_us"] >= 0 for row in mine.values())


@native
@pytest.mark.parametrize("rows", [2, 70, 150])
def test_looking_in_detail_changes_no_answer(tmp_path: Path, rows: int) -> None:
    """Also where threads keep their own rows, from 64 of two threads on."""
    params = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True, logprobs=0)
    prompts = [[number % 90 + 3, 5, 9, 4] for number in range(rows // 4 + 1)]
    with small_llm(tmp_path) as llm:
        executor: Any = llm.loaded.executor
        plain = llm.generate(prompts, params)
        coarse = executor.take_profile()
        executor.profile_in_detail(True)
        detailed = llm.generate(prompts, params)
        fine = executor.take_profile()
    for one, other in zip(plain, detailed, strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids
        assert one.outputs[0].cumulative_logprob == other.outputs[0].cumulative_logprob
    assert coarse["rows"] > 0 and coarse["rms_norm"] == coarse["waiting"] == 0
    assert fine["rms_norm"] > 0 and fine["prepare"] >= 0 and fine["waiting"] > 0
    assert executor.take_profile is not None and set(fine) == set(coarse)


def test_the_reference_executor_is_one_part(tmp_path: Path) -> None:
    with small_llm(tmp_path, "reference") as llm:
        rows = measure_profile(llm, (2,), context=4, prefill=0, steps=2)
    assert "executor" in {row["part"] for row in rows}
    assert {row["group"] for row in rows} == {"executor", "sampling", "Python"}


def test_every_part_has_a_group() -> None:
    assert group_of("linear 576x960") == "linears" and group_of("logits") == "LM head"
    assert group_of("rope") == "rows" and group_of("delivery") == "Python" and group_of("waiting") == "waiting"


def test_the_table_has_a_line_a_part_and_a_group() -> None:
    rows = [
        {"step": step, "group": group, "part": part, "time_us": time_us, "step_share": time_us / 8}
        for step in ("a", "b")
        for group, part, time_us in (("linears", "x", 1.0), ("linears", "y", 2.0), ("attention", "attention", 5.0))
    ]
    lines = profile_table(rows)
    assert [(line["group"], line["part"]) for line in lines] == [
        ("", "x"), ("", "y"), ("linears", "in all"), ("attention", ""), ("step", "in all")
    ]  # fmt: skip
    assert lines[2]["a"] == "3 us  37.5%" and lines[-1]["b"] == "8 us 100.0%"


def test_a_stopwatch_puts_methods_back() -> None:
    class Thing:
        def work(self) -> int:
            return 7

    thing = Thing()
    watch = Stopwatch({"work": (thing, "work")})
    assert thing.work() == 7 and watch.counts["work"] == 1 and watch.seconds["work"] > 0
    watch.reset()
    assert watch.seconds["work"] == watch.counts["work"] == 0
    watch.close()
    thing.work()
    assert watch.counts["work"] == 0 and "work" not in vars(thing)


@native
def test_the_command(tmp_path: Path) -> None:
    model = str(make_small_model(tmp_path / "model"))
    arguments = ["bench", "profile", model, "--sequences", "2", "--context", "4", "--prefill", "9", "--steps", "2"]
    arguments += ["--kv-cache-memory", "1MiB", "--threads", "1"]
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["options"]["threads"] == 1 and report["options"]["enable_prefix_caching"] is False
    shares = [row["step_share"] for row in report["rows"]]
    assert np.isclose(sum(shares), 2)
    assert "linears" in CliRunner().invoke(main, arguments).stdout
    assert CliRunner().invoke(main, [*arguments, "--max-num-seqs", "1"]).exit_code == 2
    assert CliRunner().invoke(main, [*arguments, "--max-draft-tokens", "4"]).exit_code == 2
    too_long = CliRunner().invoke(main, [*arguments, "--prefill", "1000"])
    assert too_long.exit_code == 1 and "max_model_len" in too_long.stderr
