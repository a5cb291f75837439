"""octavo doctor: it says what is there, and never falls over what is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from octavo.config import EngineOptions
from octavo.loading import unsupported_reasons


def fake_native(best: str = "avx2") -> SimpleNamespace:
    return SimpleNamespace(
        __file__="/somewhere/_native.so", detect_isa=lambda: best, isa_supported=lambda name: name == best
    )


def use(monkeypatch: pytest.MonkeyPatch, native: Any) -> None:
    def library() -> Any:
        if isinstance(native, Exception):
            raise native
        return native

    for module in ("octavo.native_library", "octavo.loading", "octavo.cli.doctor"):
        monkeypatch.setattr(f"{module}.native_library", library)


def test_report_has_every_section(octavo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, fake_native())
    result = octavo("doctor")
    assert result.exit_code == 0
    for title in ("versions", "cpu", "threads", "memory", "native library", "executors", "models"):
        assert f"{title}\n" in result.output
    assert "instruction sets found: avx2; chosen: avx2" in result.output
    assert "not on this machine: avx512_vnni, avx512_bf16, amx" in result.output
    assert "native: usable" in result.output
    assert "reference: usable (slow" in result.output


def test_an_emulated_instruction_set_is_said_to_be_one(octavo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    native = fake_native("avx512_bf16")
    native.isa_supported = lambda name: True
    use(monkeypatch, native)
    output = octavo("doctor").output
    assert "instruction sets found: avx2, avx512_vnni, avx512_bf16; chosen: avx512_bf16" in output
    assert "emulated in this build, for tests of its kernels: amx" in output


def test_missing_library_is_said_and_is_exit_code_1(octavo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ImportError("No module named 'octavo._native'"))
    result = octavo("doctor")
    assert result.exit_code == 1
    assert "native: not usable: the native library is not built, or does not load" in result.output
    assert "reference: usable" in result.output


def test_instruction_set_that_is_not_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, fake_native("avx512_vnni"))
    options = EngineOptions(model="m", instruction_set="amx")
    assert unsupported_reasons("native", options) == [
        "instruction_set='amx': the best that this machine has is 'avx512_vnni'"
    ]
    assert unsupported_reasons("reference", EngineOptions(model="m", dtype="bfloat16"))
    assert unsupported_reasons("reference", EngineOptions(model="m", kv_cache_dtype="bfloat16"))
    assert unsupported_reasons("reference", EngineOptions(model="m", activation_dtype="int8"))
    assert not unsupported_reasons("reference", EngineOptions(model="m", kv_cache_dtype="int8"))
    assert not unsupported_reasons("reference", EngineOptions(model="m"))
