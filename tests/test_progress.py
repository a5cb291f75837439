"""The progress bar of LLM.generate and of `octavo generate`."""

from __future__ import annotations

import io
import sys

import pytest

from octavo import LLM, SamplingParams
from octavo.loading import LoadedModel


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(model: LoadedModel, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, use_tqdm: bool = True) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    LLM.from_loaded(model).generate(["abc", "defg", "hi"], SamplingParams(max_tokens=50), use_tqdm=use_tqdm)
    return stream.getvalue()


def test_a_terminal_sees_requests_tokens_per_second_and_kv_memory(
    fake_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(fake_model, Terminal(), monkeypatch)
    assert "3/3" in text
    assert "tok/s" in text
    assert "KV " in text and " of " in text


def test_what_is_no_terminal_sees_nothing(fake_model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(fake_model, io.StringIO(), monkeypatch) == ""
    assert shown(fake_model, Terminal(), monkeypatch, use_tqdm=False) == ""
