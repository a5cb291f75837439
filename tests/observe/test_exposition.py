"""The text format, read by Prometheus' own parser."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo.observe.exposition import Counter, Histogram, family_lines


def parse(lines: object) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = "\n".join(lines) + "\n"  # type: ignore[call-overload]
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counter_counts_by_label() -> None:
    counter = Counter("made_total", "Things made.", "kind", ("a", "b"))
    counter.add(2, "a")
    counter.add(value="a")
    assert parse(counter.lines()) == {
        ("made_total", frozenset({("kind", "a")})): 3,
        ("made_total", frozenset({("kind", "b")})): 0,
    }


def test_unknown_label_value_is_refused() -> None:
    with pytest.raises(KeyError):
        Counter("made_total", "Things made.", "kind", ("a",)).add(1, "c")


def test_histogram_is_cumulative_and_bounds_are_inclusive() -> None:
    histogram = Histogram("took_seconds", "Time.", (0.1, 1, 10))
    for value in (0.05, 0.1, 0.5, 10, 11):
        histogram.observe(value)
    samples = parse(histogram.lines())
    buckets = [samples["took_seconds_bucket", frozenset({("le", bound)})] for bound in ("0.1", "1", "10", "+Inf")]
    assert buckets == [2, 3, 4, 5]
    assert samples["took_seconds_count", frozenset()] == 5
    assert samples["took_seconds_sum", frozenset()] == pytest.approx(21.65)


def test_histogram_refuses_bounds_that_do_not_grow() -> None:
    with pytest.raises(ValueError, match="must grow"):
        Histogram("took_seconds", "Time.", (1, 1))


def test_labels_are_escaped() -> None:
    strange = 'a"b\\c\nd'
    assert parse(family_lines("info", "gauge", "Which.", [({"model": strange}, 1)])) == {
        ("info", frozenset({("model", strange)})): 1
    }
