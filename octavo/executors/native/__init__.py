"""The native executor: C++ kernels for the instruction set that the machine has, one call per step."""

from octavo.executors.native.executor import NativeExecutor, unsupported_reasons

__all__ = ["NativeExecutor", "unsupported_reasons"]
