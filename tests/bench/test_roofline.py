"""Rooflines: marks, limits and labels are where they belong."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from octavo.bench.roofline import Mark, Series, roofline

SLOPES = {"memory": 40.0, "caches": 100.0}
PEAKS = {"int8": 1.0, "float32": 0.3}


def _draw(*series: Series) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(roofline("t", SLOPES, PEAKS, series, "note")).iter())


def _marks(elements: list[ElementTree.Element]) -> list[tuple[float, float]]:
    """Of the first kind, without the one in the legend."""
    circles = [each.attrib for each in elements if each.tag.endswith("circle")]
    return [(float(each["cx"]), float(each["cy"])) for each in circles[1:]]


def _ends(elements: list[ElementTree.Element], width: str) -> list[list[tuple[float, float]]]:
    """Of the lines of that width."""
    lines = [each.attrib for each in elements if each.attrib.get("stroke-width") == width and "points" in each.attrib]
    return [[_point(text) for text in line["points"].split()] for line in lines]


def _point(text: str) -> tuple[float, float]:
    x, y = text.split(",")
    return float(x), float(y)


def test_marks_lie_by_their_logarithms() -> None:
    points = [Mark(1.0, 0.01, "a"), Mark(10.0, 0.1, "b"), Mark(100.0, 1.0, "c")]
    one, two, three = _marks(_draw(Series("linear", "w4", points)))
    assert two[0] - one[0] == pytest.approx(three[0] - two[0], abs=0.2)
    assert one[1] - two[1] == pytest.approx(two[1] - three[1], abs=0.2) and one[1] > three[1]


def test_a_mark_at_the_corner_of_the_roof_lies_on_both_its_lines() -> None:
    elements = _draw(Series("linear", "w4", [Mark(25.0, 1.0, "corner"), Mark(0.5, 0.02, "on the slope")]))
    corner, on_slope = _marks(elements)
    slope, peak, _ = _ends(elements, "1.6")
    assert slope[1] == corner and peak[0][1] == corner[1]
    assert peak[0][0] < corner[0], "caches let the peak be reached earlier"
    assert slope[0][0] < on_slope[0] and slope[0][1] > on_slope[1]


def test_lines_stay_in_the_plot_where_no_mark_is_far_left() -> None:
    elements = _draw(Series("attention decode", "", [Mark(20.0, 0.2, "a")]))
    left = min(x for line in _ends(elements, "1") for x, _ in line)
    assert all(x >= left for line in _ends(elements, "1.6") for x, _ in line)


def test_labels_do_not_lie_on_each_other() -> None:
    crowd = [Mark(10.0 + number / 10, 0.1, f"mark {number}") for number in range(30)]
    labels = [each for each in _draw(Series("linear", "w4", crowd)) if (each.text or "").startswith("mark")]
    assert 2 <= len(labels) < 30
    boxes = [(float(each.attrib["x"]), float(each.attrib["y"]), 0.3 * 10 * len(each.text or "")) for each in labels]
    for number, (x, y, half) in enumerate(boxes):
        for other_x, other_y, other_half in boxes[:number]:
            assert abs(x - other_x) >= half + other_half - 0.2 or abs(y - other_y) >= 9.8


def test_kinds_differ_in_form_and_variants_in_colour() -> None:
    mark = [Mark(1.0, 0.01, "")]
    elements = _draw(Series("linear", "w4", mark), Series("linear", "w8", mark), Series("head", "w4", mark))
    circles = [each.attrib["fill"] for each in elements if each.tag.endswith("circle")]
    squares = [each.attrib["fill"] for each in elements if each.attrib.get("height") == "8"]
    assert len(set(circles)) == 2 and set(squares) < set(circles)
