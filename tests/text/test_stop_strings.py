# ruff: noqa: RUF001 - the texts are meant to be hard
"""Matching stop strings letter by letter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.text.stop_strings import StopMatcher, check_no_surrogates, check_stop_strings


def first_match(text, stop):
    """(start, end) of the match that ends first, the longest of those: the definition, slowly."""
    matches = [(end, -len(s), s) for s in stop for end in range(len(s), len(text) + 1) if text[:end].endswith(s)]
    if not matches:
        return None
    end, _, found = min(matches)
    return end, found


@given(st.text("ab", max_size=24), st.lists(st.text("ab", min_size=1, max_size=5), max_size=4), st.data())
def test_match_and_held_length_equal_the_definition(text, stop, data):
    matcher = StopMatcher(stop)
    cut = data.draw(st.integers(0, len(text)))
    found, before = None, 0
    for piece in (text[:cut], text[cut:]):
        match = matcher.feed(piece)
        if match is not None:
            found = (before + match[0], match[1])
            break
        before += len(piece)
        seen = text[:before]
        held = max((n for s in stop for n in range(len(s)) if seen.endswith(s[:n])), default=0)
        assert matcher.held == held
    assert found == first_match(text, stop)


@pytest.mark.parametrize(
    ("stop", "error", "message"),
    [
        (("ok", ""), ValueError, r"stop\[1\] is \"\""),
        ("text", TypeError, "sequence of strings"),
        ((1,), TypeError, r"stop\[0\] is 1"),
        (("a\udc00",), ValueError, r"stop\[0\] has the lone surrogate U\+DC00 at character 1"),
    ],
)
def test_bad_stop_strings_are_refused(stop, error, message):
    with pytest.raises(error, match=message):
        check_stop_strings(stop)


def test_whole_text_has_no_surrogates():
    check_no_surrogates("𝔘 \uffff", "text")
