"""Finding spellings in text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.text.added_tokens import SpellingFinder, split_owned

FINDER = SpellingFinder({"ab": 1, "abc": 2, "bcd": 3, "\n\n": 4, "\n": 5, "]": 6})


def test_leftmost_and_longest_wins():
    assert FINDER.split("xabcdab\n\n\n]") == ["x", 2, "d", 1, 4, 5, 6]


def test_starts_are_found_inside_others():
    assert list(FINDER.starts("abcd")) == [0, 1]


def test_nothing_to_find():
    assert SpellingFinder({}).split("abc") == ["abc"]
    assert FINDER.split("") == []


def test_owned_places_are_the_only_control_tokens():
    assert split_owned("ab<s>ab<s>", [(2, 5)], {"<s>": 9}, SpellingFinder({"ab": 1})) == [1, 9, 1, "<s>"]


@given(st.text("abcd\n]", max_size=30))
def test_fragments_join_to_the_text(text):
    spelling = {1: "ab", 2: "abc", 3: "bcd", 4: "\n\n", 5: "\n", 6: "]"}
    assert "".join(spelling.get(part, part) for part in FINDER.split(text)) == text
