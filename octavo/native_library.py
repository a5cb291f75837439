"""The native library, which may be missing: every other part of the package works without it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def native_library() -> ModuleType:
    """octavo._native. Raises ImportError where it is not built or does not load."""
    return import_module("octavo._native")


def best_instruction_set() -> str | None:
    """Of this machine; None where the native library cannot tell, or where there is none that it can use."""
    try:
        name = native_library().detect_isa()
    except (ImportError, RuntimeError):
        return None
    return str(name)
