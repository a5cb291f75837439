"""Events that are encoded once and written with many texts."""

from __future__ import annotations

import pytest

from octavo.server.event_json import TEXT, TextEvent, encode


@pytest.mark.parametrize("text", ["", "word", 'a "quote" and \\', "line\nend", "\0", "{}%s", "ä€😀", "\u2028"])
def test_a_text_event_is_the_json_of_its_chunk_with_the_text(text: str) -> None:
    def chunk(text: str) -> dict[str, object]:
        return {"id": "cmpl-1", "model": '%s {} "m"', "choices": [{"index": 0, "text": text, "logprobs": None}]}

    assert TextEvent(chunk(TEXT)).json(text) == encode(chunk(text))
