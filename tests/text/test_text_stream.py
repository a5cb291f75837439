"""Streams with stop strings: nothing leaks, nothing is lost, whatever the tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.text.detokenizer import ByteDetokenizer
from octavo.text.text_stream import TextStream


def detokenizer(tokens):
    return ByteDetokenizer(dict(enumerate(tokens)), strip_leading_space=False)


def run(tokens, stop, include_stop=False, every=1):
    """The deltas of so many tokens at once, the last one's, and the stream."""
    stream = TextStream(detokenizer(tokens), stop, include_stop)
    ids = range(len(tokens))
    deltas = [stream.extend(ids[at : at + every]) for at in range(0, len(ids), every)]
    return [*deltas, stream.finish()], stream


def cut(text, stop, include_stop):
    """The text up to the stop string that is complete first; the longest of those that end together."""
    for end in range(1, len(text) + 1):
        endings = [s for s in stop if text[:end].endswith(s)]
        if endings:
            longest = max(endings, key=len)
            return text[: end if include_stop else end - len(longest)], longest
    return text, None


@given(
    st.lists(st.text("ab\n你é", max_size=4), max_size=12),
    st.lists(st.text("ab\n你é", min_size=1, max_size=5), max_size=3),
    st.booleans(),
    st.integers(1, 4),
    st.data(),
)
def test_joined_deltas_are_the_text_cut_at_the_stop(parts, stop, include_stop, every, data):
    whole = "".join(parts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    tokens = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    deltas, stream = run(tokens, tuple(stop), include_stop, every)
    text, matched = cut(whole.decode(), stop, include_stop)
    assert "".join(deltas) == text == stream.text
    assert (stream.matched_stop, stream.stopped) == (matched, matched is not None)


@given(
    st.lists(st.binary(max_size=3), max_size=10),
    st.lists(st.text("a\ufffd", min_size=1, max_size=3), max_size=2),
)
def test_any_bytes_are_cut_like_their_decoding(tokens, stop):
    deltas, stream = run(tokens, tuple(stop))
    assert "".join(deltas) == cut(b"".join(tokens).decode("utf-8", "replace"), stop, False)[0] == stream.text


@pytest.mark.parametrize("pieces", [2, 3, 4])
def test_a_stop_across_tokens_never_leaks(pieces):
    stop = "</answer>"
    size = -(-len(stop) // pieces)
    tokens = [b"yes", *(stop[at : at + size].encode() for at in range(0, len(stop), size)), b" more"]
    deltas, stream = run(tokens, (stop,))
    assert [delta for delta in deltas if delta] == ["yes"]
    assert stream.stopped and stream.matched_stop == stop


def test_a_stop_inside_a_token_cuts_inside_it():
    assert run([b"one. Two"], (".",))[0] == ["one", ""]
    assert run([b"one. Two"], (".",), include_stop=True)[0] == ["one.", ""]


def test_only_a_real_beginning_of_a_stop_is_held_back():
    deltas, _ = run([b"a", b"<", b"b", b"</s", b"x", b"<"], ("</s>",))
    assert deltas == ["a", "", "<b", "", "</sx", "", "<"]


def test_held_text_is_given_out_at_the_end():
    deltas, stream = run([b"end </s"], ("</s>",))
    assert deltas == ["end ", "</s"] and not stream.stopped
    assert stream.finish() == ""


def test_the_stop_that_is_complete_first_wins():
    assert run([b"xabcd"], ("abcd", "bc"))[0] == ["xa", ""]
    assert run([b"xabc"], ("abc", "bc"))[0] == ["x", ""]


def test_tokens_after_the_stop_are_ignored():
    stream = TextStream(detokenizer([b"a.", b"b"]), (".",))
    assert [stream.extend([0]), stream.extend([1]), stream.finish(), stream.text] == ["a", "", "", "a"]


def test_a_stop_is_found_in_the_flush_of_an_incomplete_character():
    deltas, stream = run([b"ok\xe4"], ("\ufffd",))
    assert deltas == ["ok", ""] and stream.stopped


def test_without_stop_strings_everything_is_given_at_once():
    assert run([b"a", b"b"], ())[0] == ["a", "b", ""]


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="empty stop string"):
        TextStream(detokenizer([]), ("",))


def test_work_per_token_does_not_grow_with_the_text():
    """Counts letters that the matcher looks at, through a stop string that is always almost there."""
    looked = 0

    class Letters(str):
        def __iter__(self):
            nonlocal looked
            looked += len(self)
            return super().__iter__()

    class Fixed:
        def extend(self, token_ids):
            return Letters("aaab")

        def finish(self):
            return ""

    stream = TextStream(Fixed(), ("aaaaab", "baaaac"))
    for _ in range(500):
        stream.extend([0])
    assert looked == 2000
