"""Pictures and tables of saved results."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.plots import plot
from octavo.bench.report import make_report
from octavo.bench.svg import bars, stacked_bars
from octavo.bench.tables import report_text

LIMITS = {
    "isa": "avx2",
    "threads": 2,
    "reads": [{"bytes": 2**20, "gb_per_s": 40.0}],
    "products": [{"kind": "int8", "top_per_s": 0.6}, {"kind": "float32", "top_per_s": 0.2}],
}
KERNEL = {
    "kernel": "linear w4", "rows": 1, "context": None, "time_us": 10.0, "gb_per_s": 20.0, "bandwidth_share": 0.5,
    "top_per_s": 0.05, "peak_share": 0.1, "bound_by": "memory",
}  # fmt: skip
SPREAD = {"mean": 1.0, "p50": 1.0, "p90": 2.0, "p95": 3.0, "p99": 4.0}
SERVE = {
    "load": "2 at once", "requests": 4, "errors": 1, "elapsed_s": 2.0, "requests_per_s": 1.5,
    "output_tokens_per_s": 100.0, "input_tokens_per_s": 50.0, "ttft_ms": SPREAD, "tpot_ms": SPREAD, "itl_ms": {},
    "error_kinds": {"status 503: busy": 1},
}  # fmt: skip
PROFILE = {"step": "decode 1 x 8", "group": "linears", "part": "linear 8x8", "time_us": 3.0, "step_share": 1.0}
COMPARE = {
    "row": "one stream", "measure": "decode", "engine": "octavo", "tokens_per_s": 9.0, "octavo_ratio": 1.0, "values": []
}  # fmt: skip
REPORTS: dict[str, dict[str, Any]] = {
    "kernels": make_report("kernels", [KERNEL], limits=LIMITS, paging=[], model="m"),
    "profile": make_report("profile", [PROFILE]),
    "compare": make_report(
        "compare",
        [COMPARE, COMPARE | {"engine": "other", "tokens_per_s": None}],
        engines=[{"name": "other", "version": "1"}],
        absent={"third": "no"},
        failed={"other": "fell"},
    ),
    "serve": make_report("serve", [SERVE], url="http://x", model="m"),
    "throughput": make_report(
        "throughput", [{"concurrency": 2, "output_tokens_per_s": 10.0, "time_to_first_token_s": 0.2}]
    ),
    "latency": make_report(
        "latency", [{"input_len": 8, "time_to_first_token_s": 0.1, "time_per_output_token_s": 0.01}]
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_every_benchmark_has_a_picture_and_a_table(name: str) -> None:
    report = json.loads(json.dumps(REPORTS[name]))
    root = ElementTree.fromstring(plot(report))
    assert root.tag.endswith("svg") and len(root) > 5
    assert report_text(report).strip()


def test_texts_say_what_is_missing_and_what_failed() -> None:
    text = report_text(REPORTS["compare"])
    assert "third: absent: no; docs/benchmarks.md" in text and "other: failed: fell" in text and "other: 1" in text
    assert "2 at once: 1 x status 503: busy" in report_text(REPORTS["serve"])
    assert "reading, GB/s: 1 MiB 40" in report_text(REPORTS["kernels"])


def test_what_has_no_picture_says_so() -> None:
    with pytest.raises(ValueError, match="benchmark='startup'"):
        plot(make_report("startup", []))
    with pytest.raises(ValueError, match="no matrix products"):
        plot(REPORTS["kernels"] | {"rows": []})


def test_bars_compare_within_their_group() -> None:
    root = ElementTree.fromstring(bars("t", {"a": {"x": 10.0, "y": 5.0}, "b": {"y": 1000.0}}, "unit"))
    widths = [float(each.attrib["width"]) for each in root if each.attrib.get("height") == "18"]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2) and widths[2] == widths[0]
    assert "1,000" in {each.text for each in root}


def test_a_step_has_its_time_beside_its_bar() -> None:
    parts = [
        PROFILE | {"step": step, "group": group, "time_us": time_us, "step_share": share}
        for step, group, time_us, share in (
            ("decode 1 x 8", "linears", 2400.0, 0.75),
            ("decode 1 x 8", "rows", 800.0, 0.25),
            ("prefill 1 x 8", "linears", 2.5e6, 1.0),
        )
    ]
    texts = _texts(plot(make_report("profile", parts)))
    assert {"3.2 ms", "2,500 ms", "75%", "25%", "100%", "row operations", "decode 1 x 8"} <= texts


def test_loads_concurrencies_and_prompts_compare_figure_by_figure() -> None:
    rows = [SERVE, SERVE | {"load": "8 at once", "output_tokens_per_s": 400.0, "ttft_ms": {}}]
    assert _widths(plot(make_report("serve", rows, url="http://x", model="m")))[:2] == pytest.approx([112.5, 450.0])
    assert "first piece, p99, ms" in _texts(plot(REPORTS["serve"]))
    rows = [{"concurrency": 1, "output_tokens_per_s": 10.0, "time_to_first_token_s": 0.2}]
    rows.append({"concurrency": 8, "output_tokens_per_s": 40.0, "time_to_first_token_s": 0.4})
    assert _widths(plot(make_report("throughput", rows))) == pytest.approx([112.5, 450.0, 225.0, 450.0])
    rows = [{"input_len": 8, "time_to_first_token_s": 0.1, "time_per_output_token_s": 0.01}]
    rows.append({"input_len": 80, "time_to_first_token_s": 0.4, "time_per_output_token_s": 0.02})
    assert _widths(plot(make_report("latency", rows))) == pytest.approx([112.5, 450.0, 225.0, 450.0])


def test_kernels_are_told_apart_by_form_and_colour() -> None:
    names = ("linear w4", "linear bf16 8x8", "head w4", "attention decode")
    rows = [KERNEL | {"kernel": name, "rows": 3, "context": 99 if "att" in name else None} for name in names]
    svg = plot(REPORTS["kernels"] | {"rows": rows})
    assert {"linear w4", "linear bf16", "head w4", "attention decode", "3", "3 at 99"} <= _texts(svg)
    assert {"caches, 40 GB/s", "int8, 0.60 TOP/s", "float32, 0.20 TOP/s"} <= _texts(svg)
    assert svg == plot(REPORTS["kernels"] | {"rows": rows})


def test_more_series_than_colours_are_all_in_the_legend() -> None:
    names = [f"load {number}" for number in range(12)]
    assert set(names) <= _texts(bars("t", {"a": dict.fromkeys(names, 1.0)}, "unit"))


def _texts(svg: str) -> set[str | None]:
    return {each.text for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("text")}


def _widths(svg: str) -> list[float]:
    """Of the bars."""
    return [float(each.attrib["width"]) for each in ElementTree.fromstring(svg) if each.attrib.get("height") == "18"]


def test_a_long_legend_takes_more_lines() -> None:
    short, long = (
        ElementTree.fromstring(stacked_bars("t", {"a": [0.1] * count}, [f"a long name {n}" for n in range(count)]))
        for count in (2, 9)
    )
    assert int(long.attrib["height"]) > int(short.attrib["height"])


def test_the_command_writes_pictures_beside_or_elsewhere(tmp_path: Path, octavo: Any) -> None:
    for name in ("serve", "kernels"):
        (tmp_path / f"{name}.json").write_text(json.dumps(REPORTS[name]))
    result = octavo("bench", "plot", str(tmp_path / "serve.json"), str(tmp_path / "kernels.json"))
    assert result.exit_code == 0, result.output
    assert "2 at once" in result.stdout and "linear w4" in result.stdout
    assert {path.name for path in tmp_path.glob("*.svg")} == {"serve.svg", "kernels.svg"}
    assert octavo("bench", "plot", str(tmp_path / "serve.json"), "--to", str(tmp_path / "new")).exit_code == 0
    assert (tmp_path / "new" / "serve.svg").read_text() == (tmp_path / "serve.svg").read_text()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"benchmark": "serve"}'])
def test_what_is_no_result_is_refused_by_its_name(tmp_path: Path, octavo: Any, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    result = octavo("bench", "plot", str(tmp_path / "x.json"))
    assert result.exit_code == 1 and "x.json" in result.stderr
