"""Pictures and tables of saved results."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.plots import plot
from octavo.bench.report import make_report
from octavo.bench.svg import bars, roofline, stacked_bars
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
    "throughput": make_report("throughput", [{"concurrency": 2, "output_tokens_per_s": 10.0}]),
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


def test_points_of_a_roofline_lie_by_their_logarithms() -> None:
    points = {"k": [(1.0, 1e10), (10.0, 1e11), (100.0, 1e12)]}
    root = ElementTree.fromstring(roofline("t", 40e9, {"int8": 1e12}, points))
    circles = [each.attrib for each in root if each.tag.endswith("circle")]
    xs, ys = ([float(each[name]) for each in circles] for name in ("cx", "cy"))
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2) and ys[0] > ys[2]
    assert any(each.tag.endswith("polyline") for each in root)


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
