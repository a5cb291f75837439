"""JSON as answers have it, and events of a stream that differ in one text only."""

from __future__ import annotations

import json
from typing import Any

encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
TEXT = "\0"
"""Stands for the text in what a TextEvent is made from"""


class TextEvent:
    """An event that is written again and again with another text: encoded once."""

    def __init__(self, chunk: dict[str, Any]) -> None:
        """`chunk` has TEXT as one of its values."""
        self._before, self._after = encode(chunk).split(encode(TEXT))

    def json(self, text: str) -> str:
        """The chunk with this text."""
        return self._before + encode(text) + self._after
